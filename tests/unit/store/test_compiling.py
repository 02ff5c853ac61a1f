"""What is compiled of a statement."""

from turnwright_store.edge.postgres_statements import compiled_for_postgres
from turnwright_store.sql.core import bindparam, update
from turnwright_store.sql.lazy_tables import turns


def test_rows_are_read_by_their_types_also_if_the_statement_was_compiled_without_returning_them():
    alone = update(turns).where(turns.c.number == bindparam("number_is")).values(end_ms=1)
    returning = alone.returning(turns.c.number, turns.c.result)
    assert not compiled_for_postgres(alone).one.returns
    assert [place for place, _ in compiled_for_postgres(returning).one.reads] == [1]
