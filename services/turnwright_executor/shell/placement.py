"""Placement of loops on this host: the directory of a project, its files, a shell in it."""

from __future__ import annotations

import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from turnwright.types.v1 import project_pb2
from turnwright_values.store import ClaimRunResponse
from turnwright_values.types import FileConstraint, Loop, Run

from turnwright_core.constraints import Constraints
from turnwright_core.errors import Reason, fault
from turnwright_core.text import host_and_path
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.files.file_threads import on_files
from turnwright_executor.files.mounts import MOUNTS
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.workspaces import FileScanner, HostedPlace, SandboxHosts
from turnwright_executor.shell.clones import Clones
from turnwright_executor.shell.confined_git import ConfinedGit
from turnwright_executor.shell.local_host import LocalHost
from turnwright_executor.shell.run_places import MadePlace, RunPlaces
from turnwright_executor.shell.shell import never
from turnwright_executor.tools.ports import Workspace
from turnwright_executor.turn.loop_scope import Placement
from turnwright_executor.turn.project_files import EMPTY_HASH, FileSync
from turnwright_kit.logs import get_logger
from turnwright_kit.sandbox.sandbox import Sandbox

SYNCS_MAX: Final = 64
"""Runs whose file state is cached in memory; that of others is read again."""

PLACES_FOLDER: Final = "places"
"""In the home: the directories of runs that have their own, unless TURNWRIGHT_PLACES names another folder."""

_log = get_logger("places")


class _Known(Struct, frozen=True):
    """A run's knowledge of the project's files, under the project's constraints."""

    constraints: Constraints
    scanner: FileScanner
    sync: FileSync
    is_shared: bool
    """Whether it works in the project's directory, whose files are everybody's."""


