"""Contents of entries: attributes, records and bodies, of versions that views show.

Bodies are read separately, in batches: versions are immutable, so they can be read later and still belong to the same
moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Result, bindparam, case, literal_column, select, type_coerce
from turnwright_values.types import Entry

from turnwright_core.entries import STATES, TIERS, VISIBILITIES
from turnwright_core.errors import run_not_found
from turnwright_store.sql.entries import BODY_HASH, batched
from turnwright_store.sql.runs import RunHead
from turnwright_store.sql.tables import chunks, versions
from turnwright_store.sql.views import CURRENT_PATHS, ENTRY_ROW_COLUMNS, EntryRow, Wanted, find_entry_row, storable

SHORT_BYTES_MAX: Final = 64 * 1024
"""Bodies up to which they are read together with what shows them, where few are asked for."""

_CONTENT: Final = (versions.c.id, versions.c.stored_bytes, BODY_HASH, versions.c.attributes, versions.c.record)


def with_content(condition: ColumnElement[bool]) -> tuple[Any, ...]:
    """The columns of `rows_with_content`; bodies only where the condition holds."""
    body = type_coerce(case((condition, versions.c.body)), versions.c.body.type)
    return (*ENTRY_ROW_COLUMNS, *_CONTENT[1:], body)


_WHOLE_PATHS: Final = CURRENT_PATHS.with_only_columns(
    *with_content(versions.c.stored_bytes <= literal_column(str(SHORT_BYTES_MAX)))
)
_WITH_BODIES: Final = select(*_CONTENT, versions.c.body).where(versions.c.id.in_(bindparam("ids", expanding=True)))
_WITHOUT_BODIES: Final = select(*_CONTENT).where(versions.c.id.in_(bindparam("ids", expanding=True)))
_CHUNKS: Final = (
    select(chunks.c.data)
    .where(
        chunks.c.entry_id == bindparam("entry"),
        chunks.c.version_rev == bindparam("version"),
        chunks.c.offset >= bindparam("folded"),
        chunks.c.offset < bindparam("end"),
    )
    .order_by(chunks.c.offset)
)


_SHOWN: Final = len(ENTRY_ROW_COLUMNS)


class VersionContent(NamedTuple):
    """What is loaded of a version. Compaction may go on between two reads; a version is otherwise fixed."""

    stored_bytes: int
    hash: str
    attributes: str
    record: bytes | None
    body: str = ""


def load_entries(
    connection: Connection,
    run: RunHead,
    shown: Sequence[EntryRow],
    wanted: Wanted,
    loaded: Mapping[int, VersionContent] | None = None,
) -> list[Entry]:
    """Load entries with attributes, and bodies if wanted; `loaded` has what was read before.

    Raises RUN_NOT_FOUND if the run was removed in the meantime, with its versions.
    """
    contents: dict[int, VersionContent] = dict(loaded) if loaded else {}
    statement = _WITH_BODIES if wanted.bodies else _WITHOUT_BODIES
    for part in batched(one.content for one in shown if one.content not in contents):
        for version, *content in connection.execute(statement, {"ids": part}):
            contents[version] = VersionContent(*content)
    if any(one.content not in contents for one in shown):
        raise run_not_found(run.project, run.alias)
    return [_entry(connection, run, one, contents[one.content], wanted) for one in shown]


def find_entry(connection: Connection, run: RunHead, path: str, *, bodies: bool = True) -> Entry | None:
    """The entry that a run sees at a path."""
    shown = find_entry_row(connection, run.id, path)
    return load_entries(connection, run, [shown], Wanted(bodies=bodies))[0] if shown else None


def find_rows_with_content(
    connection: Connection, run_id: int, paths: Sequence[str]
) -> tuple[dict[str, EntryRow], dict[int, VersionContent]]:
    """The current views of a few paths, and short contents by version."""
    given = storable(paths)
    found = (
        rows_with_content(connection.execute(_WHOLE_PATHS, {"run_id": run_id, "paths": given})) if given else ([], {})
    )
    return {shown.path: shown for shown in found[0]}, found[1]


def rows_with_content(rows: Result[Any]) -> tuple[list[EntryRow], dict[int, VersionContent]]:
    """Rows of entries with columns of their content after them; contents by version, where there is a body."""
    found = [(EntryRow._make(row[:_SHOWN]), row[_SHOWN:]) for row in rows]
    loaded = {shown.content: VersionContent._make(content) for shown, content in found if content[-1] is not None}
    return [shown for shown, _ in found], loaded


def _entry(connection: Connection, run: RunHead, one: EntryRow, content: VersionContent, wanted: Wanted) -> Entry:
    return Entry(
        path=one.path,
        scheme=one.scheme,
        scope=run.scope_key(one.scope),
        body=_body(connection, one, content, wanted.bytes_max(one.scheme)) if wanted.bodies else "",
        body_size_bytes=one.body_size_bytes,
        attributes_json=content.attributes,
        visibility=VISIBILITIES[one.visibility],
        state=STATES[one.state],
        outcome=one.outcome,
        writer=TIERS[one.writer],
        turn=one.turn,
        loop=one.loop,
        position=one.position,
        write_count=one.write_count,
        revision=one.revision,
        # The digest of a body that still grows would have to be made anew for each piece; it comes with the fold.
        hash=content.hash if one.body_size_bytes == content.stored_bytes else "",
        update_ms=one.view_ms if one.chunk_bytes else one.version_ms,
        record=content.record or b"",
    )


def _body(connection: Connection, one: EntryRow, content: VersionContent, bytes_max: int) -> str:
    """The body up to the length in the view: the compacted part from the version, the rest from chunks."""
    end = min(one.body_size_bytes, bytes_max) if bytes_max else one.body_size_bytes
    if end <= content.stored_bytes:
        return content.body if end == content.stored_bytes else cut(content.body, end)
    folded = content.stored_bytes - one.version_bytes
    values = {"entry": one.entry, "version": one.version, "folded": folded, "end": end - one.version_bytes}
    body = "".join([content.body, *connection.execute(_CHUNKS, values).scalars()])
    return cut(body, end) if bytes_max else body


def cut(text: str, bytes_max: int) -> str:
    """The longest prefix of a text with at most this many bytes of UTF-8."""
    if len(text) * 4 <= bytes_max:
        return text
    data = text[:bytes_max].encode()
    return data[:bytes_max].decode(errors="ignore")
