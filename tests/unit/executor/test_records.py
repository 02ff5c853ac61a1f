"""Where records and channels stand. Rows RU081, RU129, RU153, RU178."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from turnwright.types.v1 import command_record_pb2
from turnwright_values.types import (
    ClientCall,
    CommandEffect,
    DecisionKind,
    Entry,
    FileEdit,
    FileEffect,
    Permission,
    QuestionEffect,
    State,
    Tier,
    Visibility,
)

from turnwright_core.decisions import Decision
from turnwright_core.limits import PATH_CHARS_MAX
from turnwright_core.streams import channel_base, channel_path, record_of_channel
from turnwright_executor.domain.command_record import CommandRecord, Done, Stage
from turnwright_executor.domain.effects import CallEffect, EffectClass
from turnwright_executor.domain.records import error_path, record_path, target_of
from turnwright_executor.turn.records import new_record_write
from turnwright_executor.wire.command_records import is_command, record_from_entry
from turnwright_grammar.reply import Command

from .commands import command


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
    assert target_of(command(text), {}) == target
    assert record_path(3, command(text).name, target, 4, ()) == path


def test_equal_slugs_of_one_turn_get_a_suffix():
    taken: set[str] = set()
    for _ in range(3):
        taken.add(record_path(1, "get", "a", 0, taken))
    assert taken == {"log://turn_1/get/a", "log://turn_1/get/a+2", "log://turn_1/get/a+3"}


def test_a_target_cannot_imitate_a_suffix():
    assert record_path(1, "get", "a+2", 0, ()) == "log://turn_1/get/a%2B2"


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
    path = record_path(turn, name, target, ordinal, ())
    assert path.startswith(f"log://turn_{turn}/")
    assert len(path) <= PATH_CHARS_MAX
    assert path.isascii()


def kept(record: CommandRecord) -> Entry:
    """The entry that a new record makes."""
    change = new_record_write(record).change
    return Entry(
        record.path, "log", "run:1", change.body, 0, change.attributes_json, Visibility.VISIBLE, record.state,
        record.outcome, Tier.SYSTEM, 1, 1, 1, 1, 1, "", 0, change.record,
    )  # fmt: skip


SENT = Command("set", {"path": "a", "summary": "s", "before": "1"}, "body\0")
NEW = CommandRecord("log://turn_1/set/a", "set", "a", SENT, 2, EffectClass.IDEMPOTENT, "k", attributes={"notes": [1]})
EDIT = FileEffect((FileEdit("a", None, "new", "+new"), FileEdit("b", "h", None, "-b", amended=True, like="a")))
ACCEPTED = Decision(DecisionKind.ACCEPTED, "yes", "alice", 1234, {"a": "mine", "": "x"}, client_runs=True)
ASKED = QuestionEffect("Did it happen?", ("yes", "no"))
WAITING = NEW.prepared(EDIT, "do it", {}).proposed()
GRANTED = replace(WAITING, state=State.RECORDED, decision=ACCEPTED)
REJECTED = Decision(DecisionKind.REJECTED, "no", "bob", 1)


@pytest.mark.parametrize(
    ("record", "stage"),
    [
        (NEW, Stage.RECORDED),
        (replace(NEW, ordinal=None, call=ClientCall("alice", "0" * 64, "here")), Stage.RECORDED),
        (NEW.prepared(EDIT, "do it", {"more": 1}), Stage.RECORDED),
        (WAITING, Stage.PROPOSED),
        (GRANTED, Stage.ACCEPTED),
        (replace(GRANTED, decision=replace(ACCEPTED, contents={}, edited=("", "a"))).dispatched(), Stage.DISPATCHED),
        *[
            (
                NEW.prepared(CommandEffect("ls", 1.5, True, "bob"), "", {}).permitted(permission).dispatched(),
                Stage.DISPATCHED,
            )
            for permission in Permission
        ],
        (GRANTED.dispatched().asked(ASKED), Stage.ASKED),
        (replace(GRANTED.dispatched().asked(ASKED), state=State.RECORDED, decision=ACCEPTED), Stage.ANSWERED),
        (GRANTED.settled(Done("done", attributes={"exit_code": 0})), Stage.SETTLED),
        (replace(WAITING, state=State.FAILED, outcome="rejected:403", decision=REJECTED), Stage.SETTLED),
        (NEW.prepared(CallEffect({"to": ["b", None, 1.5]}), "", {}), Stage.RECORDED),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_record_is_read_as_it_was_written(record, stage):
    # RU128
    back = record_from_entry(kept(record))
    assert (back, back.stage) == (record, stage)
    assert list(back.command.attributes) == list(record.command.attributes)


def test_a_command_that_is_stopped_from_outside_is_over_wherever_it_stood():
    entry = replace(kept(GRANTED.dispatched()), state=State.CANCELLED, outcome="aborted:499")
    assert record_from_entry(entry).stage is Stage.SETTLED


def test_an_effect_that_this_version_does_not_know_is_prepared_again():
    message = command_record_pb2.CommandRecord.FromString(kept(WAITING).record)
    message.proposed.effect.Clear()
    message.proposed.effect.SetInParent()
    entry = replace(kept(WAITING), record=message.SerializeToString(), state=State.RECORDED)
    back = record_from_entry(entry)
    assert (back.effect, back.stage) == (None, Stage.RECORDED)


@pytest.mark.parametrize(
    ("entry", "found"),
    [
        (kept(NEW), True),
        (replace(kept(NEW), writer=Tier.MODEL), False),
        (replace(kept(NEW), writer=Tier.MODEL, state=State.RESOLVED), True),
        (replace(kept(NEW), record=b""), False),
        (replace(kept(NEW), attributes_json='{"ordinal":1}', record=b""), False),
        (kept(replace(NEW, ordinal=None)), False),
    ],
)
def test_only_what_the_runtime_recorded_is_a_command(entry, found):
    assert is_command(entry) is found


def test_what_a_tag_shows_stands_in_the_attributes_and_the_rest_in_the_record():
    assert json.loads(kept(GRANTED).attributes_json) == {"tool": "set", "target": "a", "notes": [1]}
