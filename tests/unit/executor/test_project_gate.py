"""A call of a client is admitted by the project that it names; a method of which nothing is known needs one."""

from __future__ import annotations

import pytest
from google.protobuf.message_factory import GetMessageClass
from turnwright.executor.v1 import executor_service_pb2, query_pb2, task_pb2
from turnwright.projects.v1 import project_service_pb2 as pb
from turnwright.types.v1.project_pb2 import Project
from turnwright_values.types import Tier

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_executor.rpc.mounting import MOUNTED
from turnwright_executor.rpc.project_gate import ABOUT_ALL, ABOUT_NO_PROJECT, ProjectGate
from turnwright_executor.rpc.projects import ProjectCalls, ProjectReads
from turnwright_kit.identity.caller import KINDS, enter_caller
from turnwright_kit.identity.gate import CallerGate
from turnwright_kit.identity.headers import call_metadata
from turnwright_kit.identity.own_tokens import TokenKey, make_token
from turnwright_kit.peer import Peer

pytestmark = pytest.mark.asyncio

SERVICE = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]
METHODS = [method for service in (SERVICE, *MOUNTED) for method in service.methods]
TIERS = {Tier.MODEL: True, Tier.CLIENT: True, Tier.PLUGIN: False, Tier.SYSTEM: False}
"""Whether a caller of this tier is looked at."""


KEY = TokenKey.of("secret", "executor")


async def is_open(name: str) -> bool:
    return name == "open"


def admit(tier: Tier) -> None:
    token = "secret" if tier is Tier.SYSTEM else make_token(KEY, "guest", KINDS[tier], 60)
    enter_caller(CallerGate("executor", ["secret"], Tier.MODEL).caller(call_metadata(token)))


async def answer(tier: Tier, method: str, request) -> Reason | None:
    """Why a call is refused; None: it is not."""
    admit(tier)
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
        request = GetMessageClass(method.input_type)()
        if names_a_project(method):
            (request.task if "task" in method.input_type.fields_by_name else request).project = project
        free = not TIERS[tier] or method.name in ABOUT_NO_PROJECT or (not project and method.name in ABOUT_ALL)
        assert await answer(tier, path, request) is (None if free else refusal)


async def test_what_is_not_known_is_denied_and_other_services_are_not_its_business():
    request = query_pb2.GetStatusRequest()
    assert await answer(Tier.CLIENT, f"/{SERVICE.full_name}/ReadEverything", request) is Reason.PROJECT_NOT_FOUND
    assert await answer(Tier.CLIENT, "/turnwright.settings.v1.SettingsService/GetSettings", request) is None
    assert await answer(Tier.CLIENT, f"/{SERVICE.full_name}/Act", task_pb2.ActRequest()) is Reason.PROJECT_NOT_FOUND


# What of the projects is shown where a request names none ---------------------------------------------------------------

PROJECTS = {name: Project(name=name, root=f"/{name}", workspace_id=f"of {name}") for name in ("closed", "open")}
AT = {"/closed": "closed", "/open": "open", "/open/copy": "closed", "/closed/copy": "open"}
"""The project that the marker in a directory names."""


async def opens(project: Project) -> bool:
    return await is_open(project.name)


async def admits(root: str) -> bool:
    return root.startswith("/open")


async def find(root: str) -> Project | None:
    return PROJECTS.get(AT.get(root, ""))


async def forward(request, _context):
    """As the store answers."""
    if isinstance(request, pb.ListProjectsRequest):
        return pb.ListProjectsResponse(projects=PROJECTS.values(), next_page_token="more")
    (found,) = (one for one in PROJECTS.values() if request.workspace_id == one.workspace_id)
    return pb.GetProjectResponse(project=found)


READS = ProjectReads(find, admits, opens).around()


@pytest.mark.parametrize("tier", TIERS)
async def test_the_list_of_projects_has_what_is_open_to_the_caller(tier):
    admit(tier)
    page = await READS["ListProjects"](pb.DESCRIPTOR, forward)(pb.ListProjectsRequest(), None)
    assert [one.name for one in page.projects] == (["open"] if TIERS[tier] else ["closed", "open"])
    assert page.next_page_token == "more"


@pytest.mark.parametrize("tier", TIERS)
@pytest.mark.parametrize(
    ("key", "name", "is_shown"),
    [
        ({"root": "/open"}, "open", True),
        ({"root": "/closed"}, "closed", False),
        ({"root": "/open/copy"}, "closed", False),
        ({"root": "/closed/copy"}, "open", False),
        ({"root": "/nowhere"}, "", False),
        ({"workspace_id": "of open"}, "open", True),
        ({"workspace_id": "of closed"}, "closed", False),
    ],
    ids=str,
)
async def test_a_project_that_is_closed_is_not_found_by_a_directory_or_a_workspace(tier, key, name, is_shown):
    admit(tier)
    found = READS["GetProject"](pb.DESCRIPTOR, forward)(pb.GetProjectRequest(**key), None)
    if name and (is_shown or not TIERS[tier]):
        assert (await found).project == PROJECTS[name]
        return
    with pytest.raises(TurnwrightError) as refused:
        await found
    assert refused.value.reason is Reason.PROJECT_NOT_FOUND


async def test_the_executor_looks_at_every_call_of_projects_that_may_name_none():
    peer = Peer("store", "unix:/nowhere", "secret", 1.0)

    async def nothing(_root: str):
        return None

    handlers = ProjectCalls(peer, find, admits, opens, nothing, nothing).around()
    await peer.close()
    service = pb.DESCRIPTOR.services_by_name["ProjectService"]
    assert handlers.keys() == {one.name for one in service.methods} & (ABOUT_NO_PROJECT | ABOUT_ALL)
