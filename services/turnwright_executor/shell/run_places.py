"""Directories of their own for runs: work trees and clones of the repository of their project.

A place is a folder `{places}/{workspace}/{name}` with the work tree of the run, `tree`, and a repository of ours,
`repo`, whose history begins with the commit that the run stands on. What the run has changed is committed there and
copied to a branch of the project. In a clone the tree has a repository of its own, too, with the history.

Git works for us on what models have written: hooks, filters, configuration, links to other repositories. So it runs in
the sandbox of commands, and sees either the project, which commands of all its runs have written, or the places of a
run and its parent: between them is a folder with a pack, `in` or `out`. No command of a run sees the project's
repository from its place. A place is made aside and renamed: where its name is, it is whole.
"""

from __future__ import annotations

import asyncio
import os
import shlex
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.types import Loop, Place, Run, RunPlace

from turnwright_core.errors import Reason, fault
from turnwright_executor.files.file_threads import on_files, on_trees
from turnwright_executor.shell.shell import LocalShell, ShellLimits
from turnwright_kit.logs import get_logger
from turnwright_kit.sandbox.readable import MARKER_FOLDER
from turnwright_kit.sandbox.sandbox import Sandbox

GIT_S_MAX: Final = 300.0
"""Seconds that making or saving a place may take: a clone copies the history."""

ERROR_CHARS_MAX: Final = 500
"""Length of git's output in an error, in characters."""

ASIDE_S: Final = 3600
"""Seconds after which a place that was not finished is nobody's any more."""

NAMES_MAX: Final = 1000
"""Places that the store is asked about at once."""

SWEEP_S: Final = 600.0
"""Seconds between two looks for places of runs that have been removed."""

TREE: Final = "tree"
REPOSITORY: Final = "repo"
CACHES: Final = "caches"
_IN: Final = "in"
_OUT: Final = "out"

_SETTINGS: Final = (
    ("safe.directory", "*"),
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("gc.auto", "0"),
)

_ENVIRONMENT: Final = {
    **{f"GIT_{who}_NAME": "Turnwright" for who in ("AUTHOR", "COMMITTER")},
    **{f"GIT_{who}_EMAIL": "turnwright@localhost" for who in ("AUTHOR", "COMMITTER")},
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    # The project may be somebody else's, and what its repository wants to be run is of no use to us.
    "GIT_CONFIG_COUNT": str(len(_SETTINGS)),
    **{f"GIT_CONFIG_KEY_{at}": key for at, (key, _) in enumerate(_SETTINGS)},
    **{f"GIT_CONFIG_VALUE_{at}": value for at, (_, value) in enumerate(_SETTINGS)},
    "LC_ALL": "C",
}

_EXPORT: Final = """
from=HEAD
if git -C "$project" rev-parse -q --verify "refs/heads/$branch^{commit}" > own; then from="refs/heads/$branch"; fi
[ -d "$project/.git" ] && git -C "$project" rev-parse -q --verify "$from^{commit}" > base || {
  echo 'the project is not the top of a git repository with a commit' >&2; exit 1; }
git init -q --bare fetched
git --git-dir=fetched fetch -q --no-tags $depth "$project" "+$from:refs/heads/base"
echo refs/heads/base | git --git-dir=fetched pack-objects -q --revs --stdout > pack
touch fetched/shallow && mv fetched/shallow . && rm -rf fetched
"""
"""Packs the commit that a place begins with: of its branch, if there is one, or of HEAD."""

_MAKE: Final = """
base=$(cat in/base)
case "$base" in *[!0-9a-f]*|'') echo 'the project names no commit' >&2; exit 1;; esac
git init -q --bare repo
git --git-dir=repo config core.bare false
if [ -s in/shallow ]; then cat in/shallow > repo/shallow; fi
git --git-dir=repo index-pack --stdin < in/pack > /dev/null
git --git-dir=repo update-ref refs/turnwright/origin "$base"
if [ -n "$parent" ] && [ -d "$parent/tree" ] && [ ! -s in/own ]; then
  git --git-dir=repo fetch -q --no-tags --update-shallow "$parent/repo" HEAD:refs/turnwright/parent \\
    +refs/turnwright/origin:refs/turnwright/origin
  tree=$(GIT_DIR="$PWD/repo" GIT_WORK_TREE="$parent/tree" GIT_INDEX_FILE="$PWD/index" sh -c \\
    'git read-tree refs/turnwright/parent && { git add -A --ignore-errors || [ $? = 1 ]; } && git write-tree')
  base=$(git --git-dir=repo commit-tree "$tree" -p refs/turnwright/parent -m 'As the fork began')
  rm -f index
fi
git --git-dir=repo update-ref refs/turnwright/base "$base"
git --git-dir=repo update-ref "refs/heads/$branch" "$base"
git --git-dir=repo symbolic-ref HEAD "refs/heads/$branch"
if [ "$kind" = clone ]; then
  git init -q tree
  git -C tree fetch -q --no-tags --update-shallow "$PWD/repo" "refs/heads/$branch"
  git -C tree checkout -q -B "$branch" FETCH_HEAD
  git --git-dir=repo read-tree "$base"
else
  mkdir tree
  echo 'gitdir: ../repo' > tree/.git
  git --git-dir=repo --work-tree=tree reset -q --hard "$base"
fi
rm -rf in
"""
"""Makes a place of what was packed, or of its parent as that is now."""

