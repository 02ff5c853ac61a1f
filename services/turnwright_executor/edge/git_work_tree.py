"""What git says of the files below a folder, each answer by a child process, and what those answers depend on."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Final

from turnwright_core.values import frozen

_GIT: Final = ("git", "-c", "core.fsmonitor=false", "-c", "core.quotePath=false")
_ANSWERS: Final = (0, 1)
"""Exit codes of an answer; `check-ignore` says 1 where nothing is ignored."""


@frozen
class Inputs:
    """Files, there or not, on which git's answers depend."""

    index: str
    """What is tracked; each command that adds something writes it."""
    rules: tuple[str, ...]
    """Who says what is ignored, and who says who says it."""


class GitWorkTree:
    """The part of a work tree below a root. Nothing that a repository configures is run."""

    def __init__(self, root: str, timeout_s: float) -> None:
        """Each question is given up after so many seconds."""
        self._root = root
        self._timeout_s = timeout_s

    def files(self) -> list[str] | None:
        """What is tracked, and what is neither tracked nor ignored; None outside of a work tree.

        Raises OSError where git is not installed, subprocess.TimeoutExpired where it does not answer.
        """
        said = self._ask("ls-files", "-z", "--cached", "--others", "--exclude-standard")
        return None if said is None else _names(said)

    def ignored(self, folders: Collection[str]) -> frozenset[str]:
        """Those of the folders into which git does not look for files to add. Raises as `files`."""
        asked = b"".join(os.fsencode(folder) + b"\0" for folder in folders)
        said = self._ask("check-ignore", "-z", "--stdin", stdin=asked) if asked else b""
        return frozenset(_names(said or b""))

    def inputs(self) -> Inputs | None:
        """What decides beside the `.gitignore` files below the root; None where git tells not. Raises as `files`."""
        where = self._ask("rev-parse", "--show-toplevel", "--git-path", "index", "--git-path", "info/exclude")
        lines = os.fsdecode(where or b"").splitlines()
        if len(lines) != 3:
            # Outside of a work tree, or below a folder with a line break in its name.
            return None
        top, index, exclude = (os.path.join(self._root, line) for line in lines)  # noqa: PTH118
        above = [os.path.join(folder, ".gitignore") for folder in _folders_between(self._root, top)]  # noqa: PTH118
        return Inputs(index, (exclude, *above, *self._configuration(top), *_usual_files()))

    def _configuration(self, top: str) -> Iterator[str]:
        """The files that configure git here, and those that they name as lists of what is ignored."""
        said = _names(self._ask("config", "--list", "--show-origin", "-z") or b"")
        for origin in {origin.removeprefix("file:") for origin in said[::2] if origin.startswith("file:")}:
            yield from (os.path.join(base, origin) for base in {self._root, top})  # noqa: PTH118
        for value in said[1::2]:
            if value.startswith("core.excludesfile\n"):
                yield os.path.join(top, os.path.expanduser(value.partition("\n")[2]))  # noqa: PTH111, PTH118

    def _ask(self, *question: str, stdin: bytes = b"") -> bytes | None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        ended = subprocess.run(  # noqa: S603 - no shell, and no option comes from outside
            [*_GIT, "-C", self._root, *question],
            input=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=self._timeout_s,
            env=environment | {"GIT_OPTIONAL_LOCKS": "0", "LC_ALL": "C"},
            check=False,
        )
        return ended.stdout if ended.returncode in _ANSWERS else None


def entries_above(root: str) -> list[str]:
    """Where git looks for a repository that a folder belongs to: `.git` in it and in each folder above."""
    return [str(folder / ".git") for folder in (Path(root), *Path(root).parents)]


def _names(said: bytes) -> list[str]:
    return [os.fsdecode(name) for name in said.split(b"\0") if name]


def _folders_between(root: str, top: str) -> Iterator[str]:
    """The folders above a root up to the top of its work tree."""
    for folder in Path(root).parents:
        if not folder.is_relative_to(top):
            return
        yield str(folder)


def _usual_files() -> tuple[str, ...]:
    """Where configuration and rules lie that may be written later."""
    home = Path(os.environ.get("XDG_CONFIG_HOME") or Path("~/.config").expanduser()) / "git"
    return "/etc/gitconfig", str(Path("~/.gitconfig").expanduser()), str(home / "config"), str(home / "ignore")
