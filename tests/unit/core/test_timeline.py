"""Which entries of a run are messages, in which order, and what each says. OM01, OM02, OM08, OM09, OM15, RH01; C40, C41."""

from __future__ import annotations

import json
from typing import Any

import pytest
from turnwright.types.v1.command_record_pb2 import CommandAttribute, CommandRecord, CommandText
from turnwright_values.replies import ThinkingBlock
from turnwright_values.types import (
    Entry,
    MessageKind,
    ReplyKind,
    RunMessage,
    State,
    Tier,
    Turn,
    TurnRequest,
    TurnResult,
    Usage,
    Visibility,
)

from turnwright_core.chat.message import Role, Text
from turnwright_core.chat.timeline import kind_of, messages_in, named_turn, parts_of, run_message, turn_of
from turnwright_core.text import scheme_of
from turnwright_core.value_methods import to_attributes_json
from turnwright_core.wire.command_records import recorded_call

REQUEST = TurnRequest("m", "vendor/model", 1000, 0.1, ("get",))


def entry(path: str, body: str = "", position: int = 1, **said: Any) -> Entry:
    attributes = to_attributes_json(said.pop("attributes", {}))
    defaults: dict[str, Any] = {
        "visibility": Visibility.VISIBLE, "state": State.RESOLVED, "outcome": "", "writer": Tier.SYSTEM, "turn": 9,
        "update_ms": 5,
    }  # fmt: skip
    return Entry(
        path=path, scheme=scheme_of(path) or "", scope="run:r", body=body, body_size_bytes=len(body.encode()),
        attributes_json=attributes, loop=1, position=position, write_count=1, revision=1, hash="",
        **{**defaults, **said},
    )  # fmt: skip


def record(tool: str, body: str = "", typed: tuple[str, ...] = (), **attributes: str) -> bytes:
    told = [CommandAttribute(name=name, value=value) for name, value in attributes.items()]
    text = CommandText(attributes=told, body=body, json_names=typed)
    return CommandRecord(tool=tool, command=text, ordinal=0, call_id="call_1_0", vendor_call_id="v").SerializeToString()


def message(one: Entry, *parts: Entry, turn: Turn | None = None) -> RunMessage:
    return run_message(one, {part.path: part for part in parts}, turn, recorded_call)


def ended(kind: ReplyKind = ReplyKind.REPLY, **result: Any) -> Turn:
    said = TurnResult("stop", usage=Usage(total_tokens=3, cost_usd=0.5), kind=kind, **result)
    return Turn(1, 1, REQUEST, said, 2, 4)


KINDS = {
    "prompt": (entry("prompt://1"), MessageKind.PROMPT),
    "reply": (entry("assistant://1"), MessageKind.REPLY),
    "steering": (entry("log://turn_1/inject/message", attributes={"tool": "inject"}), MessageKind.STEERING),
    "error": (entry("log://turn_1/error/x", attributes={"tool": "error"}), MessageKind.SYNTHETIC),
    "error of a call": (
        entry("log://turn_1/error/x", attributes={"tool": "error", "call_id": "call_1_0"}),
        MessageKind.RESULT,
    ),
    "manifest": (
        entry("log://turn_0/repo/manifest", attributes={"tool": "repo"}, writer=Tier.PLUGIN),
        MessageKind.SYNTHETIC,
    ),
    "result": (entry("log://turn_1/get/a", record=record("get")), MessageKind.RESULT),
    "failed result": (entry("log://turn_1/get/a", record=record("get"), state=State.FAILED), MessageKind.RESULT),
    "event": (entry("event://turn_1/tick/a", attributes={"event": {"subkind": "tick"}}), MessageKind.EVENT),
    "command under way": (entry("log://turn_1/sh/a", record=record("sh"), state=State.RECORDED), None),
    "proposal": (entry("log://turn_1/sh/a", record=record("sh"), state=State.PROPOSED), None),
    "a model's own log": (entry("log://turn_1/inject/x", attributes={"tool": "inject"}, writer=Tier.MODEL), None),
    "file": (entry("a.txt"), None),
    "known": (entry("known://a"), None),
    "reasoning": (entry("reasoning://1"), None),
    "instructions": (entry("instructions://system"), None),
    "plan": (entry("plan://main", attributes={"version": 1}), None),
}


@pytest.mark.parametrize(("one", "kind"), KINDS.values(), ids=KINDS)
def test_what_an_entry_is(one, kind):
    assert kind_of(one) is kind


def test_messages_stand_in_the_order_of_their_positions_whatever_the_clock_said():
    # OM15
    entries = [
        entry("assistant://1", position=3, update_ms=1), entry("prompt://1", position=2, update_ms=9),
        entry("a.txt", position=1), entry("log://turn_1/inject/message", position=4, attributes={"tool": "inject"}),
    ]  # fmt: skip
    assert [one.position for one in messages_in(entries)] == [2, 3, 4]


