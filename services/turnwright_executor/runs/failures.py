"""Failures of our services that a worker has met."""

from __future__ import annotations

from msgspec import Struct

from turnwright_core.errors import TurnwrightError
from turnwright_executor.domain.endings import is_of_store


class Failures(Struct):
    """Failures of our services in a row."""

    of_store: int = 0
    of_others: int = 0

    def count(self, error: TurnwrightError) -> int:
        """Count one; how many there are now of the store, or else of the other services."""
        if is_of_store(error):
            self.of_store += 1
            return self.of_store
        self.of_others += 1
        return self.of_others
