"""Values: small immutable records, cheap to define and cheap to make.

`@frozen` is `@dataclass(frozen=True, slots=True)` for whoever reads the class or checks its types. What differs is the
price: a frozen dataclass compiles six methods when its module is loaded, and sets each field of an instance through a
call; here one method is compiled, and fields are set as those of any object. That nobody changes a value is
checked where types are checked, and not while it runs: what is handed to code that nobody checks (plugins) stays a
frozen dataclass. Source: docs/adr/0014.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, fields
from operator import attrgetter
from typing import Any, TypeVar, dataclass_transform

C = TypeVar("C")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[C]) -> type[C]:
    """Make a class of annotated fields a value: made from them, equal by them, shown with them.

    `fields`, `replace`, `asdict` and `astuple` of dataclasses work on it.
    """
    own = cls.__dict__
    made: Any = dataclass(slots=True, eq=False, repr=False)(cls)
    compared = _getter(tuple(each.name for each in fields(made) if each.compare))
    if "__eq__" not in own:
        made.__eq__ = _equality(compared)
        made.__hash__ = lambda self: hash(compared(self))
    if "__repr__" not in own:
        made.__repr__ = _shown(tuple(each.name for each in fields(made) if each.repr))
    return made  # type: ignore[no-any-return]


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    return lambda made: tuple(getattr(made, name) for name in names)


def _equality(compared: Callable[[Any], tuple[Any, ...]]) -> Callable[[Any, Any], Any]:
    def equal(one: Any, other: Any) -> Any:
        if one.__class__ is not other.__class__:
            return NotImplemented
        return compared(one) == compared(other)

    return equal


def _shown(names: tuple[str, ...]) -> Callable[[Any], str]:
    def shown(made: Any) -> str:
        told = ", ".join(f"{name}={getattr(made, name)!r}" for name in names)
        return f"{made.__class__.__qualname__}({told})"

    return shown