_SAVE: Final = """
rm -rf repo/*.lock repo/refs/turnwright/*.lock "repo/refs/heads/$branch.lock" out
mkdir out
export GIT_DIR="$PWD/repo" GIT_WORK_TREE="$PWD/tree"
parent=$(git rev-parse -q --verify HEAD)
if [ "$kind" = clone ] && git fetch -q --no-tags "$PWD/tree/.git" +HEAD:refs/turnwright/own; then
  git merge-base --is-ancestor refs/turnwright/base refs/turnwright/own && parent=$(git rev-parse refs/turnwright/own)
fi
left=
git add -A --ignore-errors || left=$?
tree=$(git write-tree)
if [ "$tree" = "$(git rev-parse "$parent^{tree}")" ]; then commit=$parent
else commit=$(git commit-tree "$tree" -p "$parent" -m "$message"); fi
git update-ref HEAD "$commit"
printf '%s' "$commit" > out/commit
[ "$commit" = "$(git rev-parse refs/turnwright/origin)" ] ||
  git bundle create -q out/bundle "refs/heads/$branch" ^refs/turnwright/origin
touch out/whole
[ -z "$left" ]
"""
"""Commits what a place has and its branch has not, and packs for the project what that has not.

The locks are those of a git that was killed: who saves owns the run. What cannot be added, such as a repository
without a commit, is told of and keeps nothing else away.
"""

_COPY: Final = """
rm -f "$project/.git/refs/heads/$branch.lock"
if [ -e bundle ]; then
  git --git-dir="$project/.git" fetch -q --no-tags --no-write-fetch-head --no-auto-gc \\
    "$PWD/bundle" "+refs/heads/$branch:refs/heads/$branch"
elif ! git --git-dir="$project/.git" rev-parse -q --verify "refs/heads/$branch" > old; then
  git --git-dir="$project/.git" update-ref "refs/heads/$branch" "$(cat commit)"
fi
"""
"""Copies the branch to the project, whose configuration is what commands of any of its runs have written.

So it sees nothing of the place but what it is to have.
"""

Find = Callable[[Sequence[str]], Awaitable[Sequence[str]]]
"""Those of the names that are places of runs. Raises TurnwrightError."""

_log = get_logger("places")


class MadePlace(Struct, frozen=True):
    """The place of a run, as commands see it."""

    root: str
    """The work tree."""
    readable: tuple[str, ...] = ()
    """What a command in it reads beside it, wherever that is."""
    caches: str = ""
    """Where commands of others than the home's owner keep what they share. Empty: in the home."""


