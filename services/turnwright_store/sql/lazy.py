"""Expressions that are recorded where they are written, and built when they are needed.

Theory of operation. Importing SQLAlchemy and building some hundred statements takes longer than all else that a command
which only reads does. So queries are written with names of `sql.core` and `sql.lazy_tables`, which stand for those of
SQLAlchemy and of our tables; `built` repeats what was written with the real objects, each part once, when a statement
has to be compiled. `digest_of` says what was written: by it the SQL of a statement is found that was compiled before
(see edge.precompiled).
Source: docs/adr/0049.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable
from importlib import import_module
from threading import RLock
from typing import Any, Final

_DIGEST_BYTES: Final = 12

_BUILDING: Final = RLock()
"""Held while an expression is built: two aliases of one table in a statement are two tables of one name."""


class Lazy:
    """An expression that is built when it is needed."""

    __slots__ = ("_arguments", "_built", "_digest", "_options", "_work")

    def __init__(self, work: Callable[..., Any], arguments: tuple[Any, ...], options: dict[str, Any]) -> None:
        self._work = work
        self._arguments = arguments
        self._options = options
        self._built: Any = None
        self._digest = ""

    def __getattr__(self, name: str) -> Lazy:
        if name.startswith("__"):
            raise AttributeError(name)
        return Lazy(getattr, (self, name), {})

    def __call__(self, *arguments: Any, **options: Any) -> Lazy:
        return Lazy(operator.call, (self, *arguments), options)

    def __build__(self) -> Any:
        if self._built is None:
            with _BUILDING:
                if self._built is None:
                    self._built = self._work(*built(self._arguments), **built(self._options))
        return self._built

    def __digest__(self) -> str:
        if not self._digest:
            written = f"{self._work.__name__}{_written(self._arguments)}{_written(self._options)}"
            self._digest = hashlib.blake2b(written.encode(), digest_size=_DIGEST_BYTES).hexdigest()
        return self._digest

    # Its items are those of an expression, not of a list.
    __iter__ = None

    def __bool__(self) -> bool:
        raise TypeError("what an expression of SQL is, only the database knows")


def _operation(name: str) -> Callable[..., Lazy]:
    work = getattr(operator, name)
    return lambda *operands: Lazy(work, operands, {})


for _name in ("add", "and", "eq", "ge", "getitem", "gt", "invert", "le", "lt", "mul", "ne", "neg", "or", "sub"):
    setattr(Lazy, f"__{_name}__", _operation(f"__{_name}__"))


def names_of(*modules: str) -> Callable[[str], Lazy]:
    """`__getattr__` of a module that stands for others: a name is looked up in them, in this order."""
    known: dict[str, Lazy] = {}

    def find(name: str) -> Any:
        return next(vars(one)[name] for one in map(import_module, modules) if name in vars(one))

    def name(called: str) -> Lazy:
        if called.startswith("__"):
            raise AttributeError(called)
        return known.setdefault(called, Lazy(find, (called,), {}))

    return name


def built(value: Any) -> Any:
    """The real object of an expression, also inside of lists, tuples and values of dictionaries; others as they are."""
    if isinstance(value, Lazy):
        return value.__build__()
    if type(value) in (list, tuple):
        return type(value)(map(built, value))
    if type(value) is dict:
        return {key: built(one) for key, one in value.items()}
    return value


def digest_of(statement: Lazy) -> str:
    """A digest of how an expression is written."""
    return statement.__digest__()


def _written(value: Any) -> str:
    if isinstance(value, Lazy):
        return value.__digest__()
    if type(value) in (list, tuple):
        return f"({','.join(map(_written, value))})"
    if type(value) is dict:
        return f"{{{','.join(f'{key}:{_written(one)}' for key, one in value.items())}}}"
    return repr(value)
