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

from msgspec import json

import turnwright_store.sql
from turnwright_store.edge.statements import CompiledStatement
from turnwright_store.sql.lazy import Lazy, built, digest_of

FILE: Final = Path(__file__).with_name("precompiled.json")

_DECODER: Final = json.Decoder(dict[str, CompiledStatement])


@cache
def _all() -> dict[str, CompiledStatement]:
    return _DECODER.decode(FILE.read_bytes())


# Statements are compared by identity, and stay in memory.
@cache
def compiled(statement: Any) -> CompiledStatement:
    """A statement for SQLite; compiled now if it was not."""
    stored = _all().get(digest_of(statement)) if isinstance(statement, Lazy) else None
    if stored is None:
        from turnwright_store.edge.compiling import SQLITE_DIALECT, compile_for  # noqa: PLC0415 - loads SQLAlchemy

        stored = compile_for(SQLITE_DIALECT, built(statement))
    return stored.prepare()


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
