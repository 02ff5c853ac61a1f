"""Finding what can confine commands on this host, by trying it. Source: architecture 6; decision C30; ADR 69."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from turnwright_kit.sandbox import landlock
from turnwright_kit.sandbox.environment import allowed_environment
from turnwright_kit.sandbox.readable import readable
from turnwright_kit.sandbox.sandbox import SECRETS, Backend, Sandbox, SandboxChoice, expanded
from turnwright_kit.sandbox.starting import ConfinedCommand, exit_of

PROBE_S: Final = 30.0
"""Timeout for testing whether a sandbox works on this host, in seconds; a busy host needs some of them."""

_REFUSAL: Final = (
    "commands do not run here, because nothing confines them ({problems}). Install bubblewrap (bwrap) and let this "
    "host use user namespaces, or use Linux 6.12 or later with Landlock; or set TURNWRIGHT_SH_SANDBOX=limits, and "
    "accept that commands can read and change what the executor can"
)


class SandboxMissingError(Exception):
    """The settings require a sandbox that this host does not support. The text says what to do."""


async def find_sandbox(
    choice: SandboxChoice, home: Path, writable: Sequence[str] = (), more: Sequence[str] = (), program: str = "bwrap"
) -> Sandbox:
    """The sandbox of this host. Raises SandboxMissingError if the settings require one that does not work.

    `home` is hidden from commands; `writable` are additional writable directories, `more` additional readable paths;
    `~` is the user's own directory.
    """
    if choice == "limits":
        return Sandbox()
    shared = expanded(writable)
    shown = await asyncio.to_thread(readable, allowed_environment(os.environ), expanded(more), shared)
    lists = Sandbox(hidden=(str(home), *expanded(SECRETS)), readable=shown, writable=shared)
    problems = []
    if choice != "landlock":
        found = shutil.which(program) or ""
        sandbox = replace(lists, backend=Backend.BUBBLEWRAP, program=found)
        problem = await _problem(sandbox) if found else "it is not installed"
        if not problem:
            return sandbox
        problems.append(f"bubblewrap: {problem}")
    if choice != "bubblewrap":
        sandbox = replace(lists, backend=Backend.LANDLOCK)
        problem = landlock.problem() or await _problem(sandbox)
        if not problem:
            return sandbox
        problems.append(f"Landlock: {problem}")
    refusal = _REFUSAL.format(problems="; ".join(problems))
    if choice != "auto":
        raise SandboxMissingError(refusal)
    return Sandbox(Backend.NONE, refusal=refusal)


async def _problem(sandbox: Sandbox) -> str:
    """Why the sandbox does not work here; empty if it does."""
    environment = allowed_environment(os.environ)
    nothing = ConfinedCommand(("/bin/sh", "-c", ":"), "/usr", environment, read_only=True, network=False)
    try:
        exit_code, complaint = await exit_of(nothing, sandbox, PROBE_S)
    except OSError as error:
        return f"it fails here: {error.strerror}"
    if exit_code is None:
        return f"it did not answer within {PROBE_S:g} s"
    return "" if exit_code == 0 else f"it fails here: {complaint.strip()[:200]}"