class Placements:
    """Finds the directory of a loop; keeps what a run knows of its files between loops."""

    def __init__(
        self,
        ledger: Ledger,
        settings: ExecutorSettings,
        sandbox: Sandbox,
        ends_s: Callable[[RunAddress], float],
        hosts: SandboxHosts,
    ) -> None:
        """Read file states from this ledger; confine commands with this sandbox. `hosts` have other projects.

        `ends_s` says until when this executor owns a run, in seconds of CLOCK_BOOTTIME.
        """
        self._ends_s = ends_s
        self._ledger = ledger
        self._settings = settings
        self._here, self._hosts = LocalHost(settings, sandbox), hosts
        folder = (
            os.path.realpath(os.path.expanduser(settings.places))
            if settings.places
            else f"{self._here.home}/{PLACES_FOLDER}"
        )
        self._syncs: OrderedDict[RunAddress, _Known] = OrderedDict()
        git = ConfinedGit(sandbox, self._here.environment)
        self.clones = Clones(git, self._here.home, settings)
        """The projects that are clones."""
        self.own = RunPlaces(folder, git, ledger.find_places)
        """Those of runs that do not share the directory of their project."""

    async def find(self, address: RunAddress, claim: ClaimRunResponse, loop: Loop) -> Placement:
        """The placement of a loop. Raises WORKSPACE_UNAVAILABLE; OSError if the project's directory does not exist."""
        place = await self._made(claim.run, claim.project_root, claim.workspace_id)
        known = None if claim.file_constraints_left_out else claim.file_constraints
        ends_s = partial(self._ends_s, address)
        constraints, found = await self._opened(address, claim.epoch, place, known, ends_s)
        return Placement(
            workspace=found.workspace,
            shell=found.shell,
            root=place.root,
            files=None if loop.settings.no_repo else await self._sync(address, claim, found, constraints),
            save=partial(self._save, claim, loop, ends_s) if claim.run.place else None,
        )

    async def tool_host(self, run: Run, project: project_pb2.Project) -> Placement:
        """The placement for clients' commands in a run. Raises WORKSPACE_UNAVAILABLE."""
        place = await self._made(run, project.root, project.workspace_id)
        _, found = await self._for_client(RunAddress(run.project, run.run), place)
        return Placement(found.workspace, found.shell, place.root)

    async def _made(self, run: Run, root: str, workspace: str) -> MadePlace:
        host, _ = host_and_path(root)
        if host and run.place:
            message = (
                f"{root} is on the sandbox host {host}, where runs have no places of their own: give the task to a new "
                "run without one, or register a clone there as a project."
            )
            raise fault(Reason.WORKSPACE_UNAVAILABLE, message, project=run.project, root=root)
        return await self.own.place(workspace, root, run) if run.place else MadePlace(root)

    async def _save(self, claim: ClaimRunResponse, loop: Loop, ends_s: Callable[[], float]) -> None:
        """A loop ends whether its work could be copied or not: it stays in its place, and goes with the next one's."""
        problem = await self.own.save(claim.workspace_id, claim.project_root, claim.run, loop, ends_s)
        if problem:
            _log.warning(
                "place_not_saved", run=claim.run.run, branch=claim.run.place and claim.run.place.branch, problem=problem
            )

    async def current_files(self, project: str, root: str) -> tuple[Workspace, FileSync]:
        """The files of a project for a run that has none yet; nothing is kept. Raises WORKSPACE_UNAVAILABLE."""
        _, found = await self._for_client(RunAddress(project, ""), MadePlace(root))
        return found.workspace, FileSync(found.scanner(), {}, self._settings.token_divisor)

    async def _for_client(self, address: RunAddress, place: MadePlace) -> tuple[Constraints, HostedPlace]:
        try:
            return await self._opened(address, 0, place, None, never)
        except FileNotFoundError:
            message = f"{place.root}, the directory of {address.project}, is not on this executor's host."
            raise fault(Reason.WORKSPACE_UNAVAILABLE, message, project=address.project, root=place.root) from None

    async def _opened(
        self,
        address: RunAddress,
        epoch: int,
        place: MadePlace,
        known: Sequence[FileConstraint] | None,
        ends_s: Callable[[], float],
    ) -> tuple[Constraints, HostedPlace]:
        """`known` are the file constraints, if they need not be read. Raises as `find`."""
        root, here = place.root, self._here
        constraints = Constraints(await self._ledger.file_constraints(address.project) if known is None else known)
        if host_and_path(root)[0]:
            return constraints, await self._hosts.place(address, epoch, root, constraints, ends_s)
        # A folder of this machine is looked up at once: a thread costs more.
        if not (_is_place(root) if MOUNTS.is_local_tree(root) else await on_files(lambda _: _is_place(root))):
            raise FileNotFoundError(2, "there is no such directory", root)
        shell = here.shell(root, constraints, place.caches, place.readable, ends_s)
        scanner = partial(here.scanner, root, constraints, watched=bool(epoch))
        return constraints, HostedPlace(here.workspace(root, constraints), shell, scanner)

    async def _sync(
        self, address: RunAddress, claim: ClaimRunResponse, place: HostedPlace, constraints: Constraints
    ) -> FileSync:
        found = self._syncs.pop(address, None)
        if found is None or found.sync.is_spoiled or found.constraints != constraints:
            found = await self._read(address, claim, place, constraints)
        self._syncs[address] = found
        while len(self._syncs) > SYNCS_MAX:
            self._syncs.popitem(last=False)
        return found.sync

    async def _read(
        self, address: RunAddress, claim: ClaimRunResponse, place: HostedPlace, constraints: Constraints
    ) -> _Known:
        """The file state of a run; a new one starts with that of another run of its project."""
        is_shared = claim.run.place is None
        like_run = self._like(address.project, constraints)
        known = claim.files
        if known is None:
            known = await self._ledger.adopt_files(address, claim.epoch, like_run.run if like_run else "")
        like = self._syncs.get(like_run) if like_run and is_shared else None
        if like and not like.sync.is_spoiled:
            scanner = like.scanner.copied()
            # A file that is not text has attributes that may have changed although its body, which is empty, has not.
            known = {path: "" if digest == EMPTY_HASH else digest for path, digest in known.items()}
        else:
            scanner = place.scanner()
        return _Known(constraints, scanner, FileSync(scanner, known, self._settings.token_divisor), is_shared)

    def like_run(self, project: str) -> str:
        """The run whose files one adopts that is created in a project without constraints; empty: none."""
        like = self._like(project, Constraints(()))
        return like.run if like else ""

    def _like(self, project: str, constraints: Constraints) -> RunAddress | None:
        """The run to adopt files from: the one that worked here last.

        If the project includes files with `add`, each run has them in view from the start: then they are written one by
        one. Never from one with a place of its own: its files may be for few.
        """
        if constraints.paths_taken_in or constraints.patterns_taken_in:
            return None
        for address, known in reversed(self._syncs.items()):
            is_like = known.is_shared and known.constraints == constraints and not known.sync.is_spoiled
            if address.project == project and is_like:
                return address
        return None


def _is_place(root: str) -> bool:
    """Whether a project is where it was registered: a link in its place would lead to a directory that nobody named."""
    return os.path.isdir(root) and os.path.realpath(root) == root
