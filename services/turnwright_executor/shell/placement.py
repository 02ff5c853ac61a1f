"""Placement of loops on this host: the directory of a project, its files, a shell in it."""

from __future__ import annotations

import copy
import hashlib
import os
from collections import OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright.types.v1 import project_pb2
from turnwright_values.store import ClaimRunResponse
from turnwright_values.types import FileConstraint, Loop, Run

from turnwright_core.constraints import Constraints
from turnwright_core.errors import Reason, fault
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.files.file_threads import on_files
from turnwright_executor.files.folder_watch import FolderWatch
from turnwright_executor.files.mounts import MOUNTS
from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.files.workspace import DiskWorkspace
from turnwright_executor.files.workspace_marker import find_workspace
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.workspaces import FoundWorkspace
from turnwright_executor.shell.confined_git import ConfinedGit
from turnwright_executor.shell.run_places import MadePlace, RunPlaces
from turnwright_executor.shell.shell import LocalShell, ShellLimits
from turnwright_executor.turn.loop_scope import Placement
from turnwright_executor.turn.project_files import EMPTY_HASH, FileSync
from turnwright_kit.logs import get_logger
from turnwright_kit.sandbox.environment import allowed_environment
from turnwright_kit.sandbox.sandbox import Sandbox

SYNCS_MAX: Final = 64
"""Runs whose file state is cached in memory; that of others is read again."""

PLACES_FOLDER: Final = "places"
"""In the home: the directories of runs that have their own, unless TURNWRIGHT_PLACES names another folder."""

CACHES_FOLDER: Final = "caches"
"""In the home: what commands of others than its owner keep, for each directory of a project."""

_log = get_logger("places")


