"""What a service that listens everywhere tells others of where it is."""

from __future__ import annotations

import ipaddress

import pytest

from turnwright_kit.addresses import reachable_address


@pytest.mark.parametrize("wildcard", ["0.0.0.0", "[::]"])
def test_a_wildcard_becomes_an_address_of_the_host_with_the_same_port(wildcard):
    host, _, port = reachable_address(f"{wildcard}:7440").rpartition(":")
    assert port == "7440"
    assert not ipaddress.ip_address(host.strip("[]")).is_unspecified


@pytest.mark.parametrize("address", ["10.0.0.1:7440", "executor-0.executors:7440", "unix:/run/x.sock", "[fd00::1]:1"])
def test_what_names_a_host_is_reported_as_it_is(address):
    assert reachable_address(address) == address
