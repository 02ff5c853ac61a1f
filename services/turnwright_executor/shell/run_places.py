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
import shutil
import time
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path
from secrets import token_hex
from typing import Final

from msgspec import Struct
from turnwright_values.types import Loop, Place, Run, RunPlace

from turnwright_core.errors import Reason, fault
from turnwright_executor.files.file_threads import on_files, on_trees
from turnwright_executor.shell.confined_git import ASIDE_S, ConfinedGit, appear
from turnwright_kit.logs import get_logger

GIT_S_MAX: Final = 300.0
"""Seconds that making or saving a place may take: a clone copies the history."""

ERROR_CHARS_MAX: Final = 500
"""Length of git's output in an error, in characters."""

NAMES_MAX: Final = 1000
"""Places that the store is asked about at once."""

SWEEP_S: Final = 600.0
"""Seconds between two looks for places of runs that have been removed."""

MARKER: Final = "deployment"
"""The file in the folder of places with the identity of the deployment that they are of."""

TREE: Final = "tree"
REPOSITORY: Final = "repo"
CACHES: Final = "caches"
_IN: Final = "in"
_OUT: Final = "out"

_EXPORT: Final = """
from=HEAD
is_ref() { [ -d "$project/.git" ] && git -C "$project" rev-parse -q --verify "$1^{commit}"; }
if is_ref "refs/heads/$branch" > own; then from="refs/heads/$branch"; fi
is_ref "$from" > /dev/null || {
  echo 'it is not the top of a git repository with a commit, as git init and git commit make it' >&2; exit 1; }
git init -q --bare fetched
git --git-dir=fetched fetch -q --no-tags $depth "$project" "+$from:refs/heads/base"
# Somebody may have committed meanwhile.
git --git-dir=fetched rev-parse refs/heads/base > base
echo refs/heads/base | git --git-dir=fetched pack-objects -q --revs --stdout > pack
touch fetched/shallow && mv fetched/shallow . && rm -rf fetched
"""
"""Packs the commit that a place begins with: of its branch, if there is one, or of HEAD."""

_TREE_OF: Final = """
tree_of() (
  export GIT_WORK_TREE="$1" GIT_INDEX_FILE="$2"
  failed= unborn=
  git add -A --ignore-errors || failed=1
  git ls-files -s | sed -n 's/^160000 [0-9a-f]* [0-9]\t//p' > "$2.nested"
  git ls-files -o --exclude-standard | sed -n 's,/$,,p' > "$2.unborn"
  if [ -s "$2.unborn" ]; then unborn=1; cat "$2.unborn" >> "$2.nested"; fi
  while IFS= read -r path; do
    if [ -n "$3" ] && git ls-tree --full-tree "$3" -- "$path" | grep -q ^160000; then
      git diff-index --quiet --ignore-submodules=none "$3" -- "$path" && continue
      echo "what was changed in the submodule $path is not on the branch" >&2
      touch "$left"
      continue
    fi
    # A name with a line break is told in quotes.
    if [ ! -d "$1/$path" ]; then echo "$path could not be added" >&2; touch "$left"; continue; fi
    rm -f "$2.in"
    inner=$(tree_of "$1/$path" "$2.in" '')
    git update-index --force-remove -- "$path"
    git read-tree --prefix="$path/" "$inner"
    git ls-files -z -c -i --exclude-standard -- "$path/" | git update-index -z --force-remove --stdin
  done < "$2.nested"
  if [ -n "$failed" ] && { [ -z "$unborn" ] || [ -n "$(git ls-files -o --exclude-standard)" ]; }; then touch "$left"; fi
  git write-tree
)
"""
"""Prints the tree of a folder, by an index; touches `$left` if something could not be added.

Repositories within the folder are added by their files: git adds the name of their commit alone, which nobody else has.
Those that are submodules of the commit `$3` stay what they are.
"""

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
  GIT_INDEX_FILE="$PWD/index" git --git-dir=repo read-tree refs/turnwright/parent
  left="$PWD/left"
  tree=$(export GIT_DIR="$PWD/repo"; tree_of "$parent/tree" "$PWD/index" refs/turnwright/parent)
  base=$(git --git-dir=repo commit-tree "$tree" -p refs/turnwright/parent -m 'As the fork began')
  rm -rf index* left
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
left="$PWD/out/left"
rm -rf repo/index.*
tree=$(tree_of "$GIT_WORK_TREE" "$PWD/repo/index" refs/turnwright/base)
if [ "$tree" = "$(git rev-parse "$parent^{tree}")" ]; then commit=$parent
else commit=$(git commit-tree "$tree" -p "$parent" -m "$message"); fi
git update-ref HEAD "$commit"
printf '%s' "$commit" > out/commit
[ "$commit" = "$(git rev-parse refs/turnwright/origin)" ] ||
  git bundle create -q out/bundle "refs/heads/$branch" ^refs/turnwright/origin
