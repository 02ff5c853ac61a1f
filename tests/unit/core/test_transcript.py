"""The messages of a run as vendors take them: pairs, users merged, and what was sent stays. RL02, RL04, RL06; C28, C41."""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from turnwright_values.replies import ThinkingBlock, ToolCall
from turnwright_values.types import MessageKind, RunMessage

from cases import expect, params
from transcripts import conversation, transcript
from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.chat.transcript import (
    LEFT_OUT,
    NO_RESULT,
    Conversation,
    PlacedMessage,
    from_json_lines,
    to_json_lines,
)

# ---- RL02

FOLDS = "results contain their files, so no text of files follows one that it would be folded into"
MERGE_EXCEPTIONS = {
    "all_empty": "an empty message is refused by vendors: none is sent",
    "tool_then_cf_user": FOLDS,
    "tool_then_cf_cd_cf_user": FOLDS,
    "repeating_tool_cf_loop": FOLDS,
}
"""Cases whose form differs on purpose: all that they say is sent, in their order."""


def part_of(part: dict[str, Any]) -> Part:
    if "file_name" in part:
        return Text("{file_name}:{line1}-{line2}\n{file_content}".format(**part))
    return Text(part["m_content"]) if part["m_type"] == "text" else Image(part["m_type"], part["m_content"].encode())


def message_of(message: dict[str, Any]) -> Message:
    """A message of the cases; whoever speaks for the user there is the user here."""
    role = Role(message["role"]) if message["role"] in ("assistant", "tool") else Role.USER
    content = message["content"]
    parts = (Text(content),) if isinstance(content, str) else tuple(map(part_of, content))
    return Message(role, parts, call_id=message.get("tool_call_id", ""))


def messages_of(listed: list[dict[str, Any]]) -> list[Message]:
    """Those of a conversation, whose replies call what is answered behind them."""
    found: list[Message] = []
    for message in (one for one in listed if one["role"] != "system"):
        made = message_of(message)
        if made.role is Role.TOOL:
            place = max(place for place, one in enumerate(found) if one.role is Role.ASSISTANT)
            calls = (*found[place].calls, ToolCall("", "{}", len(found[place].calls), call_id=made.call_id))
            found[place] = replace(found[place], calls=calls)
        found.append(made)
    return found


KINDS_OF = {Role.USER: MessageKind.STEERING, Role.ASSISTANT: MessageKind.REPLY, Role.TOOL: MessageKind.RESULT}


def run_of(messages: Iterable[Message]) -> list[RunMessage]:
    return [RunMessage(f"p{place}", KINDS_OF[one.role], 1, place, 0, one) for place, one in enumerate(messages, 1)]


def sent(*messages: Message) -> list[Message]:
    return transcript(run_of(messages))


@pytest.mark.parametrize("case", params("refact/linearize_v1_merge.jsonl"))
def test_a_case_of_users_is_merged(case):
    # RL02
    made = sent(*messages_of(case["input"]["messages"]))
    wanted = messages_of(case["expected"]["messages"])
    if wanted and wanted[0].role is Role.ASSISTANT:
        wanted.insert(0, user(LEFT_OUT))
    expect(case["id"], passed=made == wanted, exceptions=MERGE_EXCEPTIONS)
    assert sent(*made) == made
    assert texts_of(made) == texts_of(wanted)


def texts_of(messages: Iterable[Message]) -> str:
    """All that messages say, wherever one ends."""
    return "\n\n".join(message.text for message in messages if message.text)


def user(*parts: Part | str) -> Message:
    return Message(Role.USER, tuple(Text(part) if isinstance(part, str) else part for part in parts))


def test_an_image_keeps_its_place_among_texts():
    # RL02
    image = Image(path="image://loop_1/1")
    assert sent(user("a"), user(image, "b"), user("c")) == [user("a", image, "b\n\nc")]


@pytest.mark.parametrize("empty", [user(), user(""), Message(Role.ASSISTANT)])
def test_an_empty_message_is_not_sent(empty):
    assert sent(user("a"), empty, user("b")) == [user("a\n\nb")]


# ---- RL06: fix tool calls


def reply(*ids: str, text: str = "") -> Message:
    calls = tuple(ToolCall("get", "{}", place, call_id=one) for place, one in enumerate(ids))
    return Message(Role.ASSISTANT, (Text(text),) if text else (), calls=calls)


def result(call_id: str, text: str = "r") -> Message:
    return Message(Role.TOOL, (Text(text),), call_id=call_id)


def test_every_call_has_one_result_behind_it_in_the_order_of_the_calls():
    messages = sent(
        user("u"), reply("a", "b", "c"), user("x"), result("b", "two"), result("a", "one"), result("a", "again")
    )
    assert [message.call_id for message in messages] == ["", "", "a", "b", "c", ""]
    assert [message.text for message in messages[2:5]] == ["one", "two", NO_RESULT]
    assert messages[4].failed
    assert all(message.tool == "get" for message in messages[2:5])


def test_a_result_of_no_call_is_reported_as_text():
    assert sent(result("gone", "text")) == [user("text")]


def test_an_id_that_is_used_again_gets_another_one_and_each_call_its_own_result():
    messages = sent(
        user("u"), reply("a", "a"), result("a", "one"), reply("a"), result("a", "two"), result("a", "three"), reply("a")
    )
    ids = [[call.call_id for call in message.calls] or message.call_id for message in messages]
    assert ids == ["", ["a", "a+"], "a", "a+", ["a+2"], "a+2", ["a+3"], "a+3"]
    assert [message.text for message in messages[2:]] == ["one", NO_RESULT, "", "two", "", NO_RESULT]


