"""The contract's limits for writes.

Source: architecture 10 (every input has a limit).
"""

from __future__ import annotations

from typing import Final

from msgspec import Struct

from turnwright_core.limits import ATTRIBUTES_BYTES_MAX, BODY_BYTES_MAX, PATH_CHARS_MAX, WRITES_MAX

APPEND_BYTES_MAX: Final = 1024 * 1024
"""Most that one write adds to a streaming body, in bytes of UTF-8."""

RUN_ENTRIES_MAX: Final = 100_000
"""Entries that ever enter the view of one run."""

BODIES_BYTES_MAX: Final = 64 * 1024 * 1024
"""Bodies that one request reads in order to write them again, in bytes of UTF-8. A request brings at most half as
much itself; a copy costs it a path, and the store a body."""


class WriteLimits(Struct, frozen=True):
    """What one entry, one write, one request and one run may hold."""

    body_bytes_max: int = BODY_BYTES_MAX
    """Of UTF-8."""
    attributes_bytes_max: int = ATTRIBUTES_BYTES_MAX
    """Of attributes, and of a record."""
    path_chars_max: int = PATH_CHARS_MAX
    append_bytes_max: int = APPEND_BYTES_MAX
    writes_max: int = WRITES_MAX
    run_entries_max: int = RUN_ENTRIES_MAX
    bodies_bytes_max: int = BODIES_BYTES_MAX


REVISIONS_OF_ENTRY: Final = 2**32
"""Revisions that a scope can have, and keys of versions that belong to one entry; of entries there can be 2**31."""
