"""The full-text index: what is to be indexed, the index of either database, and its best hits.

SQLite has a table of FTS5, whose row number is the id of the entry; PostgreSQL has a column of lexemes. Both get the
words of the same rules, so that they find the same entries; how they rank differs a little.

The table of FTS5 is contentless: it has words and positions but no text. To delete an entry, FTS5 needs the text that
was indexed: it is derived again from the version in `search_documents`, which never changes. If the tokenizer changes,
as with a version of Unicode, the index is emptied and rebuilt.
"""

from __future__ import annotations

import unicodedata
from collections import Counter, defaultdict
from collections.abc import Sequence
from itertools import chain, count
from typing import Final

from msgspec import Struct
from sqlalchemy import Connection, TextClause, bindparam, func, literal_column, select, text, tuple_, update

from turnwright_store.domain.lexemes import lexemes_of, non_ascii_lexemes, split_camel_case, split_words
from turnwright_store.domain.viewers import viewer_in
from turnwright_store.ports import POSTGRESQL
from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.contents import cut
from turnwright_store.sql.entries import HEAD, batched
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.registry import ProjectRow
from turnwright_store.sql.scopes import find_meta, put_meta
from turnwright_store.sql.tables import entries, projects, scopes, search_marks, versions

TEXT_BYTES_MAX: Final = 256 * 1024
"""Bytes of a body that are indexed."""

IndexPosition = tuple[int, int]
"""Revision and entry id: how far the heads of a scope are read, in this order."""

POSITION_MAX: Final = 16_383
"""Last position of a word that PostgreSQL keeps."""

POSITIONS_MAX: Final = 255
"""Most positions of one word that PostgreSQL keeps."""


class StaleIndex(Struct, frozen=True):
    """A project whose index is not up to date."""

    project: int
    name: str
    scope: int
    revision: int
    """Of the scope now."""
    mark: int
    """Revision up to which everything is indexed."""


class Head(Struct, frozen=True):
    """The latest version of a shared entry."""

    entry: int
    revision: int
    path: str
    scheme: str
    body_size_bytes: int


class Document(Struct, frozen=True):
    """An entry, and its text as the index takes it."""

    head: Head
    text: str
    indexed: str | None = None
    """The text that the index of SQLite has of the entry now; None: it has none."""


class RankedEntry(Struct, frozen=True):
    """An entry that was found, by its key, which its text is read by."""

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
_MARK_ADD: Final = insertion(search_marks)
_MARK_RAISE: Final = (
    update(search_marks).where(search_marks.c.scope_id == bindparam("scope")).values(revision=bindparam("reached"))
)

_FTS5_DROP: Final = text("INSERT INTO search (search, rowid, body, path) VALUES ('delete', :entry, :indexed, :path)")
_FTS5_ADD: Final = text("INSERT INTO search (rowid, body, path) VALUES (:entry, :document, :path)")
_FTS5_INDEXED: Final = text("SELECT revision FROM search_documents WHERE entry_id = :entry")
_FTS5_NOTE: Final = text(
    "INSERT INTO search_documents (entry_id, revision) VALUES (:entry, :revision) "
    "ON CONFLICT (entry_id) DO UPDATE SET revision = excluded.revision"
)
FTS5_EMPTY: Final = (
    "INSERT INTO search (search) VALUES ('delete-all')",
    "DELETE FROM search_documents",
    "DELETE FROM search_marks",
)
_EMPTY: Final = tuple(map(text, FTS5_EMPTY))
_PLAIN: Final = {code: " " for code in range(128) if not chr(code).isalnum()}
"""Makes spaces of all in a text in ASCII that is no part of a word."""

_RULES: Final = f"counted words, unicode {unicodedata.unidata_version}"
"""The version of the tokenizer. If it changes, every index is rebuilt."""

_RULES_KEY: Final = "search_rules"
_LEXEMES_PUT: Final = text(
    """
    INSERT INTO search (entry_id, scope_id, scheme, path, revision, document)
    VALUES (:entry, :scope, :scheme, :path, :revision, CAST(:document AS tsvector))
    ON CONFLICT (entry_id) DO UPDATE SET revision = excluded.revision, document = excluded.document
    """
)

