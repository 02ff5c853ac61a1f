"""`inbox`: proposals that wait for a decision, in a project or in all, as a table, as JSON lines, or live."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from turnwright.proposals.v1 import proposal_service_pb2
from turnwright.types.v1 import proposal_pb2
from turnwright.types.v1.command_record_pb2 import DECISION_KIND_ACCEPTED, DECISION_KIND_EXPIRED, DECISION_KIND_REJECTED

from turnwright_cli.effects import TITLE_CHARS_MAX, effect_title, effect_words
from turnwright_cli.interrupts import Interrupts, unless_stopped
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, M, show_list, to_line, while_read, write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_session

_PAST: Final = {DECISION_KIND_ACCEPTED: "accepted by", DECISION_KIND_REJECTED: "rejected by"}


async def inbox(call: Invocation, *, watch: bool, every: bool) -> int:
    """List waiting proposals, the longest waiting first; with `watch` show changes until Ctrl-C."""
    root = "" if every else call.root
    async with open_session(call.settings, reads=None if watch else ()) as session:
        project = await session.client.find_project(root) if root and not watch else None
        name = project.name if project else ""
        if watch:
            name = (await session.client.init_project(root)).name if root else ""
            await show_watch(call, session.client.watch_proposals(name), _show_change)
            return 0
        items = [item async for item in session.client.list_proposals(name)] if name or every else []
    return show_list(
        call,
        items,
        _COLUMNS,
        empty="Nothing waits for a decision.",
        hint="Decide with: turnwright resolve RUN PATH (--accept or --reject where nobody can be asked)",
    )


def _waits(item: proposal_service_pb2.PendingProposal) -> str:
    """`12 s`, `3 min`, `5 h`, `2 d`."""
    seconds = max(0, int((datetime.now(UTC) - item.propose_time.ToDatetime(UTC)).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


_COLUMNS: Final[Sequence[Column[proposal_service_pb2.PendingProposal]]] = (
    Column("project", lambda item: item.project),
    Column("run", lambda item: item.run),
    Column("path", lambda item: item.proposal.path),
    Column("waits", _waits),
    Column("wants to", lambda item: effect_words(item.proposal), TITLE_CHARS_MAX, decides=True),
)


async def show_watch(call: Invocation, messages: AsyncGenerator[M, None], show: Callable[[M], None]) -> None:
    """Show each message of a watch until Ctrl-C. JSON includes heartbeats, by which a program sees a dead stream."""
    shown = (lambda message: write_line(to_line(message))) if call.as_json else show
    with Interrupts().entered() as interrupts:
        async with contextlib.aclosing(while_read(messages)) as readable:
            while (message := await unless_stopped(anext(readable), interrupts)) is not None:
                shown(message)


def _show_change(change: proposal_service_pb2.WatchProposalsResponse) -> None:
    for item in change.pending:
        where = safe_line(f"{item.project}/{item.run} {item.proposal.path}")
        write_line(f"+ {where}: {safe_line(effect_title(item.proposal))}")
    for left in change.decided:
        where = safe_line(f"{left.project}/{left.run} {left.decision.path}")
        write_line(f"- {where}: {_how(left.decision)}")


def _how(decision: proposal_pb2.ProposalDecision) -> str:
    """`accepted by alice`, `expired`, `cancelled (aborted:499)`."""
    if decision.kind in _PAST:
        edited = ", with other content" if decision.edited else ""
        return f"{_PAST[decision.kind]} {safe_line(decision.principal)}{edited}"
    if decision.kind == DECISION_KIND_EXPIRED:
        return "expired"
    return f"cancelled ({safe_line(decision.outcome)})"
