"""Full-text search over a project's shared entries, and the chore that maintains its index.

Theory of operation. Writes do not touch the index. The heads of a scope are ordered by revision, so everything after a
high-water mark is to be indexed; the chore reads a batch of it on a reader connection and stores it in one small write.
The mark is a revision, and a revision can be larger than a batch: the position within one is kept in memory only, and
after a restart indexing resumes at the mark, which indexes some entries twice and misses none.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from msgspec import Struct
from sqlalchemy import Connection
from turnwright_values.store import Durability
from turnwright_values.types import SearchHit

from turnwright_core.checks import check_chars, check_count, invalid
from turnwright_core.limits import SEARCH_HITS_DEFAULT, SEARCH_HITS_MAX, SEARCH_QUERY_CHARS_MAX, SEARCH_SCHEMES_MAX
from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.lexemes import query_words, snippet
from turnwright_store.domain.locks import project_lock
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import registry
from turnwright_store.sql import search as rows
from turnwright_store.sql.search import TEXT_BYTES_MAX, Document, IndexPosition, RankedEntry, StaleIndex

BATCH_ENTRIES_MAX: Final = 64
"""Entries that one round indexes at most."""

BATCH_BYTES_MAX: Final = 512 * 1024
"""Bytes of text after which a round ends, so that the writer is not blocked for long."""

_LAST_ENTRY: Final = 2**62


class IndexBatch(Struct, frozen=True):
    """What one write adds to the index."""

    behind: StaleIndex
    documents: list[Document]
    reached: int
    """Revision up to which everything is indexed after it."""
    next: IndexPosition | None
    """Where the next batch begins; None: there is none."""


def read_batch(connection: Connection, last: int, positions: dict[int, IndexPosition]) -> IndexBatch | None:
    """The next batch, of the next project after `last` that has one."""
    behind = rows.next_stale_index(connection, last)
    if behind is None:
        return None
    begin = max(positions.get(behind.scope, (0, 0)), (behind.mark, _LAST_ENTRY))
    heads = rows.heads_after(connection, behind.scope, begin, BATCH_ENTRIES_MAX)
    documents: list[Document] = []
    total = 0
    for head in heads:
        total += min(head.body_size_bytes, TEXT_BYTES_MAX)
        if documents and total > BATCH_BYTES_MAX:
            break
        documents.append(rows.read_document(connection, head))
    if len(heads) < BATCH_ENTRIES_MAX and len(documents) == len(heads):
        return IndexBatch(behind, documents, behind.revision, None)
    end = documents[-1].head
    return IndexBatch(behind, documents, end.revision - 1, (end.revision, end.entry))


def write_batch(tx: Transaction, batch: IndexBatch) -> None:
    """Add a batch to the index; entries that were written meanwhile come with a later one."""
    rows.put_documents(tx.connection, batch.behind.scope, rows.still_heads(tx.connection, batch.documents))
    rows.advance_watermark(tx.connection, batch.behind.scope, batch.reached)


class Indexer:
    """Maintains the index of one store."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._is_checked = False
        self._last = 0
        self._places: dict[int, IndexPosition] = {}

    async def step(self) -> bool:
        """Index a batch of the next project; returns whether there was one."""
        if not self._is_checked and await self._database.read(rows.is_outdated):
            await self._database.write(lambda tx: rows.reset_index(tx.connection), Durability.NORMAL, set())
        self._is_checked = True
        batch = await self._database.read(partial(read_batch, last=self._last, positions=self._places))
        if batch is None:
            return False
        behind = batch.behind
        await self._database.write(partial(write_batch, batch=batch), Durability.NORMAL, {project_lock(behind.name)})
        self._last = behind.project
        if batch.next:
            self._places[behind.scope] = batch.next
        else:
            self._places.pop(behind.scope, None)
        return True


def indexing(database: Database, every_s: float) -> Chore:
    """The chore that follows the writes of all projects."""
    return Chore("indexing", every_s, Indexer(database).step, follows=database)


class SearchResult(Struct, frozen=True):
    """The hits, best first."""

    hits: list[SearchHit]
    indexed_revision: int
    revision: int


def search_entries(
    connection: Connection, project: str, query: str, schemes: Sequence[str], limit: int
) -> SearchResult:
    """Entries of a project's scope that contain words of the query. Raises InvalidError."""
    check_chars("query", query, SEARCH_QUERY_CHARS_MAX)
    if not query:
        raise invalid("query", "query must contain words to search for.")
    check_count("schemes", len(schemes), SEARCH_SCHEMES_MAX)
    check_count("limit", limit, SEARCH_HITS_MAX)
    owner = registry.get_project(connection, project)
    revision, mark = rows.find_state(connection, owner.scope)
    words = query_words(query)
    # No scheme contains NUL, and one of the databases cannot even be asked for it.
    narrowed = [scheme for scheme in schemes if "\x00" not in scheme]
    is_possible = words and (narrowed or not schemes)
    size = limit or SEARCH_HITS_DEFAULT
    found = rows.find_hits(connection, owner, words, narrowed, size) if is_possible else []
    hits = [SearchHit(hit.path, hit.revision, hit.score, _snippet(connection, hit, words)) for hit in found]
    return SearchResult(hits, mark, revision)


def _snippet(connection: Connection, hit: RankedEntry, words: Sequence[str]) -> str:
    return snippet(rows.indexed_text(connection, hit.entry, hit.revision), words)