_FTS5_RANKED: Final = """
    SELECT entry_id, entries.path, revision, -bm25(search, 1.0, 4.0) AS score
    FROM search
    CROSS JOIN entries ON entries.id = search.rowid
    CROSS JOIN search_documents ON search_documents.entry_id = search.rowid
    WHERE search MATCH :words AND scope_id = :scope {narrowed}
    ORDER BY score DESC, entries.path
    LIMIT -1
"""
# ts_rank_cd knows nothing of how rare a word is: the weight of each word is counted here.
_LEXEMES_RANKED: Final = """
    WITH wanted AS (
        SELECT CAST('''' || word || '''' AS tsquery) AS word FROM unnest(CAST(:words AS text[])) AS word
    ),
    found AS (
        SELECT wanted.word, search.entry_id,
               4 * ts_rank_cd('{{0.25, 0.25, 0.25, 1}}', search.document, wanted.word, 1) AS fit,
               count(*) OVER (PARTITION BY wanted.word) AS entries
        FROM wanted JOIN search ON search.document @@ wanted.word
        WHERE search.scope_id = :scope {narrowed}
    )
    SELECT search.entry_id, search.path, search.revision,
           sum(ln(1 + 1000000.0 / found.entries) * found.fit / (found.fit + 1)) AS score
    FROM found JOIN search ON search.entry_id = found.entry_id
    GROUP BY search.entry_id
    ORDER BY score DESC, search.path
    OFFSET 0
"""
_SEEN: Final = """
    SELECT entry_id, path, revision, score FROM ({ranked}) AS ranked
    WHERE EXISTS (
        SELECT 1 FROM projects
        JOIN runs ON runs.project_id = projects.id AND runs.removed_ms = 0 {seen}
        JOIN views ON views.run_id = runs.id AND views.path = ranked.path AND views.to_rev IS NULL
        WHERE projects.scope_id = :scope AND views.entry_id = ranked.entry_id
    )
    LIMIT :hits
"""
"""The best hits that some run sees. Checked one by one, because enough are found among the first."""


def _hits(ranked: str, *, is_narrowed: bool, is_limited: bool) -> TextClause:
    limited = "AND (runs.private = 0 OR runs.by = :viewer)" if is_limited else ""
    statement = _SEEN.replace("{ranked}", ranked).replace("{seen}", limited)
    if not is_narrowed:
        return text(statement.format(narrowed=""))
    return text(statement.format(narrowed="AND scheme IN :schemes")).bindparams(bindparam("schemes", expanding=True))


_HITS: Final = {
    (is_postgresql, is_narrowed, is_limited): _hits(
        _LEXEMES_RANKED if is_postgresql else _FTS5_RANKED, is_narrowed=is_narrowed, is_limited=is_limited
    )
    for is_postgresql in (False, True)
    for is_narrowed in (False, True)
    for is_limited in (False, True)
}


def next_stale_index(connection: Connection, last: int) -> StaleIndex | None:
    """A project whose index is not up to date, the next one after the project `last`, else the first."""
    row = connection.execute(_BEHIND, {"last": last}).first() or connection.execute(_BEHIND, {"last": 0}).first()
    return StaleIndex(*row) if row else None


def heads_after(connection: Connection, scope: int, after: IndexPosition, page: int) -> list[Head]:
    """Heads of a scope in the order of their revisions, those after a position."""
    values = {"scope": scope, "revision": after[0], "entry": after[1], "page": page}
    return [Head(*row) for row in connection.execute(_HEADS, values)]


def indexed_text(connection: Connection, entry: int, revision: int) -> str:
    """The part of a version's body that is indexed; empty if the version was deleted."""
    body: str | None = connection.execute(_BODY, {"version": version_key(entry, revision)}).scalar_one_or_none()
    return cut(body or "", TEXT_BYTES_MAX).replace("\x00", " ")


def still_heads(connection: Connection, documents: Sequence[Document]) -> list[Document]:
    """The documents whose entries were not written since they were read."""
    now: dict[int, int] = {}
    for part in batched(documents):
        ids = [document.head.entry for document in part]
        now |= {row[0]: row[1] for row in connection.execute(_HEAD_REVISIONS, {"ids": ids})}
    return [document for document in documents if now.get(document.head.entry) == document.head.revision]


def read_document(connection: Connection, head: Head) -> Document:
    """Tokenize an entry for the index: most of the work, done on a reader connection."""
    body = indexed_text(connection, head.entry, head.revision)
    if connection.dialect.name == POSTGRESQL:
        return Document(head, lexemes(head.path, body))
    revision = connection.execute(_FTS5_INDEXED, {"entry": head.entry}).scalar_one_or_none()
    if revision is None:
        return Document(head, _counted_words(head.path, body))
    before = _counted_words(head.path, indexed_text(connection, head.entry, revision))
    return Document(head, _counted_words(head.path, body), before)


