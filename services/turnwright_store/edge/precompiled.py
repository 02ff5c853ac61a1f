"""Statements for SQLite that are compiled when the store is built: a running store needs no SQLAlchemy for them.

`make statements` compiles them anew. A statement is found by a digest of how it is written, so one that was changed
since is compiled when it is used. The digest does not tell of changed tables and types: a test compiles all anew.
"""

from __future__ import annotations

import pkgutil
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, json

import turnwright_store.sql
from turnwright_store.edge.statements import CompiledStatement
from turnwright_store.ports import SQLITE
from turnwright_store.sql.compression import READERS, WRITERS
from turnwright_store.sql.lazy import Lazy, built, digest_of

FILE: Final = Path(__file__).with_name("precompiled.json")

TypeNames = tuple[tuple[int, str], ...]
"""Which parameters or columns are converted, by position, and the names of their types."""


class StoredStatement(Struct, frozen=True, array_like=True):
    """A compiled statement whose values are converted by the names of their types (see sql.compression)."""

    sql: str
    names: tuple[str, ...]
    constants: dict[str, Any]
    writes: TypeNames
    lists: tuple[int, ...]
    reads: TypeNames
    returns: bool

    def prepared(self, dialect: str = SQLITE) -> CompiledStatement:
        writers = WRITERS[dialect]
        return CompiledStatement(
            self.sql,
            self.names,
            self.constants,
            tuple((place, writers[name]) for place, name in self.writes),
            self.lists,
            tuple((place, READERS[name]) for place, name in self.reads),
            returns=self.returns,
        )


_DECODER: Final = json.Decoder(dict[str, StoredStatement])


@cache
def _all() -> dict[str, StoredStatement]:
    return _DECODER.decode(FILE.read_bytes())


def find(digest: str) -> CompiledStatement | None:
    """The statement for SQLite, if it was compiled."""
    stored = _all().get(digest)
    return stored.prepared() if stored else None


def compile_if_new(statement: Any) -> CompiledStatement:
    """Compile a statement that was not."""
    from turnwright_store.edge.compiling import SQLITE_DIALECT, compile_for  # noqa: PLC0415 - loads SQLAlchemy

    return compile_for(SQLITE_DIALECT, statement).prepared()


def statements() -> Iterator[tuple[str, Lazy]]:
    """All statements that are constants of modules, by their names."""
    from sqlalchemy import CompoundSelect, Select, TextClause, UpdateBase  # noqa: PLC0415 - only at build time

    for module in pkgutil.iter_modules(turnwright_store.sql.__path__):
        for name, value in vars(import_module(f"turnwright_store.sql.{module.name}")).items():
            several = value.values() if isinstance(value, dict) else value if isinstance(value, tuple) else (value,)
            for number, one in enumerate(several):
                if isinstance(one, Lazy) and isinstance(built(one), CompoundSelect | Select | TextClause | UpdateBase):
                    yield f"{module.name}.{name}.{number}", one


def generate() -> str:
    """All statements, compiled, as JSON."""
    from turnwright_store.edge.compiling import SQLITE_DIALECT, compile_for  # noqa: PLC0415

    found = {digest_of(one): compile_for(SQLITE_DIALECT, built(one)) for _, one in statements()}
    lines = (f'"{digest}":{json.encode(one).decode()}' for digest, one in sorted(found.items()))
    return "{{\n{}\n}}\n".format(",\n".join(lines))


if __name__ == "__main__":
    FILE.write_text(generate())