def test_a_prompt_has_role_turn_and_time_and_no_settings():
    # OM01: the turn says what it was made with
    said = message(entry("prompt://7", "Do it.", attributes={"mode": "act"}), turn=Turn(7, 1, REQUEST, begin_ms=2))
    assert (said.message.role, said.message.parts, said.turn, said.create_ms) == (Role.USER, (Text("Do it."),), 7, 2)
    assert (said.usage, said.result, said.message.vendor_model) == (None, None, "")


def test_a_reply_has_role_turn_usage_and_result():
    # OM02, OM04
    said = message(entry("assistant://1", "Done."), turn=ended(answer="{}", error="word:400"))
    assert (said.message.role, said.turn, said.usage) == (Role.ASSISTANT, 1, Usage(total_tokens=3, cost_usd=0.5))
    assert said.result
    assert (said.result.finish, said.result.error, said.result.answer) == ("stop", "word:400", "{}")
    assert (said.kind, said.result.kind) == (MessageKind.REPLY, ReplyKind.REPLY)
    assert said.message.vendor_model == "vendor/model"


def test_a_summary_is_a_kind_of_its_own_and_a_turn_of_an_earlier_release_is_a_reply():
    # OM04
    summary = message(entry("assistant://1"), turn=ended(ReplyKind.SUMMARY))
    assert summary.result
    assert (summary.kind, summary.result.kind) == (MessageKind.SUMMARY, ReplyKind.SUMMARY)
    old = message(entry("assistant://1"), turn=ended(ReplyKind.UNSPECIFIED))
    assert old.result
    assert (old.kind, old.result.kind) == (MessageKind.REPLY, ReplyKind.REPLY)


@pytest.mark.parametrize("turn", [None, Turn(1, 1, REQUEST, begin_ms=2)], ids=["no turn", "an open turn"])
def test_what_is_not_known_of_a_reply_is_absent(turn):
    # OM05, OM09
    said = message(entry("assistant://1", "Hm."), turn=turn)
    assert (said.usage, said.result) == (None, None)


def test_the_turn_is_what_the_path_names_whoever_touched_the_entry_since():
    # OM07
    assert [turn_of(entry(path, turn=9)) for path in ("prompt://1", "log://turn_2/get/a", "event://turn_3/tick/a")] == [
        1, 2, 3,
    ]  # fmt: skip
    assert turn_of(entry("log://call_abc/get/a", turn=9)) == 9
    assert [named_turn(path) for path in ("a.txt", "known://turn_1/x", "prompt://x", "log://turn_/x")] == [None] * 4


def test_calls_have_their_arguments_from_their_records_with_the_types_that_they_were_given():
    # C41
    get = entry(
        "log://turn_1/get/a",
        record=record("get", typed=("line", "deep", "gone"), path="a", line="5", deep='{"x":[1,null]}'),
    )
    reply = entry("assistant://1", attributes={"calls": [{"path": get.path, "call_id": "call_1_0", "id": "v"}]})
    assert parts_of(reply) == ("reasoning://1", get.path)
    [call] = message(reply, get).message.calls
    assert (call.name, call.id, call.call_id) == ("get", "v", "call_1_0")
    assert json.loads(call.arguments) == {"path": "a", "line": 5, "deep": {"x": [1, None]}}


def test_what_a_filter_put_in_the_place_of_a_number_is_a_text():
    call = recorded_call(record("get", body="[", typed=("line", "body"), line="the first"))
    assert json.loads(call.arguments) == {"line": "the first", "body": "["}


def test_a_call_that_became_no_command_is_as_the_reply_keeps_it_and_has_its_error_as_result():
    told = {"call_id": "call_1_0", "id": "v", "name": "get", "arguments": '{"pa'}
    [call] = message(entry("assistant://1", attributes={"calls": [told]})).message.calls
    assert (call.name, call.arguments, call.call_id) == ("get", '{"pa', "call_1_0")
    error = entry(
        "log://turn_1/error/x", "Cut.", state=State.FAILED, attributes={"tool": "error", "call_id": "call_1_0"}
    )
    said = message(error).message
    assert (said.role, said.text, said.call_id, said.failed) == (Role.TOOL, "Cut.", "call_1_0", True)


@pytest.mark.parametrize(
    ("path", "name"), [("log://turn_1/sh/ls", "sh"), ("log://turn_1//1", "unknown"), ("", "unknown")]
)
def test_a_record_that_was_taken_away_leaves_a_call_of_its_tool(path, name):
    reply = entry("assistant://1", attributes={"calls": [{"path": path, "call_id": "call_1_0"}]})
    [call] = message(reply).message.calls
    assert (call.name, call.arguments) == (name, "")


