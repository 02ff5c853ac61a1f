"""What the executor adds to ProjectService: the directories of its host, and what is closed to a caller.

Source: row RU226; architecture 10; docs/adr/0054.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import PurePath
from typing import Any

from turnwright.projects.v1 import project_service_pb2 as pb
from turnwright.projects.v1 import project_service_pb2_grpc
from turnwright.types.v1 import project_pb2

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_executor.ports.workspaces import Admits, FindProject, Locate, Opens, WhyUnfit
from turnwright_executor.rpc.project_gate import closed_error, is_gated
from turnwright_kit.identity.caller import current_caller
from turnwright_kit.peer import Around, Peer, UnaryHandler


class ProjectReads:
    """GetProject, also by a directory of this host, and ListProjects: both without what is closed to the caller."""

    def __init__(self, find_project: FindProject, admits: Admits, opens: Opens) -> None:
        self._find_project, self._admits, self._opens = find_project, admits, opens

    def around(self) -> Mapping[str, Around]:
        return {
            "GetProject": lambda _, forward: partial(self._get, forward),
            "ListProjects": lambda _, forward: partial(self._list, forward),
        }

    async def _get(self, forward: UnaryHandler, request: pb.GetProjectRequest, context: Any) -> pb.GetProjectResponse:
        """Raises PROJECT_NOT_FOUND, also for a directory or a project that is closed to the caller."""
        if request.WhichOneof("key") == "root":
            is_closed = is_gated() and not await self._admits(request.root)
            project = None if is_closed else await self._find_project(request.root)
        else:
            project = (await forward(request, context)).project
        if project is None or not await self._is_shown(project):
            wanted = request.root or request.workspace_id or request.project
            message = f"{wanted!r} is not registered as a project: no task was given in it yet."
            raise fault(Reason.PROJECT_NOT_FOUND, message, project=request.project, root=request.root)
        return pb.GetProjectResponse(project=project)

    async def _list(self, forward: UnaryHandler, request: Any, context: Any) -> pb.ListProjectsResponse:
        page = await forward(request, context)
        shown = [project for project in page.projects if await self._is_shown(project)]
        return pb.ListProjectsResponse(projects=shown, next_page_token=page.next_page_token)

    async def _is_shown(self, project: project_pb2.Project) -> bool:
        return not is_gated() or await self._opens(project)


class ProjectCalls(ProjectReads):
    """All that the executor adds: also which directory a caller may register."""

    def __init__(
        self, store: Peer, find_project: FindProject, admits: Admits, opens: Opens, locate: Locate, unfit: WhyUnfit
    ) -> None:
        """`admits` and `opens` decide what clients may use, `unfit` which directories nobody means."""
        super().__init__(find_project, admits, opens)
        self._store, self._locate, self._unfit = store, locate, unfit
        self._rows = project_service_pb2_grpc.ProjectServiceStub(store.channel)

    def around(self) -> Mapping[str, Around]:
        return {"InitProject": lambda _, __: self._init, **super().around()}

    async def _init(self, request: pb.InitProjectRequest, _context: Any) -> pb.InitProjectResponse:
        """Register a directory as a project. Raises WORKSPACE_UNAVAILABLE if it does not exist.

        Raises TIER_FORBIDDEN if the caller may not use it; the error does not tell whether it exists. What is allowed
        is registered in the executor's own name: the store lets no derived token do it.
        """
        root = request.root
        is_trusted = current_caller().is_trusted
        if not is_trusted and PurePath(root).is_absolute():
            await self._check_root(root)
        if PurePath(root).is_absolute() and not request.force:
            await self._check_fit(root)
        workspace = await self._locate(root)
        # Looked at again: a link on the way may have changed meanwhile.
        if workspace and not is_trusted:
            await self._check_root(workspace.root)
        if request.HasField("clients") and not is_trusted:
            raise fault(
                Reason.TIER_FORBIDDEN,
                "Only the deployment's secret opens a project to derived tokens, or closes it.",
                tier="system",
                ceiling="client",
            )
        if workspace is None:
            problem = "not a directory that this executor can see. Name an existing one by its absolute path"
            raise _unavailable_error(root, problem)
        request.root, request.workspace_id = workspace.root, workspace.id
        answer = await self._store.call(self._rows.InitProject, request)
        answer.project.copied_from = workspace.copied_from
        return answer

    async def _check_fit(self, root: str) -> None:
        """Before anything is written there: its marker makes a directory a project."""
        if (what := await self._unfit(root)) and await self._find_project(root) is None:
            problem = (
                f"{what}, and all that lies in it would be the project. Name the project's own directory with "
                "--project; `turnwright project --force` takes this one all the same"
            )
            raise _unavailable_error(root, problem)

    async def _check_root(self, root: str) -> None:
        if not await self._admits(root):
            raise closed_error(repr(root))


def _unavailable_error(root: str, problem: str) -> TurnwrightError:
    return fault(Reason.WORKSPACE_UNAVAILABLE, f"{root!r} is {problem}.", project="", root=root)
