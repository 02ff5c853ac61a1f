"""Reading entries by path: whole or some lines, current or past.

Packets are not stored as entries; they can be read under the paths that they would have. Source: rows RU197, RU199,
RU273; C22; the specification's partial read.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.checks import check_count, over_limit
from turnwright_core.entries import Entry, State, Tier, Visibility
from turnwright_core.limits import CHUNK_BYTES, PAGE_SIZE_MAX
from turnwright_core.text import LineSlice, slice_lines
from turnwright_store.app.history import NUMBER_MAX, At, RunSnapshot, moment_of_cursor, run_at
from turnwright_store.app.packets import packet_messages
from turnwright_store.app.read_view import ENTRY_BYTES, message_batches, weight_of
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.pages import ANSWER_BYTES_MAX
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.ports import Connection
from turnwright_store.sql.forks import run_of_turn
from turnwright_store.sql.history import find_entry_rows_at
from turnwright_store.sql.runs import RunHead, get_run_head
from turnwright_store.sql.turns import find_turn
from turnwright_store.sql.views import (
    EntryRow,
    VersionContent,
    Wanted,
    find_entry_rows,
    find_rows_with_content,
    load_entries,
)

FEW_PATHS: Final = 8
"""Number of paths up to which whole entries are read by one statement."""

_SENT: Final = re.compile(r"(system|user)://([1-9][0-9]{0,9})")
_BETWEEN_MESSAGES: Final = "\n\n"


class LineRange(Struct, frozen=True):
    """Which lines of bodies to return; see slice_lines."""

    line: int | None = None
    limit: int | None = None


class PathsQuery(Struct, frozen=True):
    """What is wanted of entries."""

    paths: tuple[str, ...]
    bodies: bool = True
    lines: LineRange | None = None
    at: At | None = None


class ReadEntry(Struct, frozen=True):
    """An entry, with the lines that its body contains if some were requested."""

    entry: Entry
    lines: LineSlice | None


def get_entries(connection: Connection, rules: StoreRules, address: RunRef, query: PathsQuery) -> list[ReadEntry]:
    """Entries by path, in the order of the request; paths that the run does not see are left out.

    Raises LIMIT_EXCEEDED if they do not fit into one message, CURSOR_FOREIGN, TURN_NOT_FOUND.
    """
    check_count("paths", len(query.paths), PAGE_SIZE_MAX)
    run = get_run_head(connection, address.project, address.run)
    paths = list(dict.fromkeys(query.paths))
    loaded: dict[int, VersionContent] = {}
    if query.at is None:
        then = RunSnapshot(run, moment_of_cursor(run, run.cursor(rules.incarnation)), run.cursor(rules.incarnation))
        if query.bodies and len(paths) <= FEW_PATHS:
            found, loaded = find_rows_with_content(connection, run.id, paths)
            if (
                not query.lines
                and len(found) == len(paths)
                and (entries := _from_loaded(connection, run, found, loaded))
            ):
                few = {entry.path: ReadEntry(entry, None) for entry in entries}
                asked = [few[path] for path in query.paths]
                # A path that is requested several times is returned as often.
                return asked if len(asked) == len(few) else _within_limit(asked)
        else:
            found = find_entry_rows(connection, run.id, paths)
    else:
        then = run_at(connection, run, rules.incarnation, query.at)
        found = find_entry_rows_at(connection, then.run, then.moment, paths)
    got = _load_batches(connection, then, found, query, loaded)
    return _within_limit([got[path] for path in query.paths if path in got])


def _from_loaded(
    connection: Connection, run: RunHead, found: dict[str, EntryRow], loaded: dict[int, VersionContent]
) -> list[Entry] | None:
    """Entries from a single statement; None if one was not read, or if they are large."""
    wanted = Wanted()
    shown = list(found.values())
    is_whole = all(one.content in loaded for one in shown)
    if not is_whole or sum(weight_of(one, wanted) for one in shown) > CHUNK_BYTES:
        return None
    return load_entries(connection, run, shown, wanted, loaded)


def _load_batches(
    connection: Connection,
    then: RunSnapshot,
    found: dict[str, EntryRow],
    query: PathsQuery,
    loaded: dict[int, VersionContent],
) -> dict[str, ReadEntry]:
    """Entries loaded in batches: of long bodies perhaps only a few lines are requested."""
    wanted = Wanted(bodies=query.bodies or query.lines is not None)
    if not query.lines:
        _check_total(sum(weight_of(found[path], wanted) for path in query.paths if path in found))
    got: dict[str, ReadEntry] = {}
    total = 0
    for entry in _loaded(connection, then, found, query, wanted, loaded):
        got[entry.path] = _cut(entry, query)
        total += len(got[entry.path].entry.body)
        _check_total(total)
    return got


def _loaded(
    connection: Connection,
    then: RunSnapshot,
    found: dict[str, EntryRow],
    query: PathsQuery,
    wanted: Wanted,
    loaded: dict[int, VersionContent],
) -> Iterator[Entry]:
    for batch in message_batches(list(found.values()), wanted):
        yield from load_entries(connection, then.run, batch, wanted, loaded)
    for path in dict.fromkeys(query.paths):
        if path not in found and (entry := _packet_entry(connection, then, path)):
            yield entry if wanted.bodies else replace(entry, body="")


def _cut(entry: Entry, query: PathsQuery) -> ReadEntry:
    if not query.lines:
        return ReadEntry(entry, None)
    lines = slice_lines(entry.body, query.lines.line, query.lines.limit)
    return ReadEntry(replace(entry, body=lines.text if query.bodies else ""), replace(lines, text=""))


def _within_limit(got: list[ReadEntry]) -> list[ReadEntry]:
    total = 0
    for one in got:
        texts = len(one.entry.body.encode()) + len(one.entry.attributes_json.encode()) + len(one.entry.record)
        total += ENTRY_BYTES + 3 * len(one.entry.path) + texts
        _check_total(total)
    return got


def _check_total(total: int) -> None:
    if total > ANSWER_BYTES_MAX:
        raise over_limit("paths", ANSWER_BYTES_MAX, total, "bytes")


def _packet_entry(connection: Connection, then: RunSnapshot, path: str) -> Entry | None:
    """The packet of a turn as an entry; None for any other path (C22)."""
    named = _SENT.fullmatch(path)
    if not named or int(named[2]) > NUMBER_MAX:
        return None
    number = int(named[2])
    home = run_of_turn(connection, then.run.id, number)
    turn = None if home is None else find_turn(connection, home, number)
    if turn is None or (home == then.run.id and turn.revision > then.moment.run):
        return None
    messages = packet_messages(connection, then.run, number)
    if messages is None:
        return None
    body = _BETWEEN_MESSAGES.join(text for role, text in messages if role == named[1])
    data = body.encode()
    return Entry(
        path=path,
        scheme=named[1],
        scope=f"run:{home}",
        body=body,
        body_size_bytes=len(data),
        attributes_json="{}",
        visibility=Visibility.ARCHIVED,
        state=State.RESOLVED,
        outcome="",
        writer=Tier.SYSTEM,
        turn=number,
        loop=turn.loop,
        position=0,
        write_count=1,
        revision=turn.revision,
        hash=hashlib.sha256(data).hexdigest(),
        update_ms=turn.begin_ms,
    )
