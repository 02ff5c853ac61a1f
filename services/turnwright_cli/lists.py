"""`runs show` and `runs abort`, as text or as JSON lines."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterable, Mapping, Sequence
from textwrap import indent
from typing import Final

from click import UsageError
from rich.console import Console
from rich.text import Text
from turnwright.runs.v1 import run_service_pb2
from turnwright.types.v1 import (
    budget_pb2,
    entry_pb2,
    loop_pb2,
    proposal_pb2,
    run_pb2,
    settings_pb2,
    turn_pb2,
    usage_pb2,
)

from turnwright_cli.changes import recorded_changes, show_recorded
from turnwright_cli.effects import effect_lines, how_to_accept, is_cut
from turnwright_cli.exit_codes import DONE, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import answer, console, enum_word, put, show_lines
from turnwright_cli.plain import safe_line, safe_text
from turnwright_cli.plans import plan_title
from turnwright_cli.records import record_line
from turnwright_cli.run_list import TITLE_CHARS, found_run, open_run
from turnwright_cli.session import open_project
from turnwright_cli.status_words import loop_words, reason_sentence, run_words, turn_words, turns_words, usage_words
from turnwright_client import Client
from turnwright_core import runs
from turnwright_core.errors import MissingError
from turnwright_core.limits import PAGE_SIZE_MAX
from turnwright_core.wire.times import seconds_from_pb

_INTERRUPTED = (
    "No executor is working on it. It continues with `turnwright serve`, or with the next command that gives it a "
    "task, decides or aborts it."
)
_UNDER_WAY = (runs.RUNNING, runs.PROPOSED)
"""Statuses of a loop that can be aborted."""


async def show_run(call: Invocation, *, run: str, full: bool, turns: bool, diff: bool, packet: int) -> int:
    """One run: its loops and plans, with `turns` its turns and their commands, and what waits for a decision.

    With `diff` or `packet` only what its commands changed in files, or what the model was sent in that turn.
    """
    if turns + diff + bool(packet) > 1:
        raise UsageError("Use only one of --turns, --diff and --packet.")
    as_json = call.as_json
    async with open_project(call, reads=True) as (client, name):
        most = PAGE_SIZE_MAX if turns else 0
        found = await found_run(client, name, run, turns_max=most, history_max=most if as_json else 0)
        run = found.run.run
        if diff:
            return show_recorded(call, await recorded_changes(client, name, run))
        if packet:
            return show_packet(call, await sent_packet(client, name, run, packet))
        shows = client.list_entries(name, run, RECORDS) if turns and not as_json else None
        records = [entry async for entry in shows] if shows else []
        plans = [] if as_json else [plan async for plan in client.list_plans(name, run)]
        waits = found.run.status == runs.PROPOSED
        pending = await _pending(client, name, run) if waits else ()
    if as_json:
        return show_lines([found])
    out = console()
    above = found.run.parent
    origin = f", the agent {safe_line(above.name)} of {safe_line(above.run)}" if above.run else ""
    branch = f", branch {found.run.place.branch}" if found.run.HasField("place") else ""
    put(out, Text(f"{safe_line(found.run.run)}: {run_words(found.run)}, {turns_words(found.run.turn)}{origin}{branch}"))
    if found.run.status == runs.RUNNING and not found.run.held:
        put(out, Text(_INTERRUPTED, style="yellow"))
    put(out, Text(f"spent {spend_words(found.spent)}; budget {budget_words(found.run.settings.budget)}"))
    for loop in reversed(found.loops):
        put(out, Text(_loop_line(loop, found.run)))
        if loop.summary:
            put(out, Text(indent(safe_text(loop.summary), "   ")))
    for plan in plans:
        put(out, Text(plan_title(plan)))
    if turns:
        show_turns(out, found, records)
    _show_pending(pending, whole=full)
    return 0


async def _pending(client: Client, project: str, run: str) -> list[tuple[str, proposal_pb2.Proposal]]:
    """What waits for a decision in a run and its agents, each with its run."""
    waiting = [(one.run, one.proposal.path) async for one in client.list_proposals(project, run)]
    return [(alias, (await client.get_proposal(project, alias, path)).proposal) for alias, path in waiting]


def _show_pending(pending: Sequence[tuple[str, proposal_pb2.Proposal]], *, whole: bool) -> None:
    out = console()
    whole = whole or not out.is_terminal
    for alias, proposal in pending:
        for part in effect_lines(proposal, styled=out.is_terminal, whole=whole):
            put(out, part)
        if not whole and is_cut(proposal):
            put(out, Text(f"See all of it with: turnwright runs show {alias} --full"))
        command = f"turnwright resolve {alias} {safe_line(proposal.path)} {how_to_accept(proposal)} (or --reject)"
        put(out, Text(f"Decide with: {command}"))


def _loop_line(loop: loop_pb2.Loop, run: run_pb2.Run) -> str:
    sentence = reason_sentence(loop.reason)
    # Whether anybody works on a loop that has not ended is known of its run.
    stands = run_words(run) if loop.status == runs.RUNNING else loop_words(loop)
    parts = [stands, turns_words(loop.turns), *usage_words(loop.usage)]
    reason = f": {sentence}" if sentence else ""
    return f"{loop.sequence}. {safe_line(loop.prompt, TITLE_CHARS)}: {', '.join(parts)}{reason}"


async def abort_run(call: Invocation, *, run: str) -> int:
    async with open_run(call, run) as (client, name, found):
        run = found.run
        aborted = await client.abort(name, run)
        now = aborted.run
        if now.loop.status in _UNDER_WAY:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(call.settings.rpc_timeout_s):
                    await client.wait_loop(name, run, now.loop.sequence, aborted.event_cursor)
            now = (await client.get_run(name, run)).run
    goes_on = now.loop.sequence == aborted.run.loop.sequence and now.loop.status in _UNDER_WAY
    note = "; an abort was requested, and it has not stopped yet" if goes_on else ""
    return answer(call, [now], f"{safe_line(now.run)}: {run_words(now)}{note}")


def budget_words(budget: budget_pb2.Budget) -> str:
    parts = [
        f"{budget.turns_max} turns" if budget.turns_max else "",
        f"{budget.tokens_max:,} tokens" if budget.tokens_max else "",
        f"${budget.cost_usd_max:g}" if budget.cost_usd_max else "",
        f"{seconds_from_pb(budget.wall_max):g} s" if budget.HasField("wall_max") else "",
    ]
    return ", ".join(filter(None, parts)) or "no limit"


def spend_words(spent: budget_pb2.Spend) -> str:
    """The spend in one line; tokens that no vendor reported, such as those of lost calls, are named."""
    lost = f" ({spent.lost_tokens:,} estimated)" if spent.lost_tokens else ""
    cost = f", ${spent.cost_usd:.4f}" if spent.cost_usd else ""
    return f"{turns_words(spent.turns)}, {spent.tokens:,} tokens{lost}{cost}, {seconds_from_pb(spent.wall):.1f} s"


RECORDS: Final = "log://**"
"""Pattern of the records of commands."""


def show_turns(out: Console, answer: run_service_pb2.GetRunResponse, entries: Iterable[entry_pb2.Entry]) -> None:
    icons = "utf" in (out.encoding or "").lower()
    records = sorted(entries, key=lambda entry: entry.position)
    oldest = answer.turns[-1].number if answer.turns else 0
    if oldest > 1 and not answer.run.HasField("forked_from"):
        put(out, Text(f"({oldest - 1} earlier turns are not shown)", style="dim"))
    for turn in reversed(answer.turns):
        put(out, Text(_title(turn), style="bold"))
        for entry in records:
            if entry.turn == turn.number:
                put(out, record_line(entry, icons=icons))


def call_words(calls: settings_pb2.CallStyle.ValueType) -> str:
    return enum_word(settings_pb2.CallStyle.DESCRIPTOR, calls) or "tags"


_SOURCES: Final[Mapping[int, str]] = {
    usage_pb2.TOKEN_SOURCE_ESTIMATE: "an estimate",
    usage_pb2.TOKEN_SOURCE_TOKENIZER: "its tokenizer",
    usage_pb2.TOKEN_SOURCE_VENDOR: "its vendor",
    usage_pb2.TOKEN_SOURCE_USAGE: "the turn before",
}


def _title(turn: turn_pb2.Turn) -> str:
    parts = [safe_line(turn.request.model)]
    if turn.request.calls == settings_pb2.CALL_STYLE_NATIVE:
        parts.append("native calls")
    if turn.HasField("result"):
        result = turn.result
        if source := _SOURCES.get(result.token_source):
            parts.append(f"{round(result.packet_tokens * result.calibration):,} tokens expected by {source}")
        reason = f" {safe_line(result.reason)}" if result.reason else ""
        parts += [*turn_words(turn), f"{result.status}{reason}"]
    else:
        parts.append("open")
    return f"turn {turn.number}: {', '.join(parts)}"


ROLES = ("system", "user")
"""Schemes of the messages of a packet."""


async def sent_packet(client: Client, project: str, run: str, turn: int) -> list[entry_pb2.Entry]:
    """The messages of the packet. Raises FailureError if none is stored."""
    try:
        return [await client.get_entry(project, run, f"{role}://{turn}") for role in ROLES]
    except MissingError:
        raise usage(
            f"No packet of turn {turn} is stored. `turnwright runs show {run} --turns` lists the turns."
        ) from None


def show_packet(call: Invocation, messages: list[entry_pb2.Entry]) -> int:
    """Titled on a terminal; in a pipe the texts alone."""
    if call.as_json:
        return show_lines(messages)
    out = console()
    for role, message in zip(ROLES, messages, strict=True):
        if out.is_terminal:
            put(out, Text(f"{role} message, {message.body_size_bytes:,} bytes", style="bold"))
            put(out, Text(safe_text(message.body)))
        else:
            out.file.write(message.body)
    return DONE
