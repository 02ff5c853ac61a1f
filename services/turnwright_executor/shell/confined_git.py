"""Git in the sandbox of commands: hooks, filters and configuration are what models or strangers have written."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_executor.shell.shell import LocalShell, ShellLimits
from turnwright_kit.sandbox.sandbox import Sandbox

ASIDE_S: Final = 3600
"""Seconds after which a folder that was made aside and not finished is nobody's any more."""

UNLIMITED: Final = ShellLimits(file_mb=0)
"""For repositories that are here already: as large as they are."""

_SETTINGS: Final = (
    ("safe.directory", "*"),
    ("core.hooksPath", os.devnull),
    ("core.fsmonitor", "false"),
    ("core.quotePath", "false"),
    ("gc.auto", "0"),
    # Nothing is fetched from another server than the one that was named.
    ("http.followRedirects", "false"),
    ("submodule.recurse", "false"),
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


class GitEnd(Struct, frozen=True):
    """How a script has ended."""

    exit_code: int
    timed_out: bool
    output: str
    """What git has said; lines of the other side are among it."""


class ConfinedGit:
    """Runs scripts with git."""

    def __init__(self, sandbox: Sandbox, environment: Mapping[str, str]) -> None:
        self._sandbox = sandbox
        self._environment = {**environment, **_ENVIRONMENT}

    async def run(
        self,
        script: str,
        folder: str,
        words: Mapping[str, str],
        timeout_s: float,
        ends_s: Callable[[], float] = lambda: inf,
        *,
        readable: tuple[str, ...] = (),
        network: bool = False,
        limits: ShellLimits = UNLIMITED,
    ) -> GitEnd:
        """Run a script in a folder, with `words` as its variables. Raises OSError.

        What is readable beside the folder is shown as a whole: commands can put links into it, and none in its place.
        """
        output: list[str] = []

        async def on_output(_channel: int, text: str) -> None:
            output.append(text)

        sandbox = replace(self._sandbox, inside=(*self._sandbox.inside, *readable))
        shell = LocalShell(folder, limits, self._environment, sandbox=sandbox, ends_s=ends_s)
        values = "".join(f"{name}={shlex.quote(value)}\n" for name, value in words.items())
        end = await shell.run(f"set -e\n{values}{script}", timeout_s, on_output, network=network)
        return GitEnd(end.exit_code, end.timed_out, "".join(output))


def appear(aside: str) -> None:
    """Give a folder that was made aside its name, unless another executor has been faster."""
    folder = aside.rpartition("~")[0]
    try:
        os.rename(aside, folder)
    except OSError:
        if not os.path.isdir(folder):
            raise
