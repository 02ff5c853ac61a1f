"""Records of annotated fields, cheap to define and cheap to make.

`@frozen` is `@dataclass(frozen=True, slots=True)` for whoever reads the class or checks its types. What differs is the
price: a frozen dataclass compiles six methods when its module is loaded, and sets each field of an instance through a
call; here one method is compiled, with the first instance, and fields are set as those of any object. That nobody
changes a value is checked where types are checked, and not while it runs. `@sealed` refuses it then too: for what is
handed to code that nobody checks. `@mutable` is `@dataclass(slots=True)`.
Source: docs/adr/0014.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, Field, FrozenInstanceError, dataclass, field, fields
from operator import attrgetter
from typing import Any, Final, TypeVar, dataclass_transform

C = TypeVar("C")

_LATER: Final = object()
"""Given for a field that its factory makes."""


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[C]) -> type[C]:
    """Make a class of annotated fields a value: made from them, equal by them, shown with them.

    `fields`, `replace`, `asdict` and `astuple` of dataclasses work on it.
    """
    made: type[C] = _record(cls)
    return made


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def sealed(cls: type[C]) -> type[C]:
    """As `frozen`; assigning to a field of an instance raises FrozenInstanceError."""
    made: Any = _record(cls, "_set(self, {name!r}, {value})")
    made.__setattr__ = made.__delattr__ = _refuse
    made.__setstate__ = _restore
    return made  # type: ignore[no-any-return]


@dataclass_transform(field_specifiers=(field,))
def mutable(cls: type[C]) -> type[C]:
    """As `frozen`, with fields that may be assigned to; such records have no hash."""
    is_hashed = "__hash__" in cls.__dict__
    made: Any = _record(cls)
    if not is_hashed:
        made.__hash__ = None
    return made  # type: ignore[no-any-return]


def _record(cls: Any, setting: str = "self.{name} = {value}") -> Any:
    own = cls.__dict__
    # Without a text of its own a dataclass describes its signature, which takes as long as all the rest.
    cls.__doc__ = cls.__doc__ or cls.__name__
    made: Any = dataclass(slots=True, eq=False, repr=False, init=False)(cls)
    if "__init__" not in own:
        made.__init__ = _made_later(made, setting)
    compared = _getter(tuple(each.name for each in fields(made) if each.compare))
    if "__eq__" not in own:
        made.__eq__ = _equality(compared)
        made.__hash__ = lambda self: hash(compared(self))
    if "__repr__" not in own:
        made.__repr__ = _shown(tuple(each.name for each in fields(made) if each.repr))
    return made


def _refuse(made: Any, name: str, *_value: Any) -> None:
    raise FrozenInstanceError(f"{made.__class__.__name__}.{name} cannot be changed: make another one by `replace`")


def _restore(made: Any, state: tuple[None, dict[str, Any]]) -> None:
    """What a copy is given, of `copy` and of `pickle`."""
    for name, value in state[1].items():
        object.__setattr__(made, name, value)


def _made_later(cls: Any, setting: str) -> Callable[..., None]:
    """An `__init__` that makes the real one with the first instance: most classes of a process never have any."""

    def first(made: Any, *given: Any, **named: Any) -> None:
        cls.__init__ = _init(cls, setting)
        cls.__init__(made, *given, **named)

    return first


def _init(cls: Any, setting: str) -> Callable[..., None]:
    """Takes the fields in their order, those with `kw_only` by name, and sets them."""
    known: dict[str, Any] = {"_later": _LATER, "_set": object.__setattr__}
    given, named, lines = ["self"], ["*"], []
    for each in fields(cls):
        known |= {f"_default_{each.name}": each.default, f"_make_{each.name}": each.default_factory}
        if each.init:
            (named if each.kw_only else given).append(_parameter(each))
        if value := _value(each):
            lines.append(" " + setting.format(name=each.name, value=value))
    if hasattr(cls, "__post_init__"):
        lines.append(" self.__post_init__()")
    parameters = ", ".join(given + (named if len(named) > 1 else []))
    exec("\n".join([f"def __init__({parameters}):", *lines, " return"]), known)  # noqa: S102 - names of fields
    made: Callable[..., None] = known["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _parameter(each: Field[Any]) -> str:
    if each.default is not MISSING:
        return f"{each.name}=_default_{each.name}"
    return each.name if each.default_factory is MISSING else f"{each.name}=_later"


def _value(each: Field[Any]) -> str:
    """What a field is set to; nothing for one that `__post_init__` sets."""
    if each.default_factory is not MISSING:
        made = f"_make_{each.name}()"
        return f"{made} if {each.name} is _later else {each.name}" if each.init else made
    if each.init:
        return each.name
    return "" if each.default is MISSING else f"_default_{each.name}"


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
