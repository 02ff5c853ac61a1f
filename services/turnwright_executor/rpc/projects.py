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
from turnwright_values.types import Right

from turnwright_core.checks import invalid
from turnwright_core.errors import DeniedError, Reason, TurnwrightError, fault
from turnwright_core.text import host_and_path
from turnwright_executor.ports.workspaces import Admits, Clone, FindProject, Locate, WhyUnfit
from turnwright_kit.identity.caller import Caller, current_caller
from turnwright_kit.identity.policy import Policy, bit_of
from turnwright_kit.peer import Around, Peer, UnaryHandler


class ProjectReads:
    """GetProject, also by a directory of this host, without what is closed to the caller."""

    def __init__(self, policy: Policy, find_project: FindProject) -> None:
        self._policy, self._find_project = policy, find_project

    def around(self) -> Mapping[str, Around]:
        return {"GetProject": lambda _, forward: partial(self._get, forward)}

    async def _get(self, forward: UnaryHandler, request: pb.GetProjectRequest, context: Any) -> pb.GetProjectResponse:
        """Raises PROJECT_NOT_FOUND, also for a directory whose project is closed to the caller."""
        if request.WhichOneof("key") != "root":
            answer: pb.GetProjectResponse = await forward(request, context)
            return answer
        project = await self._find_project(request.root)
        if project is None or not await self._sees_now(current_caller(), project.name):
            message = f"{request.root!r} is not registered as a project: no task was given in it yet."
            raise fault(Reason.PROJECT_NOT_FOUND, message, project="", root=request.root)
        return pb.GetProjectResponse(project=project)

    async def _sees_now(self, caller: Caller, project: str) -> bool:
        """Whether a project is open to a caller; before it is not, what holds now is asked for."""
        if not self._sees(caller, project):
            await self._policy.renew()
        return self._sees(caller, project)

    def _sees(self, caller: Caller, project: str) -> bool:
        return self._policy.has(caller, Right.READ, project)


class ProjectCalls(ProjectReads):
    """All that the executor adds: also which directory a caller may register."""

    def __init__(
        self,
        store: Peer,
        policy: Policy,
        find_project: FindProject,
        admits: Admits,
        locate: Locate,
        unfit: WhyUnfit,
        clone: Clone,
    ) -> None:
        """`admits` says in which directories anybody may register projects, `unfit` which ones nobody means."""
        super().__init__(policy, find_project)
        self._clone = clone
        self._store, self._admits, self._locate, self._unfit = store, admits, locate, unfit
        self._rows = project_service_pb2_grpc.ProjectServiceStub(store.channel)

    def around(self) -> Mapping[str, Around]:
        return {"InitProject": lambda _, __: self._init, **super().around()}

    async def _init(self, request: pb.InitProjectRequest, _context: Any) -> pb.InitProjectResponse:
        """Register a directory as a project. Raises WORKSPACE_UNAVAILABLE if it does not exist.

        Raises RIGHT_MISSING if the caller may not register it; the error does not tell whether it exists, or whose it
        is. The store, which knows no directories, takes an executor's word for it.
        """
        root, caller = request.root, current_caller()
        is_trusted = bool(self._policy.rights_in_deployment(caller) & bit_of(Right.ADMIN))
        is_clone = bool(request.git_url or request.git_ref)
        if is_clone:
            root = await self._cloned(caller, request)
        if not is_trusted and not is_clone and (PurePath(root).is_absolute() or host_and_path(root)[0]):
            await self._check_root(caller, root)
        if PurePath(root).is_absolute() and not request.force and not is_clone:
            await self._check_fit(root)
        workspace = await self._locate(root)
        # Looked at again: a link on the way may have changed meanwhile.
        if workspace and not is_trusted and not is_clone:
            await self._check_root(caller, workspace.root)
        if workspace is None:
            problem = "not a directory that this executor can see. Name an existing one by its absolute path"
            raise _unavailable_error(root, problem)
        if not caller.is_root:
            await self._check_changes(caller, request, workspace.root)
        request.root, request.workspace_id = workspace.root, workspace.id
        request.ClearField("git_url")
        request.ClearField("git_ref")
        try:
            answer = await self._store.call(self._rows.InitProject, request, caller=caller)
        except DeniedError:
            raise closed_error(root) from None
        answer.project.copied_from = workspace.copied_from
        if not caller.is_root and not await self._sees_now(caller, answer.project.name):
            # Somebody else has registered it at the same moment.
            raise closed_error(root)
        return answer

    async def _cloned(self, caller: Caller, request: pb.InitProjectRequest) -> str:
        """The directory of a clone. Who may use none but some projects gets none, nor who may not use its project."""
        if request.root:
            raise invalid("root", "root must be empty with git_url: the executor says where clones are.")
        if caller.projects is not None:
            raise closed_error(request.git_url)
        root = await self._clone(request.git_url, request.git_ref)
        project = await self._find_project(root)
        if project is not None and not caller.is_root and not await self._sees_now(caller, project.name):
            raise closed_error(root)
        return root

    async def _check_fit(self, root: str) -> None:
        """Before anything is written there: its marker makes a directory a project."""
        if (what := await self._unfit(root)) and await self._find_project(root) is None:
            problem = (
                f"{what}, and all that lies in it would be the project. Name the project's own directory with "
                "--project; `turnwright project --force` takes this one all the same"
            )
            raise _unavailable_error(root, problem)

    async def _check_root(self, caller: Caller, root: str) -> None:
        """Refuse a directory whose project is another's, and one that is no project and lies in no open folder."""
        project: project_pb2.Project | None = await self._find_project(root)
        is_own = project is not None and await self._sees_now(caller, project.name)
        if (project and not is_own) or not (is_own or (caller.projects is None and await self._admits(root))):
            raise closed_error(root)
        # The marker that names the project may be a copy.
        if project and project.root != root and not await self._admits(root):
            raise closed_error(root)

    async def _check_changes(self, caller: Caller, request: pb.InitProjectRequest, root: str) -> None:
        """What a project is set to is changed by those who manage it."""
        project: project_pb2.Project | None = await self._find_project(root)
        is_changed = request.HasField("assembly") or request.HasField("config_path")
        if project and (is_changed or project.root != root):
            self._policy.check_project(caller, Right.MANAGE, project.name, "To configure or move a project")


def closed_error(root: str) -> TurnwrightError:
    return fault(
        Reason.RIGHT_MISSING,
        f"You cannot register {root!r}: it needs `admin` in the deployment, or a folder above it in "
        "TURNWRIGHT_CLIENT_ROOTS of the executor; and a project that is there already needs a grant in it, one that "
        "lies in it or around it the right `files`. On the executor's host `turnwright init --clients` in "
        "that directory registers it, and makes everybody with an identity a member.",
        right="admin",
        project="",
    )


def _unavailable_error(root: str, problem: str) -> TurnwrightError:
    return fault(Reason.WORKSPACE_UNAVAILABLE, f"{root!r} is {problem}.", project="", root=root)
