"""`policy test`: replays the verdicts of stored turns with other voters, and shows where they would differ.

Nothing is written: the chain runs in this process, on what a watcher may read.
"""

from __future__ import annotations

import contextlib
import inspect
import json
import sys
from collections.abc import AsyncIterator, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from click import UsageError
from rich.text import Text

from turnwright_cli.exit_codes import DIFFERENT, DONE, FAILED, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import complain, console, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_session
from turnwright_client import Client, RunView
from turnwright_core.json_text import JsonObject
from turnwright_core.wire.entries import entry_from_pb
from turnwright_core.wire.runs import turn_from_pb
from turnwright_executor.clients.replaying import ReplayedVerdict, StoredTurns, replay, stored_turns
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.verdict import Limits
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.plugins import load_plugins
from turnwright_executor.hooks.points import TURN_VERDICT
from turnwright_executor.hooks.registry import Registry
from turnwright_executor.turn.judging import limits_of
from turnwright_kit.plugins import HOOKS, UNVERSIONED, Plugin, import_object, register
from turnwright_kit.settings import load

TURNS_MAX: Final = 1000
"""Maximum number of a run's latest turns that are replayed."""


async def try_policy(call: Invocation, *, hook: Sequence[str], run: Sequence[str], every: bool) -> int:
    """Try voters (`module:function`) over runs (`RUN`, `PROJECT/RUN`, or `every` one of the project).

    The exit code says whether anything would differ. Raises SettingsError, UsageError.
    """
    if every == bool(run):
        raise UsageError("Say --run RUN, or --all.")
    executor = load(ExecutorSettings)
    hooks = _hooks(executor, hook)
    hooks.failures = []
    replayed: list[ReplayedVerdict] = []
    incomplete = 0
    async with open_session(call.settings) as session:
        async for address in _addresses(session.client, call, run):
            stored = await read_stored(session.client, address, limits_of(executor))
            replayed += await replay(hooks, stored.verdicts)
            incomplete += stored.incomplete
    _show(replayed, incomplete, as_json=call.as_json)
    failed = {(one.plugin, one.name): error for one, error in hooks.failures}
    for (plugin, name), error in failed.items():
        complain(f"the voter {name} of {plugin} failed, and did not vote: {type(error).__name__}: {error}")
    if failed:
        return FAILED
    return DIFFERENT if any(one.differs for one in replayed) else DONE


def _hooks(settings: ExecutorSettings, targets: Sequence[str]) -> Hooks:
    """The executor's chain with these settings, plus these functions."""
    # A voter is mostly tried where it is written, and a console script does not look there by itself.
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    registry = load_plugins(settings.hooks, settings.tools)
    for target in targets:
        plugin = Plugin(target, target, UNVERSIONED, partial(_register_of, target))
        register(plugin, registry, "--hook", HOOKS.setting)
    return Hooks(registry, settings.hook_deadline_s)


def _register_of(target: str) -> object:
    """The named `register` function; a function with two parameters is itself a voter."""
    function = import_object(target)
    if len(inspect.signature(function).parameters) != 2:
        return function

    def register_voter(registry: Registry) -> None:
        registry.filter(TURN_VERDICT, function)

    return register_voter


async def _addresses(client: Client, call: Invocation, runs: Sequence[str]) -> AsyncIterator[RunAddress]:
    named = [name.partition("/") for name in runs]
    if any(separator and not (project and run) for project, separator, run in named):
        raise usage("--run: name a run as RUN, or as PROJECT/RUN.")
    own = ""
    if not named or not all(separator for _, separator, _ in named):
        own = (await client.init_project(call.root)).name
    for first, separator, second in named:
        yield RunAddress(first, second) if separator else RunAddress(own, first)
    if not named:
        async for run in client.list_runs(own):
            yield RunAddress(own, run.run)


async def read_stored(client: Client, address: RunAddress, limits: Limits) -> StoredTurns:
    """The verdicts of a run's latest turns, read as a watcher reads. Raises TurnwrightError."""
    turns = (await client.get_run(address.project, address.run, TURNS_MAX)).turns
    view = RunView()
    async with contextlib.aclosing(client.watch(address.project, address.run)) as events:
        async for event in events:
            view.apply(event)
            if view.run is not None:
                break
    entries = [entry_from_pb(entry) for entry in view.timeline()]
    return stored_turns(address, map(turn_from_pb, turns), entries, limits)


def _show(replayed: Sequence[ReplayedVerdict], incomplete: int, *, as_json: bool) -> None:
    different = [one for one in replayed if one.differs]
    runs = len({(one.stored.facts.at.project, one.stored.facts.at.run) for one in replayed})
    if as_json:
        for one in different:
            write_line(json.dumps(_as_dict(one)))
        counts = {"verdicts": len(replayed), "runs": runs, "different": len(different), "left_out": incomplete}
        write_line(json.dumps(counts))
        return
    out = console()
    for one in different:
        at = one.stored.facts.at
        was, now = _words(one.stored.status, one.stored.reason), _words(one.status, one.reason)
        out.print(Text(f"{safe_line(at.run)} turn {at.turn}: {was} -> {now}"))
    out.print(Text(f"{len(different)} of {len(replayed)} verdicts would differ, in {runs} runs."))
    if incomplete:
        out.print(Text(f"{incomplete} turns are left out: some of their records were removed."))


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
