"""The cursor of a project's runs: a moment, and what its holder was told shortly before it.

Theory of operation. Rows of runs say when they were written, by the database's clock. A transaction carries the time at
which it began, and may be seen later than one that began after it. So a watch that goes on from a moment looks
`OVERLAP_MS` further back, and the cursor says of this time what its holder knows, so that nothing is told twice. It
does so of `KNOWN_MAX` runs at most: of more, some are told again.
"""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Mapping
from heapq import nlargest
from typing import Final

import msgspec
from msgspec import Struct, json

from turnwright_core.checks import check_chars, invalid
from turnwright_store.domain.pages import PLACE_MAX, TOKEN_CHARS_MAX

CURSOR_KEPT_MS: Final = 7 * 24 * 3600 * 1000
"""Longest time from which a watch can go on."""

OVERLAP_MS: Final = 60_000
"""Longest time from the beginning of a transaction until its writes are seen."""

KNOWN_MAX: Final = 100


class RunMark(Struct, frozen=True, array_like=True):
    """The state of a run that an overview shows."""

    revision: int
    """At which the run's own row was written."""
    proposals: int
    """The number of waiting proposals, which change without a revision of the row."""


class RunsCursor(Struct, frozen=True, array_like=True):
    """A moment of a project's runs."""

    incarnation: str
    project_id: int
    at_ms: int
    known: dict[int, RunMark]
    """By the digests of runs and their aliases: the latest that were told."""
    gone: frozenset[int]
    """Digests of aliases: the latest that were told to be gone."""

    @property
    def since_ms(self) -> int:
        """What was written from here on may not have been told."""
        return self.at_ms - OVERLAP_MS


_CURSOR: Final = json.Decoder(RunsCursor)


def alias_digest(alias: str) -> int:
    return zlib.crc32(alias.encode())


def run_digest(scope: int, alias: str) -> int:
    """Another run that has taken the alias over has another one."""
    return alias_digest(f"{scope}:{alias}")


def recent(times_ms: Mapping[str, int], at_ms: int) -> dict[str, int]:
    """Times by alias, those that a cursor of this moment tells of."""
    found = [(time_ms, alias) for alias, time_ms in times_ms.items() if time_ms >= at_ms - OVERLAP_MS]
    return {alias: time_ms for time_ms, alias in nlargest(KNOWN_MAX, found)}


def encode_runs_cursor(cursor: RunsCursor) -> str:
    return base64.urlsafe_b64encode(json.encode(cursor)).decode()


def decode_runs_cursor(text: str, project_id: int) -> RunsCursor:
    """The cursor of a caller. Raises InvalidError for one that was not made for this project."""
    check_chars("after", text, TOKEN_CHARS_MAX)
    try:
        cursor = _CURSOR.decode(base64.b64decode(text.encode(), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, msgspec.MsgspecError):
        cursor = None
    if cursor is None or cursor.project_id != project_id or not OVERLAP_MS <= cursor.at_ms <= PLACE_MAX:
        message = "after must be empty, or the cursor of a message or a list of the runs of this project."
        raise invalid("after", message)
    return cursor
