"""Reading entries: by path, by pattern in pages of one moment; and the history of one entry.

Packets are not stored as entries; they can be read under the paths that they would have. Source: rows RU063, RU197,
RU199, RU272-RU276; C22; architecture 3 (any earlier moment can be read), 14 (paging on every list).
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from time import thread_time
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Cursor, Entry, State, Tier, Visibility

from turnwright_core.checks import check_chars, check_count, invalid, over_limit
from turnwright_core.limits import PAGE_BYTES_MAX, PAGE_SIZE_MAX, PATTERN_CHARS_MAX
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.matching import match, search
from turnwright_core.patterns.shapes import Shape, shape_of
from turnwright_core.patterns.typography import composed
from turnwright_store.app.history import NUMBER_MAX, At, PacketMoment, RunSnapshot, run_at
from turnwright_store.app.packets import packet_messages
from turnwright_store.app.read_view import ENTRY_BYTES, message_batches, weight_of
from turnwright_store.app.registry import latest_run
from turnwright_store.domain.checks import page_size
from turnwright_store.domain.names import RunRef
from turnwright_store.domain.pages import ANSWER_BYTES_MAX, decode_page_token, foreign_token, page_of
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.sql.contents import VersionContent, find_rows_with_content, load_entries
from turnwright_store.sql.feed import END_OF_REVISION
from turnwright_store.sql.forks import run_of_turn
from turnwright_store.sql.history import Interval, list_history
from turnwright_store.sql.runs import get_run_head
from turnwright_store.sql.streams import read_part
from turnwright_store.sql.turns import find_turn
from turnwright_store.sql.views import EntryRow, Wanted, find_entry_row, find_entry_rows, list_entry_rows, snapshot

NAMES_MAX: Final = 100
"""Maximum number of schemes in a filter."""

_SCANNED_A_STATEMENT: Final = 500
_POSITION_DIGITS_MAX: Final = 18
_OF_PACKET: Final = "packet"
"""In place of an incarnation, which is a number in hexadecimal: the moment is that of a turn's packet."""

_ALL: Final = Wanted()
_WILD: Final = frozenset("*?[]{}!@+()\\")


class EntryQuery(Struct, frozen=True):
    """Entries by pattern; an empty field matches everything."""

    pattern: str = ""
    body_pattern: str = ""
    bodies: bool = True
    size: int = 0
    token: str = ""
    schemes: frozenset[str] = frozenset()
    categories: frozenset[str] = frozenset()
    visibilities: frozenset[Visibility] = frozenset()
    states: frozenset[State] = frozenset()
    at: At | None = None
    by_position: bool = False
    """In the order of the timeline; else in that of paths."""


def list_entries(
    connection: Connection, rules: StoreRules, address: RunRef, query: EntryQuery, check_time: Callable[[], None]
) -> tuple[list[Entry], str]:
    """A page of entries that fit; all pages are of the moment of the first one.

    Without a run they are of the one that was written last when the first page was read. A body that fills a page alone
    is cut. `check_time` raises when matching has taken too long. Raises CURSOR_FOREIGN, TURN_NOT_FOUND.
    """
    _check(query)
    size = page_size(query.size)
    at, alias, after = _place_of(query)
    alias = address.run or alias or latest_run(connection, address.project)
    run = get_run_head(connection, address.project, alias)
    then = run_at(connection, run, rules.incarnation, at)
    wanted = Wanted(bodies=query.bodies, body_bytes_max=PAGE_BYTES_MAX)
    place = *_places(then.cursor if at is None else at), "" if address.run else alias
    try:
        fitting = _matching_entries(connection, rules, then, query, after, check_time)
        page, next_token = page_of(
            fitting, size, lambda one: (*place, _end_of_page(query, one)), lambda one: weight_of(one, wanted)
        )
    except PatternError as error:
        raise invalid("pattern", str(error)) from None
    return load_entries(connection, then.run, page, wanted), next_token


def _check(query: EntryQuery) -> None:
    check_chars("pattern", query.pattern, PATTERN_CHARS_MAX)
    check_chars("body_pattern", query.body_pattern, PATTERN_CHARS_MAX)
    check_count("schemes", len(query.schemes), NAMES_MAX)


def _places(at: At) -> tuple[str, int, int, int, int]:
    """The part of a token that identifies the moment of all pages."""
    if isinstance(at, int):
        return "", 0, 0, 0, at
    if isinstance(at, PacketMoment):
        return _OF_PACKET, 0, 0, 0, at.turn
    return at.incarnation, at.run_revision, at.project_revision, at.global_revision, 0


def _end_of_page(query: EntryQuery, one: EntryRow) -> str:
    """The entry in a page token after which the next page begins."""
    return str(one.position) if query.by_position else one.path