def put_documents(connection: Connection, scope: int, documents: Sequence[Document]) -> None:
    """Index entries, replacing what was indexed before. On SQLite no other indexer may have done so since the read."""
    if not documents:
        return
    values = [_columns(scope, one) for one in documents]
    if connection.dialect.name == POSTGRESQL:
        connection.execute(_LEXEMES_PUT, values)
        return
    if replaced := [one for one in values if one["indexed"] is not None]:
        connection.execute(_FTS5_DROP, replaced)
    connection.execute(_FTS5_ADD, values)
    connection.execute(_FTS5_NOTE, values)


def _columns(scope: int, one: Document) -> dict[str, object]:
    head = one.head
    return {
        "entry": head.entry,
        "scope": scope,
        "scheme": head.scheme,
        "path": head.path,
        "revision": head.revision,
        "document": one.text,
        "indexed": one.indexed,
    }


def is_outdated(connection: Connection) -> bool:
    """Whether the index was made by another tokenizer, so that FTS5 could not delete from it."""
    return connection.dialect.name != POSTGRESQL and find_meta(connection, _RULES_KEY) != _RULES


def reset_index(connection: Connection) -> None:
    """Empty the index of SQLite, so that everything is indexed again."""
    for statement in _EMPTY:
        connection.execute(statement)
    put_meta(connection, _RULES_KEY, _RULES)


def _counted_words(path: str, body: str) -> str:
    """The text that FTS5 indexes for a body: each distinct word, repeated to the next power of two of its count.

    `bm25` ranks by counts, and positions in bodies are not used. At the end come the words that the tokenizer of FTS5
    would miss, those with other letters than ASCII, once each.
    """
    counts = Counter(body.lower().translate(_PLAIN).split() if body.isascii() else split_words(body))
    counts.update(part.lower() for part in split_camel_case(body))
    words = (word for word, count in counts.items() for _ in range(count.bit_length()))
    odd = dict.fromkeys(non_ascii_lexemes(f"{path} {body}"))
    return " ".join(chain(words, odd))


def lexemes(path: str, body: str) -> str:
    """The words of an entry as PostgreSQL writes them: each with its positions, those of the path marked A."""
    places: defaultdict[str, list[str]] = defaultdict(list)
    position = count(1)
    for source, mark in ((path, "A"), (body, "")):
        for word in split_words(source):
            place = f"{min(next(position), POSITION_MAX)}{mark}"
            for lexeme in lexemes_of(word):
                if len(places[lexeme]) < POSITIONS_MAX:
                    places[lexeme].append(place)
    return " ".join(f"'{lexeme}':{','.join(found)}" for lexeme, found in places.items())


def find_state(connection: Connection, scope: int) -> tuple[int, int]:
    """The revision of a scope, and the one up to which it is indexed."""
    revision, mark = connection.execute(_STATE, {"scope": scope}).one()
    return revision, mark


def advance_watermark(connection: Connection, scope: int, reached: int) -> None:
    """Say that everything up to a revision is indexed."""
    mark = connection.execute(_MARK_FIND, {"scope": scope}).scalar_one_or_none()
    if mark is None:
        connection.execute(_MARK_ADD, {"scope_id": scope, "revision": reached})
    elif mark < reached:
        connection.execute(_MARK_RAISE, {"scope": scope, "reached": reached})


def find_hits(
    connection: Connection, owner: ProjectRow, words: Sequence[str], schemes: Sequence[str], hits: int
) -> list[RankedEntry]:
    """The entries of a project that hold some of the words and that a run sees which is there for the viewer."""
    is_postgresql = connection.dialect.name == POSTGRESQL
    wanted = list(dict.fromkeys(lexeme for word in words for lexeme in lexemes_of(word)))
    if not wanted:
        return []
    # Quoted, words are words: nothing that somebody looks for is an operator of the query language.
    query: object = wanted if is_postgresql else " OR ".join(f'"{lexeme}"' for lexeme in wanted)
    values: dict[str, object] = {"words": query, "scope": owner.scope, "hits": hits}
    if schemes:
        values["schemes"] = list(schemes)
    if (viewer := viewer_in(owner.project.name)) is not None:
        values["viewer"] = viewer
    statement = _HITS[is_postgresql, bool(schemes), viewer is not None]
    return [RankedEntry(*row) for row in connection.execute(statement, values)]
