"""The client without async has what the one with it has, in the same words."""

import inspect

import pytest

from turnwright_client import Client, SyncClient


def public(kind) -> dict[str, object]:
    return {name: getattr(kind, name) for name in dir(kind) if not name.startswith("_")}


def test_it_has_each_method_of_the_client_and_no_other() -> None:
    assert public(SyncClient).keys() == public(Client).keys()


@pytest.mark.parametrize("name", sorted(public(Client).keys() - {"address", "connect", "run_to_end"}))
def test_a_method_takes_the_same_and_waits_unless_it_iterates(name) -> None:
    ours, theirs = public(SyncClient)[name], public(Client)[name]
    assert inspect.signature(ours) == inspect.signature(theirs)
    assert ours.__doc__ == theirs.__doc__
    is_waiting = inspect.iscoroutinefunction(theirs)
    assert is_waiting is (ours.__code__.co_name == "wait")
