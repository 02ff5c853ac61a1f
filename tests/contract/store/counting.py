"""A look into the test's database beside the store: how many rows and bytes its tables hold."""

from contextlib import contextmanager

from sqlalchemy import create_engine, func, select, text

from turnwright_store.sql.tables import metadata, search_marks


@contextmanager
def connected(db, home):
    """A connection of its own to the database of a test: `db` and `tmp_path` are its fixtures."""
    url = db.replace("postgresql://", "postgresql+psycopg://", 1) if db else f"sqlite:///{home}/turnwright.db"
    engine = create_engine(url)
    try:
        with engine.begin() as connection:
            yield connection
    finally:
        engine.dispose()


def row_counts(db, home) -> dict[str, int]:
    """Rows of each table but that of the search index's progress, which follows writes in its own time."""
    with connected(db, home) as connection:
        return {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in metadata.tables.items()
            if table is not search_marks
        }


def stored_bytes(db, home, *tables: str) -> int:
    """What the tables take with their indexes, in bytes of pages; on SQLite that of the whole file."""
    with connected(db, home) as connection:
        if db:
            sizes = " + ".join(f"pg_total_relation_size('{table}')" for table in tables)
            return int(connection.execute(text(f"SELECT {sizes}")).scalar_one())
        used = "SELECT (page_count - freelist_count) * page_size FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
        return int(connection.execute(text(used)).scalar_one())
