"""Where records and channels stand. Rows RU081, RU129, RU153, RU178."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.entries import Entry, State, Tier, Visibility
from turnwright_core.limits import PATH_CHARS_MAX
from turnwright_core.streams import channel_base, channel_path, record_of_channel
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.effect_class import EffectClass
from turnwright_executor.domain.records import error_path, record_path, target_of
from turnwright_executor.turn.records import new_record_write, record_from_entry
from turnwright_grammar import Command

from .commands import built, command


@pytest.mark.parametrize(
    ("text", "target", "path"),
    [
        ('<get path="src/app.py"/>', "src/app.py", "log://turn_3/get/src/app.py"),
        ("<sh>npm test</sh>", "npm test", "log://turn_3/sh/npm_test"),
        ('<set path="known://a b">x</set>', "known://a b", "log://turn_3/set/known%3A/a_b"),
        ('<mv path="a" to="b"/>', "a", "log://turn_3/mv/a"),
        ('<update status="200">done</update>', "", "log://turn_3/update/5"),
        ("<think>hm</think>", "", "log://turn_3/think/5"),
    ],
)
def test_a_record_is_named_by_turn_tool_and_target(text, target, path):
    assert target_of(command(text)) == target
    assert record_path(3, command(text), 4, ()) == path


def test_equal_slugs_of_one_turn_get_a_suffix():
    taken: set[str] = set()
    for _ in range(3):
        taken.add(record_path(1, command('<get path="a"/>'), 0, taken))
    assert taken == {"log://turn_1/get/a", "log://turn_1/get/a+2", "log://turn_1/get/a+3"}


def test_a_target_cannot_imitate_a_suffix():
    assert record_path(1, built("get", {"path": "a+2"}), 0, ()) == "log://turn_1/get/a%2B2"


def test_output_goes_to_the_scheme_of_the_tool():
    assert channel_base("log://turn_1/sh/make_-C/x+2") == "sh://turn_1/make_-C/x+2"
    assert channel_path("log://turn_1/env/ls", 2) == "env://turn_1/ls_2"
    assert record_of_channel("env://turn_1/ls_2") == ("log://turn_1/env/ls", 2)
    assert record_of_channel("sh://call_0123456789abcdef/ls_1") == ("log://call_0123456789abcdef/sh/ls", 1)
    assert record_of_channel("sh://turn_12/make_-C/x_1+2_1") == ("log://turn_12/sh/make_-C/x_1+2", 1)
    assert [record_of_channel(path) for path in ("known://a_1", "src/a_1", "sh://turn_1/ls", "sh://turn_1/ls_0")] == [
        None
    ] * 4


def test_an_error_has_a_record_of_its_own():
    assert error_path(2, "unreadable call", ()) == "log://turn_2/error/unreadable_call"
    assert error_path(2, "", {"log://turn_2/error/error"}) == "log://turn_2/error/error+2"


@given(name=st.text(min_size=1), target=st.text(max_size=600), turn=st.integers(1, 10**6), ordinal=st.integers(0, 99))
def test_any_command_has_a_path_that_a_store_takes(name, target, turn, ordinal):
    path = record_path(turn, Command(name, {"path": target}), ordinal, ())
    assert path.startswith(f"log://turn_{turn}/")
    assert len(path) <= PATH_CHARS_MAX
    assert path.isascii()


def test_a_command_comes_back_from_its_record():
    sent = command('<set path="a" summary="s">body</set>')
    write = new_record_write(CommandRecord("log://turn_1/set/a", "set", "a", sent, 2, EffectClass.IDEMPOTENT, "k"))
    kept = Entry(
        "log://turn_1/set/a", "log", "run:1", "", 0, write.change.attributes_json, Visibility.VISIBLE, State.RECORDED,
        "", Tier.SYSTEM, 1, 1, 1, 1, 1, "", 0,
    )  # fmt: skip
    back = record_from_entry(kept)
    assert (back.tool, back.target, back.ordinal, back.effect_class, back.key) == (
        "set", "a", 2, EffectClass.IDEMPOTENT, "k",
    )  # fmt: skip
    command_back = back.command
    assert (command_back.name, dict(command_back.attributes), command_back.body) == (
        sent.name, dict(sent.attributes), sent.body,
    )  # fmt: skip
