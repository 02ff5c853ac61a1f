"""What another agent gets to know of a run: how it stands, what it has answered, and what waits for a decision."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright.types.v1 import proposal_pb2, run_pb2

from turnwright_client import Client, QueuedLoop, pending_proposals
from turnwright_core import runs
from turnwright_core.text import cut_bytes
from turnwright_core.wire.run_view import RunView

SHOWN_BYTES_MAX: Final = 16_384
"""How much of a proposal is shown, in bytes."""

ReportTurn = Callable[[float, str], Awaitable[None]]
"""Gets the turn that has begun, by its number and in words."""


class WaitingEffect(Struct, frozen=True):
    """A proposal."""

    path: str
    """What `decide` names it by."""
    tool: str
    kind: str
    """`question`: it wants an answer. Else files, command, call."""
    effect: str
    """What will happen if it is accepted."""


class RunProgress(Struct, frozen=True, omit_defaults=True):
    """How a run stands."""

    run: str
    status: str
    """The word of `turnwright runs` for it."""
    title: str = ""
    turns: int = 0
    answer: str = ""
    """What the task has ended with."""
    reason: str = ""
    """Why it has ended, in a word."""
    waiting: tuple[WaitingEffect, ...] = ()
    """What waits for a decision."""
    next: str = ""
    """What to call next."""


def overview(run: run_pb2.Run) -> RunProgress:
    """What a list tells of a run."""
    return RunProgress(run.run, _word(run.status), run.title)


async def state_of(client: Client, project: str, run: str, sequence: int = 0) -> RunProgress:
    """How a run stands, with what waits in it; `sequence`: as this loop left it, 0: the latest.

    Raises TurnwrightError.
    """
    answer = await client.get_run(project, run)
    found = overview(answer.run)
    loop = next((one for one in answer.loops if sequence in (0, one.sequence)), None)
    if loop is not None:
        has_ended = loop.status in runs.LOOP_ENDED
        ended = {"answer": loop.summary, "reason": loop.reason} if has_ended else {}
        found = replace(found, status=_word(loop.status), turns=loop.turns, **ended)
    if answer.run.status == runs.PROPOSED:
        pending = await pending_proposals(client, project, answer.run.run)
        found = replace(found, waiting=tuple(map(_waiting, pending)))
        if not pending:
            found = replace(found, status=_word(runs.RUNNING))
    return replace(found, next=_next(found.status))


async def until_settled(client: Client, queued: QueuedLoop, wait_s: float, report: ReportTurn) -> None:
    """Wait until a task has ended, waits for a decision, or the time is over. Raises TurnwrightError."""
    view, reported = RunView(queued.state), 0
    with contextlib.suppress(TimeoutError):
        async with (
            asyncio.timeout(wait_s),
            contextlib.aclosing(client.watch(queued.project, queued.run, queued.cursor)) as events,
        ):
            # What waits beside something that was decided is no news.
            if await _is_settled(client, queued, queued.state):
                return
            async for event in events:
                view.apply(event)
                is_news = event.HasField("run_state") or (event.HasField("snapshot") and event.snapshot.last)
                if is_news and view.run is not None and await _is_settled(client, queued, view.run):
                    return
                if event.HasField("stream_started") and event.stream_started.turn > reported:
                    reported = event.stream_started.turn
                    await report(float(reported), f"turn {reported}")


async def _is_settled(client: Client, queued: QueuedLoop, run: run_pb2.Run) -> bool:
    """Whether a task has ended or waits; a run reports that it waits until its decision has been picked up."""
    if run.loop.sequence != queued.sequence:
        return run.loop.sequence > queued.sequence
    if run.loop.status == runs.PROPOSED:
        return bool(await pending_proposals(client, queued.project, queued.run))
    return run.loop.status in runs.LOOP_ENDED


def _word(status: int) -> str:
    known = runs.STATUSES.get(status)
    return known.word if known else str(status)


def _next(status: str) -> str:
    match status:
        case "waits":
            return "Call `decide` for what waits, with the word of the person you work for, or leave it to them."
        case "queued" | "running":
            return "It goes on by itself. Call `runs` with this run to wait for it."
        case _:
            return "Call `act` or `ask` with this run to go on from here."


def _waiting(proposal: proposal_pb2.Proposal) -> WaitingEffect:
    kind = proposal.WhichOneof("effect") or "call"
    effect = cut_bytes(_effect(proposal, kind), SHOWN_BYTES_MAX)
    return WaitingEffect(proposal.path, proposal.tool, kind, effect)


def _effect(proposal: proposal_pb2.Proposal, kind: str) -> str:
    match kind:
        case "command":
            return proposal.command.command
        case "question":
            return "\n".join((proposal.question.question, *(f"- {one}" for one in proposal.question.options)))
        case "files":
            return "\n".join(change.patch for change in proposal.files.changes)
        case _:
            return f"{proposal.tool} {proposal.target} {proposal.call.data_json}".strip()
