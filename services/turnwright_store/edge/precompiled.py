"""Statements for SQLite that are compiled when the store is built: what only reads needs no SQLAlchemy for them.

`make statements` compiles them anew. A statement is found by a digest of how it is written, so one that was changed
since is compiled when it is used. The digest does not tell of changed tables and types: a test compiles all anew.
"""

from __future__ import annotations

import pkgutil
from functools import cache
from importlib import import_module
from itertools import chain
from pathlib import Path
from typing import Any, Final

from msgspec import Struct, json

import turnwright_store.sql
from turnwright_store.edge.statements import CompiledStatement, Values, values_getter
from turnwright_store.sql.compression import READERS
from turnwright_store.sql.lazy import Lazy, built, digest_of

FILE: Final = Path(__file__).with_name("precompiled.json")


class _Kept(Struct, frozen=True, array_like=True):
    sql: str
    names: tuple[str, ...]
    constants: dict[str, Any]
    expanded: tuple[str, ...]
    results: tuple[tuple[int, str], ...]


_DECODER: Final = json.Decoder(dict[str, _Kept])


@cache
def _all() -> dict[str, _Kept]:
    return _DECODER.decode(FILE.read_bytes())


def find(digest: str) -> CompiledStatement | None:
    """The statement for SQLite, if it was compiled."""
    kept = _all().get(digest)
    if kept is None:
        return None
    results = tuple((place, READERS[name]) for place, name in kept.results)
    names = kept.names
    return CompiledStatement(
        kept.sql, names, values_getter(names), kept.constants, (), frozenset(kept.expanded), results, returns=True
    )


def compile_if_new(statement: Any, values: Values) -> CompiledStatement:
    """Compile a statement that was not."""
    from turnwright_store.edge.compiling import compile_for_sqlite  # noqa: PLC0415 - loads SQLAlchemy

    return compile_for_sqlite(statement, values)


def generate() -> str:
    """All queries that are constants of modules, compiled, as JSON."""
    from sqlalchemy import CompoundSelect, Select  # noqa: PLC0415 - what only reads needs none of it

    from turnwright_store.edge.compiling import compile_for_sqlite  # noqa: PLC0415

    words = {convert: name for name, convert in READERS.items()}
    found = {}
    for module in pkgutil.iter_modules(turnwright_store.sql.__path__):
        named = vars(import_module(f"turnwright_store.sql.{module.name}")).values()
        for one in chain(named, *(value.values() for value in named if isinstance(value, dict))):
            if not isinstance(one, Lazy) or not isinstance(built(one), CompoundSelect | Select):
                continue
            compiled = compile_for_sqlite(built(one), {})
            if not compiled.converts:
                found[digest_of(one)] = _Kept(
                    compiled.sql,
                    compiled.names,
                    dict(compiled.constants),
                    tuple(sorted(compiled.expanded)),
                    tuple((place, words[convert]) for place, convert in compiled.results),
                )
    lines = (f'"{digest}":{json.encode(one).decode()}' for digest, one in sorted(found.items()))
    return "{{\n{}\n}}\n".format(",\n".join(lines))


if __name__ == "__main__":
    FILE.write_text(generate())