class _Known(Struct, frozen=True):
    """A run's knowledge of the project's files, under the project's constraints."""

    constraints: Constraints
    scanner: DiskScanner
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
    ) -> None:
        """Read file states from this ledger; confine commands with this sandbox.

        `ends_s` says until when this executor owns a run, in seconds of CLOCK_BOOTTIME.
        """
        self._ends_s = ends_s
        self._ledger = ledger
        self._sandbox = sandbox
        self._settings = settings
        self._home = os.path.realpath(settings.home)
        folder = (
            os.path.realpath(os.path.expanduser(settings.places))
            if settings.places
            else f"{self._home}/{PLACES_FOLDER}"
        )
        self._syncs: OrderedDict[RunAddress, _Known] = OrderedDict()
        self._environment = allowed_environment(os.environ)
        self.git = ConfinedGit(sandbox, self._environment)
        self.own = RunPlaces(folder, self.git, ledger.find_places)
        """Those of runs that do not share the directory of their project."""

    async def find(self, address: RunAddress, claim: ClaimRunResponse, loop: Loop) -> Placement:
        """The placement of a loop. Raises WORKSPACE_UNAVAILABLE; OSError if the project's directory does not exist."""
        place = await self._made(claim.run, claim.project_root, claim.workspace_id)
        known = None if claim.file_constraints_left_out else claim.file_constraints
        constraints, workspace, shell = await self._tool_host(address.project, place, known)
        ends_s = partial(self._ends_s, address)
        return Placement(
            workspace=workspace,
            shell=replace(shell, ends_s=ends_s),
            root=place.root,
            files=None if loop.settings.no_repo else await self._sync(address, claim, place.root, constraints),
            save=partial(self._save, claim, loop, ends_s) if claim.run.place else None,
        )

    async def tool_host(self, run: Run, project: project_pb2.Project) -> Placement:
        """The placement for clients' commands in a run. Raises WORKSPACE_UNAVAILABLE."""
        place = await self._made(run, project.root, project.workspace_id)
        _, workspace, shell = await self._on_this_host(run.project, place)
        return Placement(workspace, shell, place.root)

    async def _made(self, run: Run, root: str, workspace: str) -> MadePlace:
        return await self.own.place(workspace, root, run) if run.place else MadePlace(root)

    async def _save(self, claim: ClaimRunResponse, loop: Loop, ends_s: Callable[[], float]) -> None:
        """A loop ends whether its work could be copied or not: it stays in its place, and goes with the next one's."""
        problem = await self.own.save(claim.workspace_id, claim.project_root, claim.run, loop, ends_s)
        if problem:
            _log.warning(
                "place_not_saved", run=claim.run.run, branch=claim.run.place and claim.run.place.branch, problem=problem
            )

    async def current_files(self, project: str, root: str) -> tuple[DiskWorkspace, FileSync]:
        """The files of a project for a run that has none yet; nothing is kept. Raises WORKSPACE_UNAVAILABLE."""
        constraints, workspace, _ = await self._on_this_host(project, MadePlace(root))
        return workspace, FileSync(self._scanner(root, constraints), {}, self._settings.token_divisor)

    async def _on_this_host(self, project: str, place: MadePlace) -> tuple[Constraints, DiskWorkspace, LocalShell]:
        try:
            return await self._tool_host(project, place)
        except FileNotFoundError:
            message = f"{place.root}, the directory of {project}, is not on this executor's host."
            raise fault(Reason.WORKSPACE_UNAVAILABLE, message, project=project, root=place.root) from None

    async def _tool_host(
        self, project: str, place: MadePlace, known: Sequence[FileConstraint] | None = None
    ) -> tuple[Constraints, DiskWorkspace, LocalShell]:
        """`known` are the file constraints, if they need not be read."""
        root = place.root
        # A folder of this machine is looked up at once: a thread costs more.
        if not (_is_place(root) if MOUNTS.is_local_tree(root) else await on_files(lambda _: _is_place(root))):
            raise FileNotFoundError(2, "there is no such directory", root)
        settings = self._settings
        constraints = Constraints(await self._ledger.file_constraints(project) if known is None else known)
        limits = ShellLimits(
            output_bytes=settings.sh_output_bytes_max,
            processes=settings.sh_processes_max,
            memory_mb=settings.sh_memory_mb_max,
            term_grace_s=settings.sh_grace_s,
        )
        workspace = DiskWorkspace(root, settings.file_bytes_max, constraints, self._home)
        files = self._scanner(root, constraints)
        caches = place.caches or f"{self._home}/{CACHES_FOLDER}/{hashlib.sha256(os.fsencode(root)).hexdigest()[:32]}"
        sandbox = (
            replace(self._sandbox, inside=(*self._sandbox.inside, *place.readable)) if place.readable else self._sandbox
        )
        shell = LocalShell(root, limits, self._environment, sandbox=sandbox, caches=caches, files=files)
        return constraints, workspace, shell

    def _scanner(self, root: str, constraints: Constraints, watch: FolderWatch | None = None) -> DiskScanner:
        settings = self._settings
        return DiskScanner(
            root,
            file_bytes_max=settings.file_bytes_max,
            files_max=settings.files_max,
            constraints=constraints,
            home=self._home,
            watch=watch,
        )

    async def _sync(
        self, address: RunAddress, claim: ClaimRunResponse, root: str, constraints: Constraints
    ) -> FileSync:
        found = self._syncs.pop(address, None)
        if found is None or found.sync.is_spoiled or found.constraints != constraints:
            found = await self._read(address, claim, root, constraints)
        self._syncs[address] = found
        while len(self._syncs) > SYNCS_MAX:
            self._syncs.popitem(last=False)
        return found.sync

    async def _read(self, address: RunAddress, claim: ClaimRunResponse, root: str, constraints: Constraints) -> _Known:
        """The file state of a run; a new one starts with that of another run of its project."""
        is_shared = claim.run.place is None
        like_run = self._like(address.project, constraints)
        known = claim.files
        if known is None:
            known = await self._ledger.adopt_files(address, claim.epoch, like_run.run if like_run else "")
        like = self._syncs.get(like_run) if like_run and is_shared else None
        if like and not like.sync.is_spoiled:
            scanner = copy.copy(like.scanner)
            scanner.detach()
            # A file that is not text has attributes that may have changed although its body, which is empty, has not.
            known = {path: "" if digest == EMPTY_HASH else digest for path, digest in known.items()}
        else:
            scanner = self._scanner(root, constraints, FolderWatch(root))
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


async def locate(root: str) -> FoundWorkspace | None:
    """The directory at an absolute path, with the id from its marker; None if there is none."""
    return await on_files(lambda _: _locate(Path(root)))


def _locate(path: Path) -> FoundWorkspace | None:
    # `Path.is_dir` raises for some inaccessible paths: too long a name, or a folder without permission.
    if not path.is_absolute() or not os.path.isdir(path):
        return None
    found = find_workspace(path)
    if found.copied_from:
        _log.warning("workspace_copied", root=found.root, copied_from=found.copied_from)
    return found
