"""Clones of git repositories as projects, made with the operator's credentials.

A clone is `{folder}/{key}/{name}`, and the key stands for its URL and branch. It is made aside and renamed: where its
key is, it is whole. Git fetches with the credentials and the network, and then checks out what it has got without
either. It works in the sandbox of commands, which never see the folder with the credentials. What git or the server
says is told by what kind of problem it is: their words may have a credential in them.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Final, TypeVar

from turnwright_core.checks import invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.git_urls import GitUrl, check_ref, git_url, git_urls
from turnwright_executor.files.file_threads import on_files, on_trees
from turnwright_executor.shell.confined_git import ASIDE_S, ConfinedGit, GitEnd, appear
from turnwright_executor.shell.shell import ShellLimits
from turnwright_kit.logs import get_logger
from turnwright_kit.sandbox.readable import MARKER_FOLDER

CLONES_MAX: Final = 4
"""Clones that are being made at once; more are refused."""

ANSWER_S: Final = 20.0
"""Seconds that a server has to say what branches it has."""

FILES_MAX: Final = 1_000_000
"""Files and folders of a clone: a small repository may have the same folder in a million places."""

FOLDER: Final = "projects"
"""In the home: the clones, unless TURNWRIGHT_GIT_PROJECTS names another folder."""

CREDENTIALS: Final = "git"
"""In the home: `config`, a file of git's settings with what servers ask for, and files that it names."""

_Value = TypeVar("_Value")
_NONE_SUCH: Final = 2
"""Exit code of `git ls-remote` if the server has no such branch."""
_NO_GIT: Final = 127
_TOO_LARGE: Final = 75

_ASK: Final = """
export GIT_CEILING_DIRECTORIES="${PWD%/*}" GIT_ALLOW_PROTOCOL="$protocol"
if [ -n "$credentials" ]; then export HOME="$credentials" GIT_CONFIG_GLOBAL="$credentials/config"; fi
if [ -n "$ref" ]; then set -- "refs/heads/$ref" "refs/tags/$ref"; else set -- HEAD; fi
git ls-remote -q --exit-code -- "$url" "$@" > answer
"""

_FETCH: Final = """
export GIT_CEILING_DIRECTORIES="${PWD%/*}" GIT_ALLOW_PROTOCOL="$protocol"
if [ -n "$credentials" ]; then export HOME="$credentials" GIT_CONFIG_GLOBAL="$credentials/config"; fi
rm -f answer
git clone -q --no-checkout --template= --no-recurse-submodules ${ref:+"--branch=$ref"} -- "$url" "$name"
"""

_CHECK_OUT: Final = """
export GIT_CEILING_DIRECTORIES="${PWD%/*}" GIT_ALLOW_PROTOCOL=
git -C "$name" ls-tree -r -t -l HEAD |
  awk -v bytes_max="$bytes_max" -v files_max="$files_max" -v too_large="$too_large" \\
  '{ bytes += $4; if (bytes > bytes_max || NR > files_max) { large = 1; exit } } END { exit large ? too_large : 0 }'
git -C "$name" reset -q --hard HEAD
# A marker from the repository would make the clone another project, whose id its author knows.
rm -rf -- "$name/$marker"
"""

_PROBLEMS: Final[Mapping[str, str]] = {
    r"UNPROTECTED PRIVATE KEY": "the file of its key can be read by others: its operator does `chmod 600` to it",
    r"IDENTIFICATION HAS CHANGED": "the server has another key than the one that the executor knows: ask its operator "
    "whether that is so, before its new key is put into the file of known hosts (docs/places.md)",
    r"Authentication failed|could not read (Username|Password)|error: 401|Permission denied": "the server does not "
    "take the credentials that this executor has for it. Its operator puts others into `git/config` in its home "
    "(docs/places.md)",
    r"error: 403": "the server does not allow it with the credentials that this executor has (docs/places.md)",
    r"Host key verification failed": "the executor does not know the server's key: its operator puts it into the "
    "file of known hosts (docs/places.md)",
    r"redirect|error: 30\d": "the server says that it is elsewhere now: name its new URL",
    r"Could not resolve|Failed to connect|Couldn't connect|Connection (refused|reset|timed out)|unreachable": (
        "its server cannot be reached from this executor: check the host in the URL, and the network"
    ),
    r"SSL|TLS|certificate": "the certificate of the server is not trusted: `http.sslCAInfo` in `git/config` in the "
    "home of the executor says by whom it may be (docs/places.md)",
    # Of a process that was killed for a file that is too long, git tells nothing else.
    r"index-pack|File too large": "it is larger than TURNWRIGHT_GIT_MB_MAX of the executor, or its end is missing",
    r"No space left|Disk quota exceeded": "the disk of the executor is full",
    r"not found|error: 404|does not appear to be a git repository|does not exist": "there is no such repository, or "
    "none for these credentials: check the URL",
    r"Could not read from remote repository": "it is not shown to this executor: check URL and credentials",
    r"transport '.*' not allowed": "git on this host does not have this protocol",
}
"""What git says, and what we say of it."""

_log = get_logger("clones")


