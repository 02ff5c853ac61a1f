"""Entries, the unit of stored state, and the writes that change them.

The enums have the numbers of their protobuf counterparts, so conversion is a cast. Source: architecture 3; rows
RU015-RU021, RU061, decisions C10, C26.
"""

from __future__ import annotations

from typing import Final

from turnwright_values.store import AppendEntry, CopyEntry, MoveEntry, RemoveEntry, SetEntry
from turnwright_values.types import State, Tier, Visibility

# Each row read looks up one of each, and enum look-up by value is slow (it goes through the metaclass).
VISIBILITIES: Final = {member.value: member for member in Visibility}
"""Visibilities by number."""

STATES: Final = {member.value: member for member in State}
"""States by number."""

TIERS: Final = {member.value: member for member in Tier}
"""Tiers by number."""

EntryChange = SetEntry | AppendEntry | RemoveEntry | CopyEntry | MoveEntry


def destination_of(change: EntryChange) -> str | None:
    """The other path that a copy or a move names; None for other changes."""
    return change.to if isinstance(change, CopyEntry | MoveEntry) else None