def test_a_reply_keeps_what_its_vendor_wants_back():
    block = {"type": "thinking", "index": 0, "id": "", "text": "Hm.", "signature": "sig", "data": ""}
    reply = entry(
        "assistant://1", "Hi.", attributes={"thinking": [block], "extra": '{"a":1}', "citations": ['{"url":"u"}']}
    )
    said = message(reply, entry("reasoning://1", "Hm.")).message
    assert said.thinking == (ThinkingBlock("thinking", 0, "", "Hm.", "sig"),)
    assert (said.reasoning, said.extra, said.citations) == ("Hm.", '{"a":1}', ('{"url":"u"}',))


@pytest.mark.parametrize("state", [State.RESOLVED, State.FAILED, State.CANCELLED])
def test_a_result_answers_its_call_and_says_whether_it_failed(state):
    outcome = "" if state is State.RESOLVED else "aborted:499"
    said = message(entry("log://turn_1/get/a", record=record("get"), state=state, outcome=outcome)).message
    assert (said.role, said.call_id, said.tool, said.failed) == (
        Role.TOOL, "call_1_0", "get", state is not State.RESOLVED,
    )  # fmt: skip
    # A vendor takes no empty answer where something went wrong.
    assert said.text == outcome


def test_an_event_is_a_hidden_role_with_what_it_tells():
    # RH01
    told = {"subkind": "tick", "source": "clock", "payload": {"n": 1}}
    said = message(entry("event://turn_1/tick/a", "Tick.", attributes={"event": told})).message
    assert (said.role, said.text, json.loads(said.extra)) == (Role.EVENT, "Tick.", {"event": told})


def plan_event(position: int = 5, **payload: Any) -> Entry:
    told = {"subkind": "system_notice", "source": "plan", "payload": {"plan_id": "main", **payload}}
    return entry("event://turn_1/system_notice/main", "Told.", position, attributes={"event": told})


PLANS = {
    "the latest version": (
        plan_event(version=2, change="set"), [entry("plan://main", "Two.", attributes={"version": 2})], "Two."
    ),
    "a version that was replaced": (
        plan_event(version=1, change="set"),
        [
            entry("plan://main", "Two.", attributes={"version": 2}),
            entry("plan://main/v1", "One.", attributes={"version": 1}),
        ],
        "One.",
    ),
    "a delta": (plan_event(version=1, sequence=3), [entry("plan://main/v1/3", "More.")], "More."),
    "a removal": (plan_event(version=1, change="removed"), [], "Told."),
    "one that is gone": (plan_event(version=1, change="set"), [], "Told."),
}  # fmt: skip


@pytest.mark.parametrize(("event", "parts", "text"), PLANS.values(), ids=PLANS)
def test_a_plan_is_a_hidden_role_where_it_was_set(event, parts, text):
    # RH01: a plan that is replaced stands where it stood, and the new one behind it
    assert kind_of(event) is MessageKind.PLAN
    assert {part.path for part in parts} <= set(parts_of(event)) | {"plan://main"}
    said = message(event, *parts)
    assert (said.message.role, said.message.text, said.position) == (Role.PLAN, text, 5)
    assert json.loads(said.message.extra)["plan"]["plan_id"] == "main"


@pytest.mark.parametrize(
    "event",
    [{}, {"source": "plan"}, {"source": "plan", "payload": {"plan_id": 1, "version": 1}},
     {"source": "plan", "payload": {"plan_id": "main"}}, "text",
     {"source": "plan", "payload": {"plan_id": "../" * 1000, "version": 1}}],
)  # fmt: skip
def test_a_plugins_event_that_looks_like_a_plan_is_an_event(event):
    one = entry("event://turn_1/tick/a", attributes={"event": event})
    assert (kind_of(one), parts_of(one)) == (MessageKind.EVENT, ())


@pytest.mark.parametrize("tool", [["error"], {}, 7, None])
def test_what_a_plugin_logs_of_a_tool_that_is_no_name_is_no_message(tool):
    assert kind_of(entry("log://turn_1/error/x", attributes={"tool": tool}, writer=Tier.PLUGIN)) is None


@pytest.mark.parametrize("images", [5, "image://loop_1/1", [7, "log://turn_1/sh/a", "image://loop_1/1"]])
def test_a_prompt_shows_images_that_the_runtime_has_read_and_no_other_entries(images):
    said = message(entry("prompt://1", attributes={"images": images})).message
    assert {part.path for part in said.parts} <= {"image://loop_1/1"}


def test_a_turn_that_no_run_has_is_not_reported():
    # The contract's numbers end before it, and a page of messages with it would fail for ever.
    assert turn_of(entry(f"event://turn_{10**20}/tick/a", attributes={"event": {}})) == 9


def test_a_text_that_was_cut_says_how_long_it_is():
    cut = entry("prompt://1", "Begin")
    assert message(cut).text_size_bytes == 0
    longer = Entry(**{name: getattr(cut, name) for name in Entry.__struct_fields__} | {"body_size_bytes": 100})
    assert message(longer).text_size_bytes == 100
