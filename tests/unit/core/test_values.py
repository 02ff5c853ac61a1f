"""Values: what holds of every class that `@frozen` makes."""

from __future__ import annotations

from dataclasses import asdict, astuple, field, fields, replace

import pytest

from turnwright_core.values import frozen


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
