"""Opening turns: the first one writes the loop's prompt and instructions, each one the files that changed on disk.

A turn that follows another one is opened by the call that ends that one, which saves a call and a commit. If more has
changed on disk than fits into that call, the turn is opened by a call of its own (BEGIN).
Source: architecture 2, 12.1; rows RU074, RU165, RU195-RU199, RU204; decision C31.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace
from turnwright_values.store import (
    ClaimRunResponse,
    EndTurnRequest,
    EndTurnResponse,
    EntryWrite,
    NextTurn,
    SetEntry,
)
from turnwright_values.types import RequestKind, Turn, TurnRequest

from turnwright_core.owner_calls import ReturnView
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.ports.publishing import Publisher
from turnwright_executor.turn.beginning import LoopBeginning, output_reserve
from turnwright_executor.turn.generation import SilenceAlarm
from turnwright_executor.turn.project_files import BATCH_WRITES, FileSync, in_batches

SLOW_S: Final = 2.0
"""Seconds of looking at the project's files after which people are told, and then after twice as long each time."""

WITH_END_CHARS_MAX: Final = 256 * 1024
"""Maximum characters of paths and file texts that the end of the previous turn may carry."""


class TurnOpener:
    """Opens the turns of one loop, while one executor works on it."""

    def __init__(
        self,
        ledger: Ledger,
        address: RunAddress,
        claim: ClaimRunResponse,
        request: TurnRequest,
        files: FileSync | None,
        first: LoopBeginning | None,
        publisher: Publisher,
        slow_s: float = SLOW_S,
    ) -> None:
        """`request`: the settings of the turns. `files` is None if the loop works without files.

        `first`: what the first turn writes; None if it has begun. `slow_s`: see SLOW_S.
        """
        self._ledger = ledger
        self._address = address
        self._claim = claim
        self._request = request
        self._files = files
        self._first = first
        self._publisher = publisher
        self._slow_s = slow_s
        self.kind = RequestKind.PRIMARY
        """Of the turn that begins next."""
        self._changed: list[EntryWrite] | None = None
        """What changed on disk, from when it was found until it is written."""

    def limit_context(self, context_length: int) -> None:
        """Give the turns from the next one on a window of this many tokens."""
        reserve = output_reserve(self._request.output_reserve, context_length)
        self._request = replace(self._request, context_length=context_length, output_reserve=reserve)

    async def begin(self, return_view_change: ReturnView) -> tuple[Turn, EndTurnResponse]:
        """Begin a turn with a call of its own. Raises TurnwrightError; OSError if the project cannot be read."""
        batches = list(in_batches(await self._changes()))
        for batch in batches[:-1]:
            await self._ledger.write(self._address, self._claim.epoch, batch)
        # One by one: each may be as long as a message holds.
        for image in self._first.images if self._first else ():
            await self._ledger.write(self._address, self._claim.epoch, [image])
        writes = batches[-1] if batches else []
        request = replace(self._request, kind=self.kind)
        if self._first:
            manifest = [self._files.manifest()] if self._files and self._claim.run.turn == 0 else []
            writes = [*writes, *manifest, *self._first.writes]
            request = replace(request, knowledge=self._first.knowledge)
        begin = EndTurnRequest(turn=0, next=NextTurn(request, writes))
        opened = await self._ledger.end_turn(self._address, self._claim.epoch, begin, return_view_change)
        assert opened.next
        self.begun()
        return opened.next, opened

    async def turn_start(self) -> NextTurn | None:
        """How EndTurn opens the next turn; None if it must be begun separately. Raises OSError as `begin` does."""
        changes = await self._changes()
        is_small = not changes or (len(changes) <= BATCH_WRITES and _chars(changes) <= WITH_END_CHARS_MAX)
        return NextTurn(replace(self._request, kind=self.kind), changes) if is_small else None

    def add_file_writes(self, writes: Iterable[EntryWrite]) -> None:
        """The open turn has written these entries of project files, or will write them with its end."""
        if self._files:
            self._files.add_writes(writes)

    def rescan_files(self) -> None:
        """Some of the open turn's writes of project files were rejected: look at the files again."""
        if self._files:
            self._files.rescan()

    def begun(self) -> None:
        """The next turn has begun."""
        self._changed, self._first, self.kind = None, None, RequestKind.PRIMARY
        if self._files:
            self._files.written()

    async def _changes(self) -> list[EntryWrite]:
        if self._changed is None:
            self._changed = await self._read(self._files) if self._files else []
        return self._changed

    async def _read(self, files: FileSync) -> list[EntryWrite]:
        def report(_s: float) -> None:
            self._publisher.warn(f"Looking at the files of the project ({files.seen:,} so far) ...")

        alarm = SilenceAlarm(self._slow_s, report)
        try:
            return await files.writes()
        finally:
            alarm.stop()


def _chars(writes: Sequence[EntryWrite]) -> int:
    bodies = (write.change.body or "" for write in writes if isinstance(write.change, SetEntry))
    return sum(map(len, bodies)) + sum(len(write.path) for write in writes)
