"""What is sent of a conversation with edits: pairs, merging, shapes, and what stays as it was. OM24, OM27-OM30, OM34."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from turnwright_values.replies import ThinkingBlock, ToolCall

from turnwright_core.chat.edited_conversation import edited_pieces, merge_added_replies, prompt_messages
from turnwright_core.chat.message import Image, Message, Role, Text, text_message
from turnwright_core.chat.prompt_edits import (
    TARGETS,
    PromptEdit,
    Verb,
    append,
    append_to,
    apply_prompt_edits,
    insert_after,
    insert_before,
    merge_assistant_texts,
    prepend,
    with_text,
)
from turnwright_core.chat.transcript import LEFT_OUT, Conversation, PlacedMessage, from_json_lines
from turnwright_core.errors import Reason, TurnwrightError


def user(text: str) -> Message:
    return text_message(Role.USER, text)


def reply(text: str, *calls: str) -> Message:
    called = tuple(ToolCall("get", "{}", place, call_id=call) for place, call in enumerate(calls))
    thought = (ThinkingBlock("thinking", 0, text="Hm.", signature="s"),)
    return Message(Role.ASSISTANT, (Text(text),), calls=called, thinking=thought)


def result(call: str) -> Message:
    return Message(Role.TOOL, (Text(f"result {call}"),), call_id=call, tool="get")


HISTORY = {
    "prompt://1": user("a"),
    "event://turn_1/mode_switch/x": user("<event/>"),
    "assistant://1": reply("b", "c1", "c2"),
    "log://turn_1/get/1": result("c1"),
    "log://turn_1/get/2": result("c2"),
    "assistant://2": reply("c"),
    "prompt://3": user("d"),
    "assistant://3": reply("e", "c3"),
    "log://turn_3/get/1": result("c3"),
}


def conversation(messages: dict[str, Message] = HISTORY) -> Conversation:
    made = Conversation()
    for place, (path, message) in enumerate(messages.items()):
        made.put(path, PlacedMessage(path, place, message))
    made.compose()
    return made


def speaker(path: str) -> Role | None:
    return Role.EVENT if path.startswith("event") else None


def pieces(edits: list[PromptEdit], messages: dict[str, Message] = HISTORY, *, prefill: bool = False) -> list[str]:
    return edited_pieces(conversation(messages), speaker, edits, prefill=prefill)


def sent(edits: list[PromptEdit], messages: dict[str, Message] = HISTORY) -> list[tuple[str, str]]:
    return [(one.role.value, one.text) for one in from_json_lines("".join(pieces(edits, messages, prefill=True)))]


def test_without_edits_it_is_what_it_was():
    assert pieces([]) == conversation().pieces


def test_what_users_say_is_sent_as_one_and_replies_keep_their_results():
    # OM34: what is put between a call and its result follows the result
    edits = [
        insert_after("assistant://1", "user", "1"),
        insert_after("log://turn_1/get/1", "assistant", "2"),
        insert_before("log://turn_1/get/2", "user", "3"),
        insert_after("prompt://3", "user", ["4", "5"]),
        prepend("user", "6"),
    ]
    assert sent(edits) == [
        ("user", "6\n\na\n\n<event/>"),
        ("assistant", "b"), ("tool", "result c1"), ("tool", "result c2"),
        ("user", "1"), ("assistant", "2"), ("user", "3"),
        ("assistant", "c"),
        ("user", "d\n\n4\n\n5"),
        ("assistant", "e"), ("tool", "result c3"),
    ]  # fmt: skip


def test_events_are_nobodys_last_message():
    # OM19: they are sent as the user's, and told apart from them
    first = dict(list(HISTORY.items())[:2])
    assert sent([append_to("last-user", "x")], first) == [("user", "a\n\nx\n\n<event/>")]


def test_a_reply_that_is_added_to_keeps_its_calls_its_thinking_and_its_results():
    # OM19, OM34: signatures stay as they are
    [*_, last, answer] = from_json_lines("".join(pieces([append_to("last-assistant", ["x", "y"])])))
    before = HISTORY["assistant://3"]
    assert (last.text, last.calls, last.thinking) == ("e\n\nx\n\ny", before.calls, before.thinking)
    assert answer == HISTORY["log://turn_3/get/1"]


def test_what_the_assistant_is_made_to_say_beside_a_reply_is_one_with_it():
    # OM34: many chat templates refuse two replies in a row
    edits = [
        insert_after("prompt://1", "assistant", "1"), insert_after("event://turn_1/mode_switch/x", "assistant", "2"),
        insert_after("prompt://3", "assistant", ["3", "4"]), insert_after("assistant://2", "assistant", "5"),
    ]  # fmt: skip
    assert sent(edits) == [
        ("user", "a"), ("assistant", "1"), ("user", "<event/>"), ("assistant", "2\n\nb"), ("tool", "result c1"),
        ("tool", "result c2"), ("assistant", "c\n\n5"), ("user", "d"), ("assistant", "3\n\n4\n\ne"), ("tool", "result c3"),
    ]  # fmt: skip


PLACED = (
    ThinkingBlock("thinking", 0, signature="s"), ThinkingBlock("text", 1, data="0:3"), ThinkingBlock("text", 3, data="3:6:2"),
)  # fmt: skip


def test_pieces_whose_place_a_vendor_told_grow_at_the_ends():
    reply = Message(Role.ASSISTANT, (Text("abcdef"),), thinking=PLACED)
    both = with_text(reply, before="12", after="34")
    assert both.text == "12\n\nabcdef\n\n34"
    assert [block.data for block in both.thinking] == ["", "0:7", "7:14:2"]
    assert [block.data for block in with_text(reply, after="34").thinking] == ["", "0:3", "3:10:2"]


def test_an_image_stands_among_the_texts_of_its_message():
    [first, *_] = from_json_lines(
        "".join(pieces([insert_after("prompt://1", "user", ["1", Image(url="https://a/b.png")])]))
    )
    assert first.parts == (Text("a\n\n1"), Image(url="https://a/b.png"), Text("<event/>"))


AFTER_A_LIMIT = {
    path: message for path, message in HISTORY.items() if path not in ("prompt://1", "event://turn_1/mode_switch/x")
}


def test_a_conversation_that_begins_with_a_reply_is_introduced_unless_an_edit_does_it():
    assert sent([], AFTER_A_LIMIT)[:2] == [("user", LEFT_OUT), ("assistant", "b")]
    assert sent([prepend("user", "x")], AFTER_A_LIMIT)[:2] == [("user", "x"), ("assistant", "b")]
    cut = {"assistant://1": HISTORY["assistant://2"]}
    assert sent([append_to("last-assistant", "x")], cut) == [("user", LEFT_OUT), ("assistant", "c\n\nx")]


SHAPES = {
    "begins with the assistant": ([prepend("assistant", "x")], "leading_assistant"),
    "before the first": ([insert_before("prompt://1", "assistant", "x")], "leading_assistant"),
    "ends with the assistant": ([append("assistant", ["x", "y"])], "trailing_assistant"),
    "ends with it after a result": ([insert_after("assistant://3", "assistant", "x")], "trailing_assistant"),
}


@pytest.mark.parametrize(("edits", "shape"), SHAPES.values(), ids=SHAPES)
def test_a_shape_that_vendors_refuse_is_named(edits, shape):
    # OM34
    with pytest.raises(TurnwrightError) as refused:
        pieces(edits)
    assert (refused.value.reason, refused.value.metadata) == (Reason.PROMPT_SHAPE_REFUSED, {"shape": shape})
    if shape == "trailing_assistant":
        assert sent(edits)[-1][0] == "assistant"


def test_a_reply_of_the_run_at_the_end_is_not_the_work_of_edits():
    ended = {path: message for path, message in HISTORY.items() if not path.endswith(("3", "3/get/1"))}
    assert from_json_lines("".join(pieces([append_to("last-user", "x")], ended)))[-1].role is Role.ASSISTANT


# ---- Whatever is edited

WORDS = st.text(st.sampled_from("ab\n é"), min_size=1, max_size=5).filter(str.strip)
IDS = st.sampled_from(list(HISTORY))


def later(path: str, turns: int) -> str:
    """The path of a message so many turns later."""
    return re.sub(r"[0-9]", lambda digit: str(int(digit[0]) + turns), path, count=1)


LONG = {
    later(path, turns): replace(
        message,
        call_id=message.call_id and f"{message.call_id} {turns}",
        calls=tuple(replace(call, call_id=f"{call.call_id} {turns}") for call in message.calls),
    )
    for turns in range(0, 24, 3)
    for path, message in HISTORY.items()
}
"""Eight times as long."""
GONE = ("prompt://6", "prompt://12", "prompt://13")
GAPPED = {path: message for path, message in LONG.items() if path not in GONE}
"""With replies in a row."""
ROLES = st.sampled_from(["user", "assistant"])
EDITS = st.one_of(
    st.builds(append, ROLES, WORDS),
    st.builds(prepend, st.just("user"), st.lists(WORDS, min_size=1, max_size=3)),
    st.builds(append_to, st.sampled_from(sorted(TARGETS)), WORDS),
    st.builds(insert_after, IDS, ROLES, WORDS),
    st.builds(insert_before, IDS.filter(lambda path: path != "prompt://1"), ROLES, WORDS),
    st.builds(insert_before, IDS, st.just("user"), st.just(Image(url="https://a/b.png"))),
)


FAR = st.builds(
    lambda edit, turns: replace(edit, message_id=edit.message_id and later(edit.message_id, turns)),
    EDITS.filter(lambda edit: (edit.verb, edit.message_id) != (Verb.INSERT_BEFORE, "prompt://1")),
    st.sampled_from(range(0, 24, 3)),
)


@given(st.lists(FAR, max_size=8), st.sampled_from([LONG, GAPPED]))
def test_it_is_the_conversation_of_the_edited_messages(edits, history):
    # OM29: encoded anew, from all messages, it has the same bytes
    edits = [edit for edit in edits if not edit.message_id or edit.message_id in history]
    segments = list(conversation(history).segments())
    made = merge_assistant_texts(apply_prompt_edits(prompt_messages(segments, speaker), edits))
    results = [one for one in made if one.role is Role.TOOL]
    anew = Conversation()
    for place, one in enumerate([*merge_added_replies(one for one in made if one not in results), *results]):
        anew.put(one.id or f"edit {place}", PlacedMessage(one.id or f"edit {place}", place, one.message))
    anew.compose()
    assert "".join(pieces(edits, history, prefill=True)) == "".join(anew.pieces)


@given(st.lists(EDITS, max_size=8))
def test_pairs_stay_together_and_nobody_speaks_twice_in_a_row(edits):
    # OM34
    waiting: list[str] = []
    before = None
    for one in from_json_lines("".join(pieces(edits, prefill=True))):
        if one.role is Role.TOOL:
            assert one.call_id == waiting.pop(0)
        else:
            assert not waiting
            assert one.role is not before
        waiting += [call.call_id for call in one.calls]
        before = one.role
    assert not waiting


@given(st.lists(EDITS, max_size=8))
def test_the_history_stays_as_it_was(edits):
    # OM24
    made = conversation()
    before = list(made.pieces)
    edited_pieces(made, speaker, edits, prefill=True)
    made.compose()
    assert made.pieces == before == conversation().pieces


@given(st.lists(st.builds(append, st.just("user"), WORDS), max_size=4))
def test_edits_at_the_end_leave_all_that_stands_before_them(edits):
    # OM30
    plain = "".join(conversation().pieces)
    assert "".join(pieces(edits)).startswith(plain)
    first = {"prompt://1": HISTORY["prompt://1"]}
    [one] = from_json_lines("".join(pieces([append_to("last-user", "x")], first)))
    assert one.text.startswith("a")
