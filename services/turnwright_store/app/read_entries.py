"""Reading entries by path, current or past.

Packets are not stored as entries; they can be read under the paths that they would have. Source: rows RU197, RU199;
C22.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Entry, State, Tier, Visibility

from turnwright_core.checks import check_count, over_limit
from turnwright_core.limits import PAGE_SIZE_MAX
from turnwright_store.app.history import NUMBER_MAX, At, RunSnapshot, run_at
from turnwright_store.app.packets import packet_messages
from turnwright_store.app.read_view import ENTRY_BYTES, message_batches
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.pages import ANSWER_BYTES_MAX
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.sql.contents import VersionContent, find_rows_with_content, load_entries
from turnwright_store.sql.forks import run_of_turn
from turnwright_store.sql.runs import get_run_head
from turnwright_store.sql.streams import read_part
from turnwright_store.sql.turns import find_turn
from turnwright_store.sql.views import Wanted, find_entry_row, find_entry_rows

FEW_PATHS: Final = 8
"""Number of paths up to which whole entries are read by one statement."""

PART_BYTES: Final = 64 * 1024
"""Size up to which a body is read as a whole where a part of it is asked for."""

CHARACTER_BYTES_MAX: Final = 4
"""Most bytes of a character in UTF-8."""

_SENT: Final = re.compile(r"(system|user)://([1-9][0-9]{0,9})")
_BETWEEN_MESSAGES: Final = "\n\n"


class PathsQuery(Struct, frozen=True):
    """What is wanted of entries."""

    paths: tuple[str, ...]
    bodies: bool = True
    at: At | None = None


def get_entries(connection: Connection, rules: StoreRules, address: RunRef, query: PathsQuery) -> list[Entry]:
    """Entries by path, in the order of the request; paths that the run does not see are left out.

    Raises LIMIT_EXCEEDED if they do not fit into one message, CURSOR_FOREIGN, TURN_NOT_FOUND.
    """
    check_count("paths", len(query.paths), PAGE_SIZE_MAX)
    run = get_run_head(connection, address.project, address.run)
    then = run_at(connection, run, rules.incarnation, query.at)
    times = Counter(query.paths)
    got: dict[str, Entry] = {}
    total = 0
    for entry in _load(connection, then, list(times), query):
        got[entry.path] = entry
        texts = len(entry.body.encode()) + len(entry.attributes_json.encode()) + len(entry.record)
        # A path that is requested several times is returned as often.
        total += times[entry.path] * (ENTRY_BYTES + 3 * len(entry.path) + texts)
        if total > ANSWER_BYTES_MAX:
            raise over_limit("paths", ANSWER_BYTES_MAX, total, "bytes")
    return [got[path] for path in query.paths if path in got]


def read_entry(
    connection: Connection, rules: StoreRules, address: RunRef, path: str, offset: int, bytes_max: int
) -> tuple[Entry, int] | None:
    """The entry at a path with a part of its body, and where that begins; None if the run sees none.

    A negative offset is from the end, one inside of a character is moved to its start. Of a long body only the part is
    read.
    """
    run = get_run_head(connection, address.project, address.run)
    row = find_entry_row(connection, run.id, path)
    whole = row is None or row.body_size_bytes <= PART_BYTES
    entry: Entry | None
    if row is None:
        entry = _packet_entry(connection, run_at(connection, run, rules.incarnation, None), path)
    else:
        [entry] = load_entries(connection, run, [row], Wanted(bodies=whole))
    if entry is None:
        return None
    total = entry.body_size_bytes
    begin = min(offset, total) if offset >= 0 else max(0, total + offset)
    end = min(begin + bytes_max, total)
    # Room for the character in which it may begin.
    first = max(0, begin - CHARACTER_BYTES_MAX)
    data = entry.body.encode()[first:end] if row is None or whole else read_part(connection, row, first, end)
    while begin > first and begin < end and data[begin - first] & 0b1100_0000 == 0b1000_0000:
        begin -= 1
    return replace(entry, body=data[begin - first :][:bytes_max].decode(errors="ignore")), begin


def _load(connection: Connection, then: RunSnapshot, paths: list[str], query: PathsQuery) -> Iterator[Entry]:
    """The entries at these paths, in batches."""
    wanted = Wanted(bodies=query.bodies)
    loaded: dict[int, VersionContent] = {}
    if then.moment is None and query.bodies and len(paths) <= FEW_PATHS:
        found, loaded = find_rows_with_content(connection, then.run.id, paths)
    else:
        found = find_entry_rows(connection, then.run.id, paths, then.moment)
    for batch in message_batches(list(found.values()), wanted):
        yield from load_entries(connection, then.run, batch, wanted, loaded)
    for path in paths:
        if path not in found and (entry := _packet_entry(connection, then, path)):
            yield entry if wanted.bodies else replace(entry, body="")


def _packet_entry(connection: Connection, then: RunSnapshot, path: str) -> Entry | None:
    """The packet of a turn as an entry; None for any other path (C22)."""
    named = _SENT.fullmatch(path)
    if not named or int(named[2]) > NUMBER_MAX:
        return None
    number = int(named[2])
    home = run_of_turn(connection, then.run.id, number)
    turn = None if home is None else find_turn(connection, home, number)
    reached = then.moment.run if then.moment else then.run.revision_run
    if turn is None or (home == then.run.id and turn.revision > reached):
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
