"""What hooks get: frozen through and through, replaced by msgspec, and checked again when it is."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from msgspec import Struct
from msgspec.structs import replace

from turnwright_assembler import plugins as assembler_plugins
from turnwright_executor import hooks
from turnwright_executor import plugins as executor_plugins
from turnwright_executor.hooks import Command, Content, Recording, Vote


def _kinds(hint: Any) -> Iterator[Any]:
    yield get_origin(hint) or hint
    for argument in get_args(hint):
        yield from _kinds(argument)


def _structs(hints: Any) -> set[type[Struct]]:
    return {kind for hint in hints for kind in _kinds(hint) if isinstance(kind, type) and issubclass(kind, Struct)}


def _reached() -> list[type[Struct]]:
    """The structs that plugins import, and all that their fields lead to."""
    found: set[type[Struct]] = set()
    more = _structs(getattr(hooks, name) for name in hooks.__all__)
    while more:
        found |= more
        more = _structs(hint for kind in more for hint in get_type_hints(kind).values()) - found
    return sorted(found, key=lambda kind: kind.__name__)


def test_a_hook_gets_structs_within_structs() -> None:
    assert {"Recording", "Command", "TurnFacts", "RecordFacts", "Usage", "Cursor"} <= {
        kind.__name__ for kind in _reached()
    }


@pytest.mark.parametrize("kind", _reached())
def test_nothing_that_a_hook_gets_can_be_changed_in_place(kind) -> None:
    hints = [each for hint in get_type_hints(kind).values() for each in _kinds(hint)]

    assert kind.__struct_config__.frozen
    assert not [each for each in hints if each in (list, set, dict)]


@pytest.mark.parametrize("module", [assembler_plugins, executor_plugins])
def test_what_tools_and_sections_get_is_frozen_too(module) -> None:
    kinds = _structs(getattr(module, name) for name in module.__all__)

    assert kinds
    assert all(kind.__struct_config__.frozen for kind in kinds)


def test_neither_a_field_nor_another_name_can_be_set_or_deleted() -> None:
    vote = Vote(True, 102)

    for change in (
        lambda: setattr(vote, "status", 200),
        lambda: setattr(vote, "other", 1),
        lambda: delattr(vote, "status"),
    ):
        with pytest.raises(AttributeError):
            change()
    assert vote == Vote(True, 102)


def test_another_payload_is_made_by_the_replace_of_msgspec() -> None:
    recording = Recording(Command("get", {"path": "a"}))

    assert replace(recording, outcome="refused:403", body="no").outcome == "refused:403"
    assert (recording.outcome, recording.body) == ("", "")
    assert copy.copy(recording) == copy.deepcopy(recording) == recording
    with pytest.raises(TypeError):
        dataclasses.replace(recording, body="no")
    with pytest.raises(TypeError):
        replace(recording, no_field=1)


@pytest.mark.parametrize(
    "change",
    [
        lambda: replace(Content("text"), text="\ud800"),
        lambda: replace(Recording(Command("get", {})), outcome="no code"),
        lambda: replace(Vote(True, 102), status=200),
    ],
)
def test_a_replaced_payload_is_checked_as_a_new_one_is(change) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        change()