class Clones:
    """Makes the clones of this host."""

    def __init__(self, git: ConfinedGit, home: str, settings: ExecutorSettings) -> None:
        """`home` has no links in it."""
        self._git = git
        self._settings = settings
        self._allowed = git_urls(settings.git_urls)
        self._credentials = f"{home}/{CREDENTIALS}"
        given = os.path.expanduser(settings.git_projects)
        self._folder = os.path.realpath(given) if given else f"{home}/{FOLDER}"
        self._making: dict[str, asyncio.Task[None]] = {}

    async def clone(self, text: str, ref: str) -> str:
        """The directory of a repository, made if it is not there; who goes away before leaves it to the next one.

        Raises INVALID_FIELD, WORKSPACE_UNAVAILABLE, QUEUE_FULL, OSError.
        """
        url = _checked("git_url", git_url, text)
        ref = _checked("git_ref", check_ref, ref)
        if not any(map(url.is_below, self._allowed)):
            problem = "the operator does not allow this URL: TURNWRIGHT_GIT_URLS of the executor says how those begin"
            raise _unavailable(url, problem)
        key = hashlib.sha256(f"{url.text}\n{ref}".encode()).hexdigest()[:32]
        task = self._making.get(key)
        if task is None:
            if len(self._making) >= CLONES_MAX:
                message = f"This executor is making {CLONES_MAX} clones, and makes no more at once: repeat in a minute."
                raise fault(Reason.QUEUE_FULL, message, queue="clones", limit=CLONES_MAX)
            task = self._making[key] = asyncio.create_task(self._make(url, ref, key), name="clone")
            task.add_done_callback(lambda done: (self._making.pop(key), done.cancelled() or done.exception()))
        await asyncio.shield(task)
        return f"{self._folder}/{key}/{url.name}"

    async def _make(self, url: GitUrl, ref: str, key: str) -> None:
        if await on_files(lambda _: os.path.isdir(f"{self._folder}/{key}")):
            return
        aside = f"{self._folder}/{key}~{token_hex(4)}"
        try:
            await on_files(lambda _: os.makedirs(aside, mode=0o700))
            problem = await self._fetched(url, ref, aside)
            if problem:
                _log.warning("project_not_cloned", url=url.text, problem=problem)
                raise _unavailable(url, problem)
            await on_files(lambda _: appear(aside))
        except OSError as error:
            raise _unavailable(url, error.strerror or "the directory for clones cannot be written") from error
        finally:
            await on_trees(lambda _: shutil.rmtree(aside, ignore_errors=True))
        _log.info("project_cloned", url=url.text)

    async def _fetched(self, url: GitUrl, ref: str, aside: str) -> str:
        """Fetch and check out; returns why that failed, or the empty text."""
        settings = self._settings
        most_s, most_mb = settings.git_deadline_s, settings.git_mb_max
        limits = ShellLimits(file_mb=most_mb, memory_mb=settings.sh_memory_mb_max)
        ends_s = time.monotonic() + most_s
        known = await on_files(lambda _: _existing(self._credentials))
        words = {
            "url": url.text,
            "protocol": url.protocol,
            "ref": ref,
            "name": url.name,
            "credentials": known,
            "bytes_max": str(most_mb * 1024 * 1024),
            "files_max": str(FILES_MAX),
            "too_large": str(_TOO_LARGE),
            "marker": MARKER_FOLDER,
        }
        shown = tuple(filter(None, (known, url.path if url.protocol == "file" else "")))
        run = partial(self._git.run, folder=aside, words=words, limits=limits)
        answer_s = min(ANSWER_S, most_s)
        end = await run(_ASK, timeout_s=answer_s, readable=shown, network=True)
        if end.timed_out:
            return f"its server has not answered within {answer_s:g} s: check the host in the URL, or repeat"
        if end.exit_code == _NONE_SUCH and not end.output.strip():
            return f"it has no branch or tag {ref}" if ref else "its HEAD has no commit: name a branch, or push one"
        if end.exit_code == 0:
            end = await run(_FETCH, timeout_s=max(1.0, ends_s - time.monotonic()), readable=shown, network=True)
        if end.exit_code == 0:
            end = await run(_CHECK_OUT, timeout_s=max(1.0, ends_s - time.monotonic()))
        if end.timed_out:
            return f"it took more than {most_s:g} s: TURNWRIGHT_GIT_DEADLINE_S of the executor allows more"
        return _problem(end)

    async def sweep(self) -> None:
        """Remove what was not finished, of executors that are no more. Raises OSError."""
        for aside in await on_files(lambda _: _abandoned(self._folder)):
            await on_trees(partial(_remove, aside))

    async def close(self) -> None:
        tasks = list(self._making.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def _checked(field: str, check: Callable[[str], _Value], text: str) -> _Value:
    try:
        return check(text)
    except ValueError as error:
        raise invalid(field, f"{field} {error}.") from None


def _problem(end: GitEnd) -> str:
    if end.exit_code == 0:
        return ""
    if end.exit_code == _NO_GIT:
        return "git is not installed on the executor's host"
    if end.exit_code == _TOO_LARGE:
        return f"its files are larger than TURNWRIGHT_GIT_MB_MAX of the executor, or with folders more than {FILES_MAX}"
    found = (problem for pattern, problem in _PROBLEMS.items() if re.search(pattern, end.output, re.IGNORECASE))
    return next(found, f"git failed with exit code {end.exit_code}. Its operator sees why with `git ls-remote` there")


def _unavailable(url: GitUrl, problem: str) -> TurnwrightError:
    return fault(Reason.WORKSPACE_UNAVAILABLE, f"{url.text} could not be cloned: {problem}.", project="", root=url.text)


def _existing(folder: str) -> str:
    """The folder with the credentials, if it has any, without links in its path: a secret may be mounted by one."""
    return os.path.realpath(folder) if os.path.exists(f"{folder}/config") else ""


def _remove(folder: str, _check: object) -> None:
    shutil.rmtree(folder, ignore_errors=True)


def _abandoned(folder: str) -> list[str]:
    oldest_s = time.time() - ASIDE_S
    return [str(one) for one in Path(folder).glob("*~*") if one.stat().st_mtime < oldest_s]
