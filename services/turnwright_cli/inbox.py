"""`inbox`: what waits for a decision, in a project or in all, as a table, as JSON lines, or as it comes and goes.

Source: rows RU013, RU244; architecture 15.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any, Final

from turnwright.executor.v1 import proposal_pb2
from turnwright.types.v1 import proposal_pb2 as types_pb2

from turnwright_cli.config import CliSettings
from turnwright_cli.effects import TITLE_CHARS_MAX, effect_title, effect_words
from turnwright_cli.interrupts import Interrupts
from turnwright_cli.json_lines import to_line
from turnwright_cli.output import write_line
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_session
from turnwright_cli.tables import Column, show_table

_PAST: Final = {
    types_pb2.DECISION_KIND_ACCEPTED: "accepted by",
    types_pb2.DECISION_KIND_REJECTED: "rejected by",
}


async def show_inbox(settings: CliSettings, project: str | None, *, as_json: bool) -> int:
    """What waits now, the longest waiting first; `project` is a directory, None stands for all projects."""
    async with open_session(settings) as session:
        name = (await session.client.init_project(project)).name if project else ""
        items = [item async for item in session.client.list_proposals(name)]
    if as_json:
        for item in items:
            write_line(to_line(item))
        return 0
    show_table(
        (*map(Column, ("project", "run", "path", "waits")), Column("wants to", TITLE_CHARS_MAX, decides=True)),
        ((item.project, item.run, item.proposal.path, _waits(item), effect_words(item.proposal)) for item in items),
        empty="Nothing waits for a decision.",
        hint="Decide with: turnwright resolve RUN PATH (--accept or --reject where nobody can be asked)",
    )
    return 0


def _waits(item: proposal_pb2.InboxItem) -> str:
    """`12 s`, `3 min`, `5 h`, `2 d`."""
    seconds = max(0, int((datetime.now(UTC) - item.propose_time.ToDatetime(UTC)).total_seconds()))
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length} {unit}"
    return f"{seconds} s"


async def follow_inbox(settings: CliSettings, project: str | None, *, as_json: bool) -> int:
    """What waits, then what comes and goes, until Ctrl-C."""
    show: Callable[[Any], None] = _show_json if as_json else _show_text
    with Interrupts().entered() as interrupts:
        async with open_session(settings) as session:
            name = (await session.client.init_project(project)).name if project else ""
            async with contextlib.aclosing(session.client.watch_proposals(name)) as changes:
                await pump(changes, interrupts.asked, show)
    return 0


async def pump(changes: Any, stopped: asyncio.Event, show: Callable[[Any], None]) -> None:
    """Show each message of a watch until somebody stops it."""
    stopping = asyncio.ensure_future(stopped.wait())
    coming: asyncio.Future[Any] = asyncio.ensure_future(anext(changes))
    try:
        while True:
            await asyncio.wait({stopping, coming}, return_when=asyncio.FIRST_COMPLETED)
            if stopping.done():
                return
            show(coming.result())
            coming = asyncio.ensure_future(anext(changes))
    finally:
        for task in (stopping, coming):
            task.cancel()
        await asyncio.gather(stopping, coming, return_exceptions=True)


def _show_json(change: proposal_pb2.WatchProposalsResponse) -> None:
    """Every message, heartbeats among them: a program wants to know that the watch lives."""
    write_line(to_line(change))


def _show_text(change: proposal_pb2.WatchProposalsResponse) -> None:
    for item in change.pending:
        where = safe_line(f"{item.project}/{item.run} {item.proposal.path}")
        write_line(f"+ {where}: {safe_line(effect_title(item.proposal))}")
    for left in change.decided:
        where = safe_line(f"{left.project}/{left.run} {left.decision.path}")
        write_line(f"- {where}: {_how(left.decision)}")


def _how(decision: types_pb2.ProposalDecision) -> str:
    """`accepted by alice`, `expired`, `cancelled (aborted:499)`."""
    if decision.kind in _PAST:
        edited = ", with other content" if decision.edited else ""
        return f"{_PAST[decision.kind]} {safe_line(decision.principal)}{edited}"
    if decision.kind == types_pb2.DECISION_KIND_EXPIRED:
        return "expired"
    return f"cancelled ({safe_line(decision.outcome)})"
