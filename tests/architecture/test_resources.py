"""The contract of resources: one service in a package of its own, with fields that all requests share (ADR 54)."""

import re

import pytest
from turnwright.executor.v1 import executor_service_pb2

from turnwright_core.wire.resources import RESOURCES
from turnwright_executor.rpc.mounting import MOUNTED

REQUESTS = {"project": 1, "run": 2, "page_size": 13, "page_token": 14, "request_id": 15}
ANSWERS = {"next_page_token": 15}
SERVICES = pytest.mark.parametrize("service", [one.service for one in RESOURCES], ids=lambda service: service.name)


def numbers(message):
    return {field.name: field.number for field in message.fields}


@SERVICES
def test_a_field_that_requests_share_has_the_same_number_in_each(service):
    for rpc in service.methods:
        for message, shared in ((rpc.input_type, REQUESTS), (rpc.output_type, ANSWERS)):
            found = numbers(message)
            named = {name: found[name] for name in shared if name in found}
            assert named.items() <= shared.items(), message.full_name
            taken = {number: name for name, number in found.items()}
            others = {taken[number] for number in shared.values() if number in taken} - shared.keys()
            assert not others, f"{message.full_name} has {others} where other requests have what they share"


@SERVICES
def test_a_resource_stands_alone_in_its_package(service):
    file = service.file
    assert list(file.services_by_name) == [service.name]
    resource = service.name.removesuffix("Service").lower()
    assert file.package == f"turnwright.{re.sub('y$', 'ie', resource)}s.v1"
    ours = {one.package for one in file.dependencies if one.package.startswith("turnwright.")}
    assert ours <= {"turnwright.types.v1", file.package}


@SERVICES
def test_a_list_can_be_paged_and_only_reads(service):
    for rpc in service.methods:
        if rpc.name.startswith(("Get", "List", "Watch", "Read", "Search")):
            assert rpc.GetOptions().idempotency_level == rpc.GetOptions().NO_SIDE_EFFECTS, rpc.full_name


def test_a_client_of_the_executor_gets_what_it_serves_and_no_other_services():
    needed, files = set(), [executor_service_pb2.DESCRIPTOR, *(service.file for service in MOUNTED)]
    while files:
        file = files.pop()
        needed.add(file.package)
        files += file.dependencies
    ours = {"turnwright.executor.v1", "turnwright.types.v1", *(service.file.package for service in MOUNTED)}
    assert {package for package in needed if package.startswith("turnwright.")} == ours