def test_what_is_healed_is_reported():
    made = conversation(run_of([user("u"), result("no"), reply("a"), result("a"), result("a"), reply("a")]))
    assert {path: words.split(":")[0] for path, words in made.repairs()} == {
        "p2": "A result without a call",
        "p5": "A second result of the call a",
        "p6": "The call id a is used again",
    }


# ---- what was sent stays

IDS = st.sampled_from(["a", "b", "c"])
KINDS = st.sampled_from([MessageKind.PROMPT, MessageKind.STEERING, MessageKind.SYNTHETIC, MessageKind.EVENT])


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[RunMessage]:
    """The messages of a turn: a reply with its results, as the store has them, and what came beside."""
    ids = [f"{number}_{place}" for place in range(draw(st.integers(0, 3)))]
    made = [(MessageKind.REPLY, reply(*ids, text=draw(st.sampled_from(["", "text"]))))]
    answered = [one for one in ids if draw(st.booleans())]
    made += [(MessageKind.RESULT, result(one)) for one in draw(st.permutations(answered))]
    made += [(draw(KINDS), user(draw(st.sampled_from(["", "u"])))) for _ in range(draw(st.integers(0, 2)))]
    return [RunMessage("p", kind, number, 0, 0, message) for kind, message in made]


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[RunMessage], list[RunMessage]]:
    """A run up to a turn, and what followed."""
    first = [RunMessage("p", MessageKind.PROMPT, 1, 0, 0, user("Do it."))]
    before = [one for number in range(draw(st.integers(0, 4))) for one in draw(turns(number))]
    # A turn is over when the next one is sent: its reply says something.
    later = [
        one for one in draw(turns(9)) if one.kind is not MessageKind.REPLY or one.message.calls or one.message.parts
    ]
    return [*first, *before], later


def placed(messages: Iterable[RunMessage]) -> list[RunMessage]:
    """The messages under paths of their own, in their order."""
    return [replace(one, path=f"p{place}", position=place) for place, one in enumerate(messages)]


@given(histories())
def test_a_transcript_is_what_vendors_take_and_begins_with_the_one_before(history):
    # RL02, RL06, and point for point what a strict vendor checks
    before, later = history
    all_of_it = placed([*before, *later])
    made = transcript(all_of_it[: len(before)])
    waiting: list[str] = []
    last = None
    for message in made:
        assert message.role in (Role.USER, Role.ASSISTANT, Role.TOOL)
        if message.role is Role.TOOL:
            assert message.call_id == waiting.pop(0)
        else:
            assert not waiting
            assert not message.role is last is Role.USER
            assert message.parts or message.calls
        waiting = [call.call_id for call in message.calls] or waiting
        last = message.role
    assert not waiting
    assert sent(*made) == made
    if later and later[0].kind is MessageKind.REPLY:
        assert transcript(all_of_it)[: len(made)] == made


def test_a_conversation_whose_beginning_was_left_out_begins_with_the_user():
    # RL06: Gemini and others refuse one that begins with a reply
    made = sent(reply("2_0"), result("2_0"))
    assert [message.role for message in made] == [Role.USER, Role.ASSISTANT, Role.TOOL]
    assert made[0].text == LEFT_OUT
    assert sent() == []


def test_replies_with_nothing_between_them_are_sent_apart():
    # Removed, or of white space alone: many chat templates refuse two in a row, and vendors a message of nothing
    said = sent(
        user("u"),
        reply(text="one"),
        user(" \n"),
        reply(text="two"),
        reply(text="\t"),
        user("v"),
        reply("a"),
        reply(text="end"),
    )
    assert [(one.role.value, one.text) for one in said] == [
        ("user", "u"), ("assistant", "one"), ("user", LEFT_OUT), ("assistant", "two"), ("user", "v"),
        ("assistant", ""), ("tool", NO_RESULT), ("assistant", "end"),
    ]  # fmt: skip


def test_messages_come_back_from_the_lines_that_they_were_made():
    block = ThinkingBlock("thinking", 0, "", "Hm.", "sig\u2028")
    messages = [
        user("a\nb\u2028c", Image(path="image://loop_1/1")),
        Message(Role.ASSISTANT, thinking=(block,), extra="{}"),
    ]
    lines = to_json_lines(messages)
    assert from_json_lines("".join(lines)) == messages
    assert [line.count("\n") for line in lines] == [1, 1]
    assert all(json.loads(line) for line in lines)


# ---- warm = cold


@st.composite
def changes(draw: st.DrawFn) -> list[tuple[int, PlacedMessage | None]]:
    """Messages that come, change, go, and come back at any place, with ids that are used again."""
    found: list[tuple[int, PlacedMessage | None]] = []
    for _ in range(draw(st.integers(1, 25))):
        place = draw(st.integers(0, 12))
        message = draw(
            st.one_of(
                st.builds(user, st.sampled_from(["", "u", "v"])),
                st.builds(
                    lambda ids, text: reply(*ids, text=text), st.lists(IDS, max_size=2), st.sampled_from(["", "t"])
                ),
                st.builds(result, IDS, st.sampled_from(["", "r", "s"])),
            )
        )
        standing = PlacedMessage(f"p{place}", place, message, draw(st.booleans()) and draw(st.booleans()))
        found.append((place, None if draw(st.integers(0, 5)) == 0 else standing))
    return found


@given(changes(), st.integers(1, 5))
def test_what_is_kept_up_to_date_is_what_is_made_anew(made_of, step):
    warm, now = Conversation(), {}
    for number, (place, one) in enumerate(made_of):
        warm.put(f"p{place}", one)
        now[place] = one
        if number % step:
            continue
        warm.compose()
        cold = Conversation()
        for at, each in sorted(now.items()):
            cold.put(f"p{at}", each)
        cold.compose()
        assert warm.pieces == cold.pieces
        assert warm.chars == sum(map(len, warm.pieces))