touch out/whole
[ ! -e "$left" ]
"""
"""Commits what a place has and its branch has not, and packs for the project what that has not.

The locks are those of a git that was killed: who saves owns the run. What cannot be added is told of and keeps nothing
else away.
"""

_COPY: Final = """
rm -f "$project/.git/refs/heads/$branch.lock"
if [ -e "$out/bundle" ]; then
  git --git-dir="$project/.git" fetch -q --no-tags --no-write-fetch-head --no-auto-gc \\
    "$out/bundle" "+refs/heads/$branch:refs/heads/$branch"
elif ! git --git-dir="$project/.git" rev-parse -q --verify "refs/heads/$branch" > /dev/null; then
  git --git-dir="$project/.git" update-ref "refs/heads/$branch" "$(cat "$out/commit")"
fi
"""
"""Copies the branch to the project, whose configuration is what commands of any of its runs have written.

So it sees nothing of the place but what it is to have.
"""

Find = Callable[[Sequence[str]], Awaitable[tuple[Sequence[str], str]]]
"""Those of the names that are places of runs, and the identity of the deployment. Raises TurnwrightError."""

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

    def __init__(self, folder: str, git: ConfinedGit, find: Find) -> None:
        """`folder` is absolute; of executors that share projects it is the same one."""
        self._folder = folder
        self._find = find
        self._is_ours = False
        self._git = git
        self._making: dict[str, asyncio.Lock] = {}
        """One for each repository: two that change references of one repository at once fail."""

    async def place(self, workspace: str, project: str, run: Run) -> MadePlace:
        """The place of a run that has one, made if it is not there. Raises WORKSPACE_UNAVAILABLE, OSError."""
        assert run.place
        folder = f"{self._folder}/{workspace}/{run.place.name}"
        if not await on_files(lambda _: os.path.isdir(folder)):
            await self.claim()
            async with self._making.setdefault(project, asyncio.Lock()):
                if not await on_files(lambda _: os.path.isdir(folder)):
                    await self._make(workspace, project, run, run.place)
        shown = () if run.settings.place is Place.CLONE else (f"{folder}/{REPOSITORY}",)
        return MadePlace(f"{folder}/{TREE}", shown, f"{folder}/{CACHES}")

    async def claim(self) -> None:
        """See to it that the folder is that of our deployment: of others' places we would take each for nobody's.

        Raises WORKSPACE_UNAVAILABLE if it is another's, TurnwrightError without a store, OSError.
        """
        if self._is_ours:
            return
        _, ours = await self._find(())
        marker = f"{self._folder}/{MARKER}"
        if await on_files(lambda _: _marked(marker, ours)) != ours:
            raise fault(
                Reason.WORKSPACE_UNAVAILABLE,
                f"{self._folder} has the places of another deployment's runs: set TURNWRIGHT_PLACES of the executor to "
                f"a directory that no other deployment has. If that one is no more, remove {marker}.",
                project="",
                root=self._folder,
            )
        self._is_ours = True

    async def _make(self, workspace: str, project: str, run: Run, place: RunPlace) -> None:
        kind = run.settings.place.name.lower()
        aside = f"{self._folder}/{workspace}/{place.name}~{token_hex(4)}"
        parent = f"{self._folder}/{workspace}/{place.parent}" if place.parent else ""
        inside = f"{aside}/{_IN}"
        await on_files(lambda _: os.makedirs(inside, mode=0o700))
        try:
            words = {"kind": kind, "branch": place.branch, "parent": parent, "project": project}
            depth = "" if run.settings.place is Place.CLONE else "--depth=1"
            problem = await self._run(f"depth={depth}\n{_EXPORT}", inside, words, readable=(project,))
            problem = problem or await self._run(_TREE_OF + _MAKE, aside, words, readable=(parent,) if parent else ())
            if problem:
                message = f"No {kind} of {project} could be made for the run: {problem}."
                raise fault(Reason.WORKSPACE_UNAVAILABLE, message, project=run.project, root=project)
            await on_files(lambda _: appear(aside))
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
            problem = await self._run(_TREE_OF + _SAVE, folder, words, ends_s)
            if not await on_files(lambda _: os.path.exists(f"{folder}/{_OUT}/whole")):
                return problem or "nothing was packed"
            # Where commands are not confined, a link of theirs would lead to another repository.
            if await on_files(lambda _: os.path.realpath(f"{project}/.git") != f"{project}/.git"):
                return f"{project}/.git is a link, or behind one"
            words["out"] = f"{folder}/{_OUT}"
            copied = await self._run(_COPY, project, words, ends_s, readable=(words["out"],))
            return copied or problem

    async def _run(
        self,
        script: str,
        folder: str,
        words: dict[str, str],
        ends_s: Callable[[], float] = lambda: inf,
        *,
        readable: tuple[str, ...] = (),
    ) -> str:
        """Run a script in a folder; returns why it failed, or the empty text."""
        end = await self._git.run(script, folder, words, GIT_S_MAX, ends_s, readable=readable)
        if end.timed_out:
            return f"git took more than {GIT_S_MAX:g} s"
        return "" if end.exit_code == 0 else end.output.strip()[-ERROR_CHARS_MAX:] or f"git ended with {end.exit_code}"

    async def sweep(self) -> None:
        """Remove the places of runs that have been removed. Raises as `claim`."""
        there = await on_files(lambda _: _listed(self._folder))
        if there:
            await self.claim()
        for start in range(0, len(there), NAMES_MAX):
            part = there[start : start + NAMES_MAX]
            names, _ = await self._find([Path(folder).name for folder in part])
            kept = set(names)
            for folder in part:
                if Path(folder).name not in kept:
                    await self._remove(folder)

    async def _remove(self, folder: str) -> None:
        await on_trees(lambda _: shutil.rmtree(folder, ignore_errors=True))
        _log.info("place_removed", name=Path(folder).name)


def _marked(marker: str, ours: str) -> str:
    """Whose the folder is; ours if it was nobody's."""
    os.makedirs(os.path.dirname(marker), mode=0o700, exist_ok=True)
    # It has its name once it is whole: two deployments may begin at once.
    aside = f"{marker}~{token_hex(4)}"
    try:
        Path(aside).write_text(ours, encoding="utf-8")
        with suppress(FileExistsError):
            os.link(aside, marker)
    finally:
        os.unlink(aside)
    return Path(marker).read_text(encoding="utf-8")


def _listed(folder: str) -> list[str]:
    """The places there are; what somebody is making now is none yet."""
    oldest_s = time.time() - ASIDE_S
    folders = (place for place in sorted(Path(folder).glob("*/*")) if place.is_dir())
    return [str(place) for place in folders if "~" not in place.name or place.stat().st_mtime < oldest_s]