class RunPlaces:
    """Makes, saves and removes the places of runs on this host."""

    def __init__(self, folder: str, sandbox: Sandbox, environment: dict[str, str]) -> None:
        """`folder` is absolute; of executors that share projects it is the same one."""
        self._folder = folder
        self._sandbox = sandbox
        self._environment = {**environment, **_ENVIRONMENT}
        self._making: dict[str, asyncio.Lock] = {}
        """One for each repository: two that change references of one repository at once fail."""

    async def place(self, workspace: str, project: str, run: Run) -> MadePlace:
        """The place of a run that has one, made if it is not there. Raises WORKSPACE_UNAVAILABLE, OSError."""
        assert run.place
        folder = f"{self._folder}/{workspace}/{run.place.name}"
        if not await on_files(lambda _: os.path.isdir(folder)):
            async with self._making.setdefault(project, asyncio.Lock()):
                if not await on_files(lambda _: os.path.isdir(folder)):
                    await self._make(workspace, project, run, run.place)
        shown = () if run.settings.place is Place.CLONE else (f"{folder}/{REPOSITORY}",)
        return MadePlace(f"{folder}/{TREE}", shown, f"{folder}/{CACHES}")

    async def _make(self, workspace: str, project: str, run: Run, place: RunPlace) -> None:
        kind = run.settings.place.name.lower()
        aside = f"{self._folder}/{workspace}/{place.name}~{token_hex(4)}"
        parent = f"{self._folder}/{workspace}/{place.parent}" if place.parent else ""
        inside = f"{aside}/{_IN}"
        await on_files(lambda _: os.makedirs(inside, mode=0o700))
        try:
            words = {"kind": kind, "branch": place.branch, "parent": parent, "project": project}
            depth = "" if run.settings.place is Place.CLONE else "--depth=1"
            problem = await self._git(f"depth={depth}\n{_EXPORT}", inside, words, readable=(project,))
            problem = problem or await self._git(_MAKE, aside, words, readable=(parent,) if parent else ())
            if problem:
                message = f"No {kind} of {project} could be made for the run: {problem}."
                raise fault(Reason.WORKSPACE_UNAVAILABLE, message, project=run.project, root=project)
            await on_files(lambda _: _appear(aside))
        finally:
            await on_trees(lambda _: shutil.rmtree(aside, ignore_errors=True))
        _log.info("place_created", name=place.name, kind=kind)

    async def save(self, workspace: str, project: str, run: Run, loop: Loop, ends_s: Callable[[], float]) -> str:
        """Commit what the run has changed to its branch in the project; returns why that failed, or the empty text.

        `ends_s` says until when this executor owns the run, in seconds of CLOCK_BOOTTIME: nobody else is at work there.
        """
        assert run.place
        folder = f"{self._folder}/{workspace}/{run.place.name}"
        message = f"Loop {loop.sequence} of {run.place.name}"
        kind, place = run.settings.place.name.lower(), run.place
        words = {"kind": kind, "branch": place.branch, "message": message, "project": project}
        async with self._making.setdefault(project, asyncio.Lock()):
            problem = await self._git(_SAVE, folder, words, ends_s)
            if not await on_files(lambda _: os.path.exists(f"{folder}/{_OUT}/whole")):
                return problem or "nothing was packed"
            # Where commands are not confined, a link of theirs would lead to another repository.
            if await on_files(lambda _: os.path.realpath(f"{project}/.git") != f"{project}/.git"):
                return f"{project}/.git is a link, or behind one"
            copied = await self._git(_COPY, f"{folder}/{_OUT}", words, ends_s, writable=project)
            return copied or problem

    async def _git(
        self,
        script: str,
        folder: str,
        words: dict[str, str],
        ends_s: Callable[[], float] = lambda: inf,
        *,
        readable: tuple[str, ...] = (),
        writable: str = "",
    ) -> str:
        """Run a script in a folder; returns why it failed, or the empty text.

        The project is shown or written as a whole: commands can put links into it, and none in its place.
        """
        output: list[str] = []

        async def on_output(_channel: int, text: str) -> None:
            output.append(text)

        sandbox = replace(
            self._sandbox,
            writable=(*self._sandbox.writable, *([writable] if writable else [])),
            inside=(*self._sandbox.inside, *readable, *([f"{writable}/{MARKER_FOLDER}"] if writable else [])),
        )
        limits = ShellLimits(file_mb=0)
        shell = LocalShell(folder, limits, self._environment, sandbox=sandbox, ends_s=ends_s)
        values = "".join(f"{name}={shlex.quote(value)}\n" for name, value in words.items())
        end = await shell.run(f"set -e\n{values}{script}", GIT_S_MAX, on_output, network=False)
        if end.timed_out:
            return f"git took more than {GIT_S_MAX:g} s"
        return (
            ""
            if end.exit_code == 0
            else "".join(output).strip()[-ERROR_CHARS_MAX:] or f"git ended with {end.exit_code}"
        )

    async def sweep(self, find: Find) -> None:
        """Remove the places of runs that have been removed. Raises TurnwrightError, OSError."""
        there = await on_files(lambda _: _listed(self._folder))
        for start in range(0, len(there), NAMES_MAX):
            part = there[start : start + NAMES_MAX]
            kept = set(await find([Path(folder).name for folder in part]))
            for folder in part:
                if Path(folder).name not in kept:
                    await self._remove(folder)

    async def _remove(self, folder: str) -> None:
        await on_trees(lambda _: shutil.rmtree(folder, ignore_errors=True))
        _log.info("place_removed", name=Path(folder).name)


def _appear(aside: str) -> None:
    """Give what was made its name, unless another executor, with a client's command, has been faster."""
    folder = aside.rpartition("~")[0]
    try:
        os.rename(aside, folder)
    except OSError:
        if not os.path.isdir(folder):
            raise


def _listed(folder: str) -> list[str]:
    """The places there are; what somebody is making now is none yet."""
    oldest_s = time.time() - ASIDE_S
    folders = (place for place in sorted(Path(folder).glob("*/*")) if place.is_dir())
    return [str(place) for place in folders if "~" not in place.name or place.stat().st_mtime < oldest_s]
