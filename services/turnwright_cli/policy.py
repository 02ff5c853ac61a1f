"""`policy backtest` with voters: replays the verdicts of stored turns, and shows where they would differ.

Nothing is written: the chain runs in this process, on what a watcher may read.
"""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Final

from rich.text import Text
from turnwright_values.types import Entry, Turn

from turnwright_cli.exit_codes import DIFFERENT, DONE, FAILED, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import complain, console, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_session
from turnwright_client import Client, RunView
from turnwright_core.json_text import JsonObject
from turnwright_core.wire.entries import entry_from_pb
from turnwright_core.wire.runs import turn_from_pb
from turnwright_executor.clients.replaying import Replay, ReplayedVerdict
from turnwright_executor.config import ExecutorSettings
from turnwright_kit.settings import load

TURNS_MAX: Final = 1000
"""Maximum number of a run's latest turns that are replayed."""


async def try_voters(call: Invocation, *, hook: Sequence[str], run: Sequence[str]) -> int:
    """Try voters (`module:function`) over runs (`RUN`, `PROJECT/RUN`; none: every one of the project).

    The exit code says whether anything would differ. Raises SettingsError, UsageError.
    """
    # A voter is mostly tried where it is written, and a console script does not look there by itself.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    replay = Replay(load(ExecutorSettings), hook)
    async with open_session(call.settings) as session:
        async for project, name in named_runs(session.client, call, run):
            await replay.add_run(project, name, *await read_turns(session.client, project, name))
    _show(replay, as_json=call.as_json)
    failed = {(one.plugin, one.name): error for one, error in replay.failures}
    for (plugin, name), error in failed.items():
        complain(f"the voter {name} of {plugin} failed, and did not vote: {type(error).__name__}: {error}")
    if failed:
        return FAILED
    return DIFFERENT if any(one.differs for one in replay.verdicts) else DONE


async def named_runs(client: Client, call: Invocation, runs: Sequence[str]) -> AsyncIterator[tuple[str, str]]:
    """The project and the alias of each run."""
    named = [name.partition("/") for name in runs]
    if any(separator and not (project and run) for project, separator, run in named):
        raise usage("--run: name a run as RUN, or as PROJECT/RUN.")
    own = ""
    if not named or not all(separator for _, separator, _ in named):
        own = (await client.init_project(call.root)).name
    for first, separator, second in named:
        yield (first, second) if separator else (own, first)
    if not named:
        async for run in client.list_runs(own):
            yield own, run.run


async def read_turns(client: Client, project: str, run: str) -> tuple[list[Turn], list[Entry]]:
    """A run's latest turns and its timeline, read as a watcher reads. Raises TurnwrightError."""
    turns = (await client.get_run(project, run, TURNS_MAX)).turns
    view = RunView()
    async with contextlib.aclosing(client.watch(project, run)) as events:
        async for event in events:
            view.apply(event)
            if view.run is not None:
                break
    return list(map(turn_from_pb, turns)), list(map(entry_from_pb, view.timeline()))


def _show(replay: Replay, *, as_json: bool) -> None:
    different = [one for one in replay.verdicts if one.differs]
    total, left_out = len(replay.verdicts), replay.incomplete
    runs = len({(one.stored.facts.at.project, one.stored.facts.at.run) for one in replay.verdicts})
    if as_json:
        for one in different:
            write_line(json.dumps(_as_dict(one)))
        counts = {"verdicts": total, "runs": runs, "different": len(different), "left_out": left_out}
        write_line(json.dumps(counts))
        return
    out = console()
    for one in different:
        at = one.stored.facts.at
        was, now = _words(one.stored.status, one.stored.reason), _words(one.status, one.reason)
        out.print(Text(f"{safe_line(at.run)} turn {at.turn}: {was} -> {now}"))
    out.print(Text(f"{len(different)} of {total} verdicts would differ, in {runs} runs."))
    if left_out:
        out.print(Text(f"{left_out} turns are left out: some of their records were removed."))


def _as_dict(one: ReplayedVerdict) -> JsonObject:
    at = one.stored.facts.at
    return {
        "project": at.project,
        "run": at.run,
        "loop": at.loop,
        "turn": at.turn,
        "was": {"status": one.stored.status, "reason": one.stored.reason},
        "would_be": {"status": one.status, "reason": one.reason},
    }


def _words(status: int, reason: str) -> str:
    return safe_line(f"{status} {reason or 'goes on'}")
