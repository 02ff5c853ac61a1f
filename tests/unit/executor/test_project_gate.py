"""A call of a client is admitted by the project that it names; a method of which nothing is known needs one."""

from __future__ import annotations

import pytest
from turnwright.executor.v1 import executor_service_pb2, query_pb2, task_pb2

from turnwright_core.entries import Tier
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.kit.auth import Authenticator, call_metadata, derive_token
from turnwright_executor.rpc.mounting import MOUNTED
from turnwright_executor.rpc.project_gate import ABOUT_ALL, ABOUT_NO_PROJECT, ProjectGate

pytestmark = pytest.mark.asyncio

SERVICE = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]
METHODS = [method for service in (SERVICE, *MOUNTED) for method in service.methods]
TIERS = {Tier.MODEL: True, Tier.CLIENT: True, Tier.PLUGIN: False, Tier.SYSTEM: False}
"""Whether a caller of this tier is looked at."""


async def is_open(name: str) -> bool:
    return name == "open"


async def answer(tier: Tier, method: str, request) -> Reason | None:
    """Why a call is refused; None: it is not."""
    token = "secret" if tier is Tier.SYSTEM else derive_token("secret", tier, "guest")
    Authenticator("secret", Tier.MODEL).admit(call_metadata(token))
    try:
        await ProjectGate(is_open).check(method, request)
    except TurnwrightError as error:
        return error.reason
    return None


def names_a_project(method) -> bool:
    return bool({"project", "task"} & set(method.input_type.fields_by_name))


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.name)
async def test_every_method_is_admitted_by_its_project(tier, method):
    path = f"/{method.containing_service.full_name}/{method.name}"
    assert names_a_project(method) is (method.name not in ABOUT_NO_PROJECT)
    for project, refusal in (("open", None), ("closed", Reason.TIER_FORBIDDEN), ("", Reason.PROJECT_NOT_FOUND)):
        request = method.input_type._concrete_class()
        if names_a_project(method):
            (request.task if "task" in method.input_type.fields_by_name else request).project = project
        free = not TIERS[tier] or method.name in ABOUT_NO_PROJECT or (not project and method.name in ABOUT_ALL)
        assert await answer(tier, path, request) is (None if free else refusal)


async def test_what_is_not_known_is_denied_and_other_services_are_not_its_business():
    request = query_pb2.GetStatusRequest()
    assert await answer(Tier.CLIENT, f"/{SERVICE.full_name}/ReadEverything", request) is Reason.PROJECT_NOT_FOUND
    assert await answer(Tier.CLIENT, "/turnwright.settings.v1.SettingsService/GetSettings", request) is None
    assert await answer(Tier.CLIENT, f"/{SERVICE.full_name}/Act", task_pb2.ActRequest()) is Reason.PROJECT_NOT_FOUND
