"""The content of GetRun besides the run: loops, turns, history, open questions, telemetry, spend.

Source: rows RU238, RU247, RU248.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final, TypeVar

from google.protobuf.message import Message
from turnwright.entries.v1 import entry_service_pb2, entry_service_pb2_grpc
from turnwright.executor.v1 import query_pb2
from turnwright.store.v1 import (
    control_pb2,
    read_pb2,
    registry_pb2,
    store_service_pb2_grpc,
)
from turnwright.turns.v1 import turn_service_pb2, turn_service_pb2_grpc
from turnwright.types.v1 import entry_pb2

from turnwright_core.errors import Reason, fault
from turnwright_core.limits import EVENT_BODY_BYTES_MAX, PAGE_SIZE_MAX
from turnwright_core.runs import SessionState
from turnwright_executor.peers.schemes import KnownSchemes
from turnwright_kit.peer import Peer

LOOPS_PAGE: Final = 100
UNKNOWNS_MAX: Final = 1000
PART_BYTES: Final = 512 * 1024
"""Approximate maximum size of each part of an answer, in bytes."""
M = TypeVar("M", bound=Message)
_AUDIT: Final = ("audit", "hidden")
_WAITING: Final = (SessionState.PAUSED, SessionState.WAITING_USER_INPUT, SessionState.WAITING_IDE)
"""States with proposals. The status is 202 a moment later if the owner was stopped right after it proposed."""


class RunPayload:
    """Reads runs as clients are shown them."""

    def __init__(self, store: Peer, schemes: KnownSchemes) -> None:
        self._store = store
        self._schemes = schemes
        self._rows = store_service_pb2_grpc.StoreServiceStub(store.channel)
        self._entries = entry_service_pb2_grpc.EntryServiceStub(store.channel)
        self._turns = turn_service_pb2_grpc.TurnServiceStub(store.channel)

    async def read(self, request: query_pb2.GetRunRequest) -> query_pb2.GetRunResponse:
        """A run with its loops and turns, and its history if requested. Raises TurnwrightError."""
        if request.history_max > PAGE_SIZE_MAX:
            message = f"history_max is {request.history_max}; the limit is {PAGE_SIZE_MAX}."
            raise fault(
                Reason.LIMIT_EXCEEDED, message, field="history_max", limit=PAGE_SIZE_MAX,
                actual=request.history_max, unit="entries",
            )  # fmt: skip
        key: dict[str, Any] = {"project": request.project, "run": request.run}
        call, rows = self._store.call, self._rows
        turns_page = max(request.turns_max, 1)
        run, loops, turns, spent = await asyncio.gather(
            call(rows.GetRun, registry_pb2.GetRunRequest(**key)),
            call(self._turns.ListLoops, turn_service_pb2.ListLoopsRequest(**key, page_size=LOOPS_PAGE)),
            call(self._turns.ListTurns, turn_service_pb2.ListTurnsRequest(**key, page_size=turns_page)),
            call(rows.GetSpend, control_pb2.GetSpendRequest(**key)),
        )
        answer = query_pb2.GetRunResponse(
            run=run.run, loops=_first(loops.loops), turns=_first(turns.turns[: request.turns_max]), spent=spent.run,
            loop_spent=spent.loop,
        )  # fmt: skip
        if turns.turns and turns.turns[0].HasField("result"):
            answer.telemetry.CopyFrom(turns.turns[0].result)
        await self._add_entries(answer, request)
        return answer

    async def _add_entries(self, answer: query_pb2.GetRunResponse, request: query_pb2.GetRunRequest) -> None:
        if SessionState(answer.run.state) in _WAITING:
            wanted = entry_service_pb2.ListEntriesRequest(
                project=request.project, run=request.run, states=[entry_pb2.STATE_PROPOSED], without_bodies=True
            )
            waiting = await self._store.call(self._entries.ListEntries, wanted)
            answer.proposals.extend(entry.path for entry in waiting.entries)
        if request.history_max:
            timeline = await self._timeline(request)
            latest = timeline[-request.history_max :]
            answer.history.extend(reversed(_first(latest[::-1])))
            unknowns = [entry for entry in timeline if self._category(entry) == "unknown"]
            answer.unknowns.extend(_first(unknowns[:UNKNOWNS_MAX]))

    async def _timeline(self, request: query_pb2.GetRunRequest) -> list[entry_pb2.Entry]:
        """Every entry of the run except stored packets, in timeline order."""
        wanted = read_pb2.ReadViewRequest(
            project=request.project,
            run=request.run,
            filter=read_pb2.VIEW_FILTER_TIMELINE,
            body_bytes_max=EVENT_BODY_BYTES_MAX,
            schemes_version=self._schemes.version,
        )
        found: list[entry_pb2.Entry] = []
        is_whole = False
        async with self._store.stream(self._rows.ReadView, wanted, self._store.timeout_s) as parts:
            async for part in parts:
                self._schemes.update(part)
                found += [entry for entry in part.entries if self._category(entry) not in _AUDIT]
                is_whole = part.HasField("cursor")
        if not is_whole:
            raise self._store.cut_short("its cursor")
        return sorted(found, key=lambda entry: entry.position)

    def _category(self, entry: entry_pb2.Entry) -> str:
        return self._schemes.rules(entry.scheme).category


def _first(items: Sequence[M]) -> list[M]:
    """As many of the first items as fit, but at least one."""
    found: list[M] = []
    room = PART_BYTES
    for item in items:
        room -= item.ByteSize()
        if found and room < 0:
            break
        found.append(item)
    return found
