"""The full-text index: what is to be indexed, which entries may hold a word, and the best of those that do.

Theory of operation. The index is a filter. It knows a word by a code of 14 bits, which other words share, and says
which entries may hold it; what they really hold is counted in their bodies, which are stored anyway. So it takes a
fraction of what an index of words with their places does, finds the same on both databases, and nothing needs to be
taken out of it: an entry that no longer holds a word is only looked at once more. On SQLite it is a contentless table
of FTS5, on PostgreSQL a column of codes with a GIN index.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from math import log
from typing import Final
from zlib import crc32

from sqlalchemy import Connection, bindparam, exists, func, insert, literal_column, select, text, tuple_, update

from turnwright_core.values import frozen
from turnwright_store.domain.words import count_lexemes, lexemes_of
from turnwright_store.sql.dialect import POSTGRESQL
from turnwright_store.sql.entries import HEAD, parts
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.registry import ProjectRow
from turnwright_store.sql.tables import entries, projects, runs, scopes, search_marks, versions, views
from turnwright_store.sql.views import cut

Place = tuple[int, int]
"""Revision and entry id: how far the heads of a scope are read, in this order."""

CODES: Final = 2**14
"""More of them are better told apart, and make an index of rare words larger."""

_COMPARED_AT_ONCE: Final = 32
"""Entries whose bodies are read together."""

_COMPARED_MAX: Final = 128
"""Entries that are compared at most, once as many as wanted were found: of words that nearly all entries hold."""

_PATH_WEIGHT: Final = 4
"""A word in the path counts like so many in the body."""

_USUAL_BYTES: Final = 4000
"""Size of a body in which a word counts neither more nor less."""


@frozen
class Behind:
    """A project whose index is not up to date."""

    project: int
    name: str
    scope: int
    revision: int
    """Of the scope now."""
    mark: int
    """Revision up to which everything is indexed."""


@frozen
class Head:
    """The latest version of a shared entry."""

    entry: int
    revision: int
    path: str
    scheme: str
    body_size_bytes: int


@frozen
class Document:
    """An entry, and the codes of its words."""

    head: Head
    codes: Sequence[int]


@frozen
class Hit:
    """An entry that was found, without its text."""

    entry: int
    path: str
    revision: int
    score: float


_MARK: Final = func.coalesce(search_marks.c.revision, 0)
_BEHIND: Final = (
    select(projects.c.id, projects.c.name, projects.c.scope_id, scopes.c.revision, _MARK)
    .join(scopes, scopes.c.id == projects.c.scope_id)
    .outerjoin(search_marks, search_marks.c.scope_id == projects.c.scope_id)
    .where(scopes.c.revision > _MARK, projects.c.id > bindparam("last"))
    .order_by(projects.c.id)
    .limit(1)
)
_HEADS: Final = (
    select(entries.c.id, entries.c.head_rev, entries.c.path, entries.c.scheme, versions.c.body_size_bytes)
    .select_from(entries)
    .join(versions, HEAD)
    .where(
        entries.c.scope_id == bindparam("scope"),
        # Said three times: the first two are what an index without ids can use.
        entries.c.shared_rev > literal_column("0"),
        entries.c.shared_rev >= bindparam("revision"),
        tuple_(entries.c.shared_rev, entries.c.id) > tuple_(bindparam("revision"), bindparam("entry")),
    )
    .order_by(entries.c.shared_rev, entries.c.id)
    .limit(bindparam("page"))
)
_BODY: Final = select(versions.c.body).where(versions.c.id == bindparam("version"))
_HEAD_REVISIONS: Final = select(entries.c.id, entries.c.head_rev).where(
    entries.c.id.in_(bindparam("ids", expanding=True))
)
_STATE: Final = (
    select(scopes.c.revision, _MARK)
    .outerjoin(search_marks, search_marks.c.scope_id == scopes.c.id)
    .where(scopes.c.id == bindparam("scope"))
)
_MARK_FIND: Final = select(search_marks.c.revision).where(search_marks.c.scope_id == bindparam("scope"))
_MARK_ADD: Final = insert(search_marks)
_MARK_RAISE: Final = (
    update(search_marks).where(search_marks.c.scope_id == bindparam("scope")).values(revision=bindparam("reached"))
)

_PUT: Final = {
    # An entry that is indexed again adds to what is there of it.
    False: text("INSERT INTO search (rowid, codes) VALUES (:entry, :codes)"),
    True: text(
        "INSERT INTO search (entry_id, codes) VALUES (:entry, CAST(CAST(:codes AS bigint[]) AS integer[])) "
        "ON CONFLICT (entry_id) DO UPDATE SET codes = excluded.codes"
    ),
}
_WITH_CODE: Final = {
    False: text("SELECT rowid FROM search WHERE search MATCH :code"),
    True: text("SELECT entry_id FROM search WHERE codes @> ARRAY[CAST(:code AS integer)]"),
}
_IS_SEEN: Final = exists(
    select(literal_column("1"))
    .select_from(runs)
    # From the runs to the path that each may see: never from all views to their runs.
    .join(views, (views.c.run_id == runs.c.id + literal_column("0")) & (views.c.path == entries.c.path))
    .where(
        runs.c.project_id == bindparam("project"),
        runs.c.removed_ms == literal_column("0"),
        views.c.to_rev.is_(None),
        views.c.entry_id == entries.c.id,
    )
)
# No planner is to go through the index of a scope instead.
_OF_SCOPE: Final = entries.c.scope_id + literal_column("0") == bindparam("scope")
_COMPARED: Final = (
    select(entries.c.id, entries.c.path, entries.c.head_rev, versions.c.body)
    .select_from(entries)
    .join(versions, HEAD)
    .where(entries.c.id.in_(bindparam("ids", expanding=True)), _OF_SCOPE, _IS_SEEN)
)
_COMPARED_OF: Final = _COMPARED.where(entries.c.scheme.in_(bindparam("schemes", expanding=True)))


def next_behind(connection: Connection, last: int) -> Behind | None:
    """A project whose index is not up to date, the next one after the project `last`, else the first."""
    row = connection.execute(_BEHIND, {"last": last}).first() or connection.execute(_BEHIND, {"last": 0}).first()
    return Behind(*row) if row else None


def heads_after(connection: Connection, scope: int, place: Place, page: int) -> list[Head]:
    """Heads of a scope in the order of their revisions, those after a place."""
    values = {"scope": scope, "revision": place[0], "entry": place[1], "page": page}
    return [Head(*row) for row in connection.execute(_HEADS, values)]


def read_body(connection: Connection, entry: int, revision: int) -> str:
    """The body of a version; empty where the version is gone."""
    body: str | None = connection.execute(_BODY, {"version": version_key(entry, revision)}).scalar_one_or_none()
    return body or ""


def still_heads(connection: Connection, documents: Sequence[Document]) -> list[Document]:
    """The documents that nobody has written since they were read."""
    now: dict[int, int] = {}
    for part in parts(documents):
        ids = [document.head.entry for document in part]
        now |= {row[0]: row[1] for row in connection.execute(_HEAD_REVISIONS, {"ids": ids})}
    return [document for document in documents if now.get(document.head.entry) == document.head.revision]


def document(scope: int, head: Head, body: str) -> Document:
    """Make an entry ready for the index, which is most of the work: no writer need wait for it."""
    words = count_lexemes(f"{head.path} {body}")
    return Document(head, sorted({_code(scope, lexeme) for lexeme in words}))


def _code(scope: int, lexeme: str) -> int:
    """What the index knows a word by; another one in each project, so that few entries of others are found."""
    return crc32(lexeme.encode(), scope) % CODES


def put_documents(connection: Connection, documents: Sequence[Document]) -> None:
    """Index entries. What FTS5 gets in the order of its rows, it writes together."""
    is_postgresql = connection.dialect.name == POSTGRESQL
    rows = [
        {"entry": one.head.entry, "codes": list(one.codes) if is_postgresql else " ".join(map(str, one.codes))}
        for one in sorted(documents, key=lambda one: one.head.entry)
    ]
    if rows:
        connection.execute(_PUT[is_postgresql], rows)


def find_state(connection: Connection, scope: int) -> tuple[int, int]:
    """The revision of a scope, and the one up to which it is indexed."""
    revision, mark = connection.execute(_STATE, {"scope": scope}).one()
    return revision, mark


def raise_mark(connection: Connection, scope: int, reached: int) -> None:
    """Say that everything up to a revision is indexed."""
    mark = connection.execute(_MARK_FIND, {"scope": scope}).scalar_one_or_none()
    if mark is None:
        connection.execute(_MARK_ADD, {"scope_id": scope, "revision": reached})
    elif mark < reached:
        connection.execute(_MARK_RAISE, {"scope": scope, "reached": reached})


def find_hits(
    connection: Connection,
    project: ProjectRow,
    words: Sequence[str],
    schemes: Sequence[str],
    wanted: int,
    bytes_max: int,
) -> list[Hit]:
    """The entries of a project that hold some of the words and that some run sees, best first.

    `bytes_max` is how much of a body is looked at.
    """
    lexemes = list(dict.fromkeys(lexeme for word in words for lexeme in lexemes_of(word)))
    found = {lexeme: _with_code(connection, _code(project.scope, lexeme)) for lexeme in lexemes}
    weights = {lexeme: log(1 + 1_000_000 / len(ids)) for lexeme, ids in found.items() if ids}
    # No entry can score more than the weights of the words that it may hold.
    bounds: defaultdict[int, float] = defaultdict(float)
    for lexeme, weight in weights.items():
        for entry in found[lexeme]:
            bounds[entry] += weight
    hits: list[Hit] = []
    likeliest = iter(sorted(bounds, key=lambda entry: (-bounds[entry], entry)))
    for compared in range(0, len(bounds), _COMPARED_AT_ONCE):
        ids = list(islice(likeliest, _COMPARED_AT_ONCE))
        if len(hits) >= wanted and (compared >= _COMPARED_MAX or hits[wanted - 1].score >= bounds[ids[0]]):
            break
        hits += _compared(connection, project, ids, schemes, weights, bytes_max)
        hits.sort(key=lambda hit: (-hit.score, hit.path))
    return hits[:wanted]


def _with_code(connection: Connection, code: int) -> list[int]:
    is_postgresql = connection.dialect.name == POSTGRESQL
    return [entry for (entry,) in connection.execute(_WITH_CODE[is_postgresql], {"code": code})]


def _compared(
    connection: Connection,
    project: ProjectRow,
    ids: list[int],
    schemes: Sequence[str],
    weights: Mapping[str, float],
    bytes_max: int,
) -> Iterator[Hit]:
    """Those of some entries that really hold some of the words."""
    values: dict[str, object] = {"ids": ids, "scope": project.scope, "project": project.id}
    if schemes:
        values["schemes"] = list(schemes)
    for entry, path, revision, body in connection.execute(_COMPARED_OF if schemes else _COMPARED, values):
        in_path, in_body = count_lexemes(path, weights), count_lexemes(cut(body, bytes_max), weights)
        length = 0.3 + 0.9 * len(body) / _USUAL_BYTES
        # BM25: a word that stands there often counts more, but ever less so, and less in a long text.
        score = sum(
            weight * times / (times + length)
            for lexeme, weight in weights.items()
            if (times := _PATH_WEIGHT * in_path[lexeme] + in_body[lexeme])
        )
        if score:
            yield Hit(entry, path, revision, score)
