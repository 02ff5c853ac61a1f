"""The entries of a run for plugins' observers and filters: read and written from outside its loops.

Source: rows RU121, RU126, RU127.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from turnwright_core.entries import Entry, EntryWrite
from turnwright_core.schemes import Scheme
from turnwright_executor.domain.addresses import RunAddress, TurnAddress
from turnwright_executor.ports.ledger import Ledger


class OutsideEntries:
    """Implements tools.contract.Entries for one turn of a run; writes are stamped with that turn."""

    def __init__(self, ledger: Ledger, at: TurnAddress) -> None:
        self._ledger = ledger
        self._at = at
        self._address = RunAddress(at.project, at.run)

    async def get(self, paths: Sequence[str]) -> list[Entry]:
        return await self._ledger.get_entries(self._address, paths)

    async def find(
        self, pattern: str, body_pattern: str = "", *, limit: int = 1000, bodies: bool = True, files_only: bool = False
    ) -> list[Entry]:
        return await self._ledger.find_entries(
            self._address, pattern, body_pattern, limit, bodies=bodies, files_only=files_only
        )

    def scheme(self, name: str) -> Scheme:
        return self._ledger.scheme(name)

    async def write(self, writes: Sequence[EntryWrite]) -> None:
        stamped = [replace(write, turn=self._at.turn, loop=self._at.loop) for write in writes]
        await self._ledger.write(self._address, None, stamped)
