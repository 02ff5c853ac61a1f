"""A statement is prepared once for a connection, whatever its parameters are.

SQLite prepares one anew when it has looked at a parameter for its plan. Its authorizer is asked about a statement when
it is prepared, and never when it runs.
"""

import contextlib
import importlib
import pkgutil
import re
import sqlite3

import pytest
from sqlalchemy import CompoundSelect, Delete, Select, Update
from sqlalchemy.dialects import sqlite

import turnwright_store.sql
from turnwright_store.edge.connection import SqliteLink
from turnwright_store.edge.schema import upgrade_to_head

DIALECT = sqlite.dialect(paramstyle="qmark")


def statements():
    """Every statement that stands in a module, by its name."""
    found = {}
    for module in pkgutil.iter_modules(turnwright_store.sql.__path__):
        names = vars(importlib.import_module(f"turnwright_store.sql.{module.name}"))
        for name, value in names.items():
            each = value.values() if isinstance(value, dict) else [value]
            for place, statement in enumerate(each):
                if isinstance(statement, Select | CompoundSelect | Update | Delete):
                    found.setdefault(id(statement), (f"{module.name}.{name}.{place}", statement))
    return dict(found.values())


def text_of(statement):
    return re.sub(r"\(?__\[POSTCOMPILE_(\w+)\]\)?", "(?)", str(statement.compile(dialect=DIALECT)))


STATEMENTS = statements()


@pytest.fixture(scope="module")
def raw():
    link = SqliteLink(":memory:", ())
    link.open()
    upgrade_to_head(link.raw, link.core)
    yield link.raw
    link.close()


@pytest.mark.parametrize("name", STATEMENTS)
def test_a_statement_is_prepared_once(raw, name):
    text = text_of(STATEMENTS[name])
    asked = []
    raw.set_authorizer(lambda *_: asked.append(1) or sqlite3.SQLITE_OK)
    for value in (1, 2):
        asked.clear()
        # A value that a column does not take is refused when the statement runs: it was prepared by then.
        with contextlib.suppress(sqlite3.IntegrityError):
            raw.execute(text, [value] * text.count("?")).fetchall()
    assert (asked, len(STATEMENTS) > 150) == ([], True)
