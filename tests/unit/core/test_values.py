"""Values: what holds of every class that `@frozen` makes."""

from __future__ import annotations

import copy
import pickle
from dataclasses import FrozenInstanceError, asdict, astuple, field, fields, replace

import pytest

from turnwright_core.values import frozen, mutable, sealed


@frozen
class Point:
    """Two numbers."""

    x: int
    y: int = 0


@frozen
class Named(Point):
    """A point with a name, and a secret that is neither shown nor compared."""

    name: str = ""
    secret: str = field(default="", repr=False, compare=False)


@frozen
class Made:
    """Fields of every kind."""

    first: int
    listed: list[int] = field(default_factory=list)
    word: str = "w"
    named: int = field(kw_only=True)
    always: dict[str, int] = field(default_factory=dict, init=False)
    constant: int = field(default=7, init=False)
    later: int = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "later", self.first + 1)


@sealed
class Sealed:
    """What nobody can change."""

    x: int
    listed: list[int] = field(default_factory=list)


@mutable
class Mutable:
    """What anybody can."""

    x: int
    y: int = 0


@frozen
class Empty:
    """Nothing."""


@frozen
class Odd:
    """Equal to everything of its parity."""

    number: int

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Odd) and self.number % 2 == other.number % 2

    def __hash__(self) -> int:
        return self.number % 2

    def __repr__(self) -> str:
        return "odd"


def test_values_are_equal_by_their_fields_and_class() -> None:
    assert Point(1, 2) == Point(1, 2)
    assert Point(1, 2) != Point(1, 3)
    assert Point(1, 2) != Named(1, 2)
    assert Point(1, 2) != (1, 2)
    assert Named(1, 2, "a", "s") == Named(1, 2, "a", "t")
    assert Empty() == Empty()
    assert Odd(1) == Odd(3)


def test_equal_values_have_one_hash() -> None:
    assert {Point(1, 2), Point(1, 2), Point(2, 1)} == {Point(2, 1), Point(1, 2)}
    assert hash(Named(1, 2, "a", "s")) == hash(Named(1, 2, "a", "t"))
    assert hash(Odd(1)) == hash(Odd(3))
    assert len({Empty(), Empty()}) == 1


def test_a_value_that_holds_what_cannot_be_hashed_cannot_be_either() -> None:
    with pytest.raises(TypeError, match="unhashable"):
        hash(Point([]))  # type: ignore[arg-type]


def test_values_are_shown_with_their_fields() -> None:
    assert repr(Named(1, 2, "a", "secret")) == "Named(x=1, y=2, name='a')"
    assert (repr(Empty()), repr(Odd(1))) == ("Empty()", "odd")


def test_a_value_has_its_fields_and_no_others() -> None:
    with pytest.raises(AttributeError):
        Point(1).z = 3  # type: ignore[attr-defined]
    assert not hasattr(Point(1), "__dict__")


def test_what_dataclasses_offer_works_on_values() -> None:
    made = Named(1, 2, "a", "s")
    assert replace(made, x=5) == Named(5, 2, "a")
    assert asdict(made) == {"x": 1, "y": 2, "name": "a", "secret": "s"}
    assert astuple(made) == (1, 2, "a", "s")
    assert [each.name for each in fields(made)] == ["x", "y", "name", "secret"]
    match made:
        case Named(x, y):
            assert (x, y) == (1, 2)


def test_fields_of_every_kind_are_set() -> None:
    made, other = Made(1, named=2), Made(3, [4], "x", named=5)
    assert astuple(made) == (1, [], "w", 2, {}, 7, 2)
    assert astuple(other) == (3, [4], "x", 5, {}, 7, 4)
    assert made.listed is not Made(1, named=2).listed
    assert made.always is not other.always


@pytest.mark.parametrize(
    ("given", "named"), [((), {}), ((1,), {}), ((1, [], "", 4, 5), {}), ((1,), {"named": 2, "constant": 3})]
)
def test_what_no_field_takes_is_refused_as_of_any_function(given, named) -> None:
    with pytest.raises(TypeError, match=r"Made\.__init__\(\)"):
        Made(*given, **named)


def test_a_sealed_record_refuses_every_change_and_can_be_copied() -> None:
    made = Sealed(1, [2])
    for change in (lambda: setattr(made, "x", 2), lambda: delattr(made, "x")):
        with pytest.raises(FrozenInstanceError, match=r"Sealed\.x cannot be changed"):
            change()
    assert made == Sealed(1, [2])
    assert hash(Sealed(1, ())) == hash(Sealed(1, ()))  # type: ignore[arg-type]
    assert [replace(made, x=3), copy.copy(made), copy.deepcopy(made), pickle.loads(pickle.dumps(made))] == [
        Sealed(3, [2]),
        made,
        made,
        made,
    ]


def test_a_mutable_record_changes_and_has_no_hash() -> None:
    made = Mutable(1)
    made.y = 2
    assert made == Mutable(1, 2)
    with pytest.raises(AttributeError):
        made.z = 3  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="unhashable"):
        hash(made)
