"""Statements that are built when they are needed, by whichever threads need them; and what PostgreSQL makes of all."""

import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest

from turnwright_store.edge.postgres_statements import compiled_for_postgres
from turnwright_store.edge.precompiled import statements
from turnwright_store.sql.lazy import Lazy, built

SQLITE_ALONE = ("search._EMPTY", "search._FTS5_", "search._HITS")
MEET_S = 0.2


# ADR 49
def test_a_part_of_statements_that_threads_build_at_once_is_one_object():
    # Two threads meet in it, unless one of them waits for the other.
    meeting = threading.Barrier(2)

    def alias():
        with contextlib.suppress(threading.BrokenBarrierError):
            meeting.wait(MEET_S)
        return object()

    shared = Lazy(alias, (), {})
    with ThreadPoolExecutor(2) as threads:
        first, second = threads.map(lambda _: built([shared]), range(2))
    assert first == second == built([shared])


@pytest.mark.parametrize("form", ["one", "many"])
def test_postgresql_prepares_every_statement(postgres_url, form):
    refused = {}
    with psycopg.connect(postgres_url, autocommit=True) as connection:
        for name, statement in statements():
            sent = getattr(compiled_for_postgres(statement), form)
            if sent and not name.startswith(SQLITE_ALONE):
                answer = connection.pgconn.prepare(b"", sent.sql.encode())
                if answer.error_message:
                    refused[name] = answer.error_message.decode()
    assert refused == {}