def _place_of(query: EntryQuery) -> tuple[At | None, str, str]:
    """The moment of a page (None: now), its run where the request names none, and what it begins after."""
    place = decode_page_token(query.token, str, int, int, int, int, str, str)
    if place is None:
        return query.at, "", ""
    incarnation, run, project, global_, turn, alias, after = place
    is_position = str(after).isdecimal() and len(str(after)) <= _POSITION_DIGITS_MAX
    is_place = is_position if query.by_position else "\0" not in str(after)
    if not is_place or not 0 <= int(turn) <= NUMBER_MAX:
        raise foreign_token()
    if incarnation == _OF_PACKET:
        return PacketMoment(int(turn)), str(alias), str(after)
    return int(turn) or Cursor(str(incarnation), int(run), int(project), int(global_)), str(alias), str(after)


def time_limit(limit_s: float, field: str = "pattern", advice: str = "use a narrower pattern") -> Callable[[], None]:
    """A function that raises once its thread has worked for that many seconds; waiting is free."""
    end_s = thread_time() + limit_s

    def check() -> None:
        if thread_time() > end_s:
            raise invalid(field, f"Matching took longer than {limit_s} s: {advice}.")

    return check


def _matching_entries(
    connection: Connection,
    rules: StoreRules,
    then: RunSnapshot,
    query: EntryQuery,
    after: str,
    check_time: Callable[[], None],
) -> Iterator[EntryRow]:
    """Matching entries after a path or a position. Raises PatternError, and what `check_time` raises."""
    for found in _candidates(connection, then, query, after):
        fitting = []
        for one in found:
            check_time()
            if _matches(rules, query, one) and (not query.pattern or _fits(query.pattern, one.path)):
                fitting.append(one)
        if not query.body_pattern:
            yield from fitting
            continue
        for batch in message_batches(fitting, Wanted()):
            for one, entry in zip(batch, load_entries(connection, then.run, batch, Wanted()), strict=True):
                check_time()
                if search(query.body_pattern, entry.body):
                    yield one


def _fits(pattern: str, path: str) -> bool:
    """Whether a path matches; a glob also matches the same letters composed or decomposed."""
    if (pattern.isascii() and path.isascii()) or shape_of(pattern) is not Shape.GLOB:
        return match(pattern, path)
    return match(composed(pattern), composed(path))


def _matches(rules: StoreRules, query: EntryQuery, one: EntryRow) -> bool:
    return (
        (not query.schemes or one.scheme in query.schemes)
        and (not query.categories or rules.scheme(one.scheme).category in query.categories)
        and (not query.visibilities or one.visibility in query.visibilities)
        and (not query.states or one.state in query.states)
    )


def _candidates(connection: Connection, then: RunSnapshot, query: EntryQuery, after: str) -> Iterator[list[EntryRow]]:
    """What may fit, in order, some at a time: a path by itself, else what begins as the pattern does."""
    if query.by_position:
        timeline = snapshot(connection, then.run, _ALL, (), then.moment)
        yield [one for one in timeline if one.position > int(after or 0)]
        return
    shape = shape_of(query.pattern) if query.pattern else Shape.GLOB
    if shape is Shape.LITERAL:
        found = find_entry_rows(connection, then.run.id, [query.pattern], then.moment)
        yield [one for one in found.values() if one.path > after]
        return
    prefix = _fixed_prefix(query.pattern) if shape is Shape.GLOB else ""
    if not prefix and len(query.schemes) == 1:
        prefix = "".join(f"{scheme}://" for scheme in query.schemes if scheme)
    while page := list_entry_rows(connection, then.run.id, prefix, after, _SCANNED_A_STATEMENT, then.moment):
        yield page
        after = page[-1].path


def _fixed_prefix(pattern: str) -> str:
    """The common prefix of all paths that a glob can match: `src/**` also matches `src`, a leading `./` is ignored.

    It ends before the first letter that can be decomposed.
    """
    if pattern.startswith("./"):
        return ""
    pattern = composed(pattern)
    ends = (index for index, char in enumerate(pattern) if char in _WILD or not char.isascii())
    end = next(ends, len(pattern))
    return pattern[:end].rstrip("/")


# ---- History


def list_entry_history(
    connection: Connection, address: RunRef, path: str, size: int, token: str, *, bodies: bool
) -> tuple[list[tuple[Entry, Interval]], str]:
    """A page of the states of a path, latest first."""
    size = page_size(size)
    (before,) = decode_page_token(token, int) or (END_OF_REVISION,)
    run = get_run_head(connection, address.project, address.run)
    wanted = Wanted(bodies=bodies, body_bytes_max=PAGE_BYTES_MAX)
    intervals = list_history(connection, run.id, path, max(0, min(int(before), END_OF_REVISION)), size + 1)
    page, next_token = page_of(intervals, size, _revision_of, lambda one: weight_of(one.shown, wanted))
    entries = load_entries(connection, run, [one.shown for one in page], wanted)
    return list(zip(entries, page, strict=True)), next_token


def _revision_of(one: Interval) -> tuple[int]:
    return (one.shown.revision,)


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
