"""`demo`: a small project with a failing test, repaired by scripted replies through the four real services.

It does not touch anything of the user's: project and home are temporary, and the model is the provider's script `demo`.
Where nothing confines commands it sets limits for itself, and says so: its commands are its own.
It succeeds only if the project's own test fails before and passes after.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from importlib.resources import as_file, files
from pathlib import Path
from typing import Final

from rich.console import Console
from rich.text import Text
from turnwright.types.v1 import settings_pb2

from turnwright_cli.changes import recorded_changes, show_changes
from turnwright_cli.exit_codes import DONE, FAILED, FailureError
from turnwright_cli.invocation import TABLES, CliSettings, Invocation
from turnwright_cli.output import console
from turnwright_cli.plain import safe_text
from turnwright_cli.session import open_session
from turnwright_cli.tasks import has_terminal, run_task
from turnwright_executor.config import ExecutorSettings
from turnwright_kit.sandbox.finding import find_sandbox
from turnwright_kit.settings import PREFIX

MODEL: Final = "demo"
RUN: Final = "demo"
VENDOR_MODEL: Final = "scripted/demo"
_SANDBOX: Final = ExecutorSettings.fields["sh_sandbox"].variables[0]
_VARIABLE: Final = f"{TABLES['models']}{MODEL}"
PROMPT: Final = "The test of this project fails. Find the bug, fix it, and show that the test passes."
TEST_TIMEOUT_S: Final = 60.0
_IGNORED: Final = shutil.ignore_patterns("__pycache__", ".*")


async def demo(_call: Invocation, *, source: Path | None) -> int:
    with _default_settings():
        scratch = Path(tempfile.mkdtemp(prefix="turnwright-demo-"))
        try:
            await _show(console(), scratch, source)
        except FailureError as error:
            # The services' own output is more helpful than this sentence.
            raise FailureError(
                error.exit_code, f"{error.message}\nProject, database and log are in {scratch}."
            ) from None
        shutil.rmtree(scratch, ignore_errors=True)
    return DONE


async def _show(out: Console, scratch: Path, source: Path | None) -> None:
    root = scratch / "project"
    with as_file(files("turnwright_cli") / "demo" / "project") as bundled:
        shutil.copytree(source or bundled, root, ignore=_IGNORED)
    settings = CliSettings(home=scratch / "home")
    if refusal := (await find_sandbox("auto", settings.home)).refusal:
        os.environ[_SANDBOX] = "limits"
        out.print(Text(f"For this demo {_SANDBOX}=limits is set. Elsewhere {refusal}.", style="yellow"))
    out.print(Text("A small project with a bug. Its own test first:", style="bold"))
    if await _own_test(out, root):
        raise FailureError(FAILED, "The project's test passes already: there is nothing to show.")
    await _work(out, root, settings)
    out.print(Text("\nThe project's own test again:", style="bold"))
    if not await _own_test(out, root):
        raise FailureError(FAILED, "The project's test still fails: the demo did not repair it.")
    out.print(Text("\nWhat changed:", style="bold"))
    async with open_session(settings, reads=()) as session:
        if project := await session.client.find_project(str(root)):
            show_changes(out, await recorded_changes(session.client, project.name, RUN))
    out.print(Text("The demo is complete: red, repaired, green.", style="bold green"))


@contextlib.contextmanager
def _default_settings() -> Iterator[None]:
    """Use the defaults, so that the user's settings cannot break the demo."""
    hidden = {name: os.environ.pop(name) for name in list(os.environ) if name.startswith(PREFIX)}
    os.environ[_VARIABLE] = VENDOR_MODEL
    try:
        yield
    finally:
        for name in (_VARIABLE, _SANDBOX):
            os.environ.pop(name, None)
        os.environ.update(hidden)


async def _work(out: Console, root: Path, cli_settings: CliSettings) -> None:
    out.print(Text(f'\nNow the model is asked: "{PROMPT}"', style="bold"))
    settings = settings_pb2.LoopSettings(model=MODEL, yolo=True, no_interaction=not has_terminal())
    run_settings = settings_pb2.RunSettings()
    exit_code = await run_task(cli_settings, str(root), PROMPT, settings=settings, run_settings=run_settings, run=RUN)
    if exit_code != DONE:
        raise FailureError(FAILED, f"The run did not finish (it would exit with {exit_code}).")


async def _own_test(out: Console, root: Path) -> bool:
    """Run the project's test and show its output. Raises FailureError if it does not end in time."""
    out.print(Text("$ python3 -m unittest", style="dim"))
    # Bytecode files would count as new files, and may be stale within a second of an edit.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    test = partial(subprocess.run, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    command = (sys.executable, "-m", "unittest")
    try:
        done = await asyncio.to_thread(
            test, command, cwd=root, env=environment, timeout=TEST_TIMEOUT_S, text=True, errors="replace"
        )
    except subprocess.TimeoutExpired:
        raise FailureError(FAILED, f"The project's test did not end within {TEST_TIMEOUT_S:g} s.") from None
    passed = done.returncode == 0
    out.print(Text(safe_text(done.stdout).strip(), style="green" if passed else "red"))
    return passed
