"""Edits of a prompt: the cases of the editor, what is refused, and that nothing but the copy changes. OM17-OM25, OM34."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from turnwright.types.v1 import message_pb2, prompt_edit_pb2
from turnwright_values.replies import ToolCall
from turnwright_values.types import LoopSettings, Mode

from cases import expect, params
from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.chat.prompt_edits import (
    TARGETS,
    PromptEdit,
    PromptMessage,
    Verb,
    append,
    append_to,
    apply_prompt_edits,
    check_edits,
    insert_after,
    insert_before,
    merge_assistant_texts,
    prepend,
)
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import IMAGE_URL_CHARS_MAX, PROMPT_EDITS_BYTES_MAX, PROMPT_EDITS_MAX
from turnwright_core.wire.prompt_edits import edit_to_pb, edits_from_pb

Refusal = tuple[Reason, dict[str, str]]

# ---- The cases: {id, role, parts} and calls of the five verbs

EXCEPTIONS: dict[str, str] = {}
"""Cases that are not met, each with the reason. There are none."""

ERRORS: dict[str, Callable[[int], Refusal]] = {
    "unknown_message": lambda at: (Reason.PROMPT_MESSAGE_UNKNOWN, {"edit": str(at)}),
    "empty_parts": lambda at: (Reason.INVALID_FIELD, {"field": f"edits[{at}].parts"}),
    "bad_role": lambda _: (Reason.INVALID_FIELD, {"field": "edits.role"}),
}
"""The names of errors in the cases, and how they are told here."""


def message_of(told: dict[str, Any]) -> PromptMessage:
    """A message of the cases. A tool part is a call here: results are messages of their own."""
    texts = tuple(Text(part["text"]) for part in told["parts"] if part["type"] == "text")
    calls = tuple(
        ToolCall(part["name"], "{}", call_id=part["callID"]) for part in told["parts"] if part["type"] == "tool"
    )
    role = Role(told["role"])
    return PromptMessage(told["id"] or "", role, Message(role, texts, calls=calls))


def edit_of(op: list[Any]) -> PromptEdit:
    verb, *given = op
    texts = [part["text"] for part in (given[1] if verb == "appendTo" else given[-1]["parts"])]
    match verb:
        case "append":
            return append(given[0]["role"], texts)
        case "prepend":
            return prepend(given[0]["role"], texts)
        case "appendTo":
            return append_to(given[0], texts)
        case "insertAfter":
            return insert_after(given[0], given[1]["role"], texts)
    return insert_before(given[0], given[1]["role"], texts)


@pytest.mark.parametrize("case", params("opencode/prompt_editor.jsonl"))
def test_a_case_of_the_editor(case):
    # OM17-OM22, OM24
    history = list(map(message_of, case["history"]))
    before = msgspec.json.encode(history)
    wanted = case["expect"]
    try:
        edits = list(map(edit_of, case["ops"]))
        check_edits(edits)
        made: Any = apply_prompt_edits(history, edits)
    except TurnwrightError as error:
        made = (error.reason, {name: value for name, value in error.metadata.items() if name in ("edit", "field")})
    if "error" in wanted:
        passed = made == ERRORS[wanted["error"]](wanted["failed_op"])
    else:
        passed = made == list(map(message_of, wanted["prompt"]))
    expect(case["id"], passed=passed, exceptions=EXCEPTIONS)
    assert msgspec.json.encode(history) == before


# ---- The verbs, where the cases say nothing


def user(text: str, path: str = "") -> PromptMessage:
    return PromptMessage(path, Role.USER, Message(Role.USER, (Text(text),)))


def reply(text: str, path: str = "") -> PromptMessage:
    return PromptMessage(path, Role.ASSISTANT, Message(Role.ASSISTANT, (Text(text),)))


HISTORY = [user("a", "prompt://1"), reply("b", "assistant://1"), user("c", "prompt://2")]


def texts(messages: list[PromptMessage]) -> list[str]:
    return ["+".join(part.text for part in one.message.parts if isinstance(part, Text)) for one in messages]


def test_each_verb_acts_in_its_turn():
    # OM17-OM20: later edits see what earlier ones added
    made = apply_prompt_edits(
        HISTORY,
        [
            prepend("user", "1"),
            prepend("user", "2"),
            insert_before("prompt://1", "user", "3"),
            insert_before("prompt://1", "user", "4"),
            insert_after("prompt://2", "assistant", "5"),
            append_to("last-assistant", ["6", "7"]),
            append_to("last-user", "8"),
            append("user", "9"),
        ],
    )
    assert texts(made) == ["2", "1", "3", "4", "a", "b", "c+8", "5+6+7", "9"]
    assert [one.id for one in made] == ["", "", "", "", "prompt://1", "assistant://1", "prompt://2", "", ""]


@pytest.mark.parametrize("target", TARGETS)
def test_a_target_that_is_not_there_is_named_with_its_edit(target):
    # OM19, OM22
    history = [one for one in HISTORY if one.role is not TARGETS[target]]
    with pytest.raises(TurnwrightError) as refused:
        apply_prompt_edits(
            history, [append("user" if "assistant" in target else "assistant", "x"), append_to(target, "y")]
        )
    assert (refused.value.reason, refused.value.metadata) == (
        Reason.PROMPT_TARGET_MISSING, {"edit": "1", "plugin": "", "target": target},
    )  # fmt: skip


def test_an_added_message_cannot_be_named():
    # OM23: it has no id, and the empty one names nothing
    with pytest.raises(TurnwrightError) as refused:
        apply_prompt_edits(
            HISTORY, [append("user", "x"), PromptEdit(Verb.INSERT_AFTER, Role.USER, (Text("y"),), "", "careful")]
        )
    assert refused.value.reason is Reason.PROMPT_MESSAGE_UNKNOWN
    assert refused.value.metadata == {"edit": "1", "plugin": "careful", "message_id": ""}
    assert "of the plugin careful" in refused.value.message


def test_what_is_given_is_copied():
    # OM25
    given_parts: list[str | Part] = ["x"]
    edits = [append("user", given_parts)]
    given_parts.append("y")
    made = apply_prompt_edits(HISTORY, edits)
    made.clear()
    assert texts(apply_prompt_edits(HISTORY, edits)) == ["a", "b", "c", "x"]


IMAGE = Image(path="a.png")
REFUSED: dict[str, tuple[PromptEdit, str]] = {
    "a role that no edit adds": (PromptEdit(Verb.APPEND, Role.TOOL, (Text("x"),)), "edits[0].role"),
    "the system": (PromptEdit(Verb.PREPEND, Role.SYSTEM, (Text("x"),)), "edits[0].role"),
    "no parts": (append("user", []), "edits[0].parts"),
    "an empty text": (append("user", ["x", ""]), "edits[0].parts"),
    "an image of nothing": (append("user", Image()), "edits[0].parts"),
    "an image with its bytes": (append("user", Image("image/png", b"x")), "edits[0].parts"),
    "an image of two places": (append("user", Image(path="a", url="https://b")), "edits[0].parts"),
    "an image of another kind of address": (append("user", Image(url="data:image/png;base64,eA==")), "edits[0].parts"),
    "an image of the assistant": (append("assistant", IMAGE), "edits[0].parts"),
    "a cache breakpoint": (append_to("last-user", Text("x", cache=True)), "edits[0].parts"),
    "no message to stand next to": (insert_after("", "user", "x"), "edits[0].message_id"),
}


@pytest.mark.parametrize(("edit", "field"), REFUSED.values(), ids=REFUSED)
def test_an_edit_that_no_prompt_could_take_is_refused_with_its_field(edit, field):
    # OM21
    with pytest.raises(TurnwrightError) as refused:
        check_edits([edit])
    assert (refused.value.reason, refused.value.metadata) == (Reason.INVALID_FIELD, {"field": field})


WRONG: dict[str, Callable[[], PromptEdit]] = {
    "role": lambda: append("tool", "x"),
    "target": lambda: append_to("last-tool", "x"),
    "parts": lambda: append("user", [{"text": "x", "id": "m9", "time": 1}]),  # type: ignore[list-item]
}


@pytest.mark.parametrize(("field", "make"), WRONG.items(), ids=WRONG)
def test_a_word_that_means_nothing_is_refused_at_once(field, make):
    # OM21, OM23
    with pytest.raises(TurnwrightError) as refused:
        make()
    assert (refused.value.reason, refused.value.metadata) == (Reason.INVALID_FIELD, {"field": f"edits.{field}"})


LIMITS: dict[str, tuple[list[PromptEdit], dict[str, str]]] = {
    "edits": (
        [append("user", "x")] * (PROMPT_EDITS_MAX + 1),
        {"field": "edits", "limit": str(PROMPT_EDITS_MAX), "actual": str(PROMPT_EDITS_MAX + 1), "unit": "items"},
    ),
    "bytes, of all together": (
        [append("user", "é" * (PROMPT_EDITS_BYTES_MAX // 4)), append_to("last-user", "é" * (PROMPT_EDITS_BYTES_MAX // 4) + "x")],
        {"field": "edits", "limit": str(PROMPT_EDITS_BYTES_MAX), "actual": str(PROMPT_EDITS_BYTES_MAX + 1), "unit": "bytes"},
    ),
    "a megabyte": (
        [append("user", "x" * 2**20)],
        {"field": "edits", "limit": str(PROMPT_EDITS_BYTES_MAX), "actual": str(2**20), "unit": "bytes"},
    ),
    "a URL": (
        [append("user", Image(url="https://" + "x" * IMAGE_URL_CHARS_MAX))],
        {"field": "edits[0].parts", "limit": str(IMAGE_URL_CHARS_MAX), "actual": str(IMAGE_URL_CHARS_MAX + 8), "unit": "characters"},
    ),
}  # fmt: skip


@pytest.mark.parametrize(("edits", "told"), LIMITS.values(), ids=LIMITS)
def test_too_much_is_refused_with_its_size(edits, told):
    with pytest.raises(TurnwrightError) as refused:
        check_edits(edits)
    assert (refused.value.reason, refused.value.metadata) == (Reason.LIMIT_EXCEEDED, told)
    check_edits([append("user", "x" * PROMPT_EDITS_BYTES_MAX)])
    check_edits([append("user", "x")] * PROMPT_EDITS_MAX)


def test_a_reply_that_is_added_to_has_one_text():
    made = merge_assistant_texts(
        apply_prompt_edits(HISTORY, [append_to("last-assistant", ["x", "y"]), append_to("last-user", "z")])
    )
    assert [[part.text for part in one.message.parts if isinstance(part, Text)] for one in made] == [
        ["a"], ["b\n\nx\n\ny"], ["c", "z"],
    ]  # fmt: skip


# ---- Whatever is edited

WORDS = st.text(st.sampled_from("ab\n é"), min_size=1, max_size=5).filter(str.strip)
IDS = st.sampled_from([one.id for one in HISTORY])
EDITS = st.one_of(
    st.builds(append, st.sampled_from(["user", "assistant"]), WORDS),
    st.builds(prepend, st.sampled_from(["user", "assistant"]), st.lists(WORDS, min_size=1, max_size=3)),
    st.builds(append_to, st.sampled_from(sorted(TARGETS)), WORDS),
    st.builds(insert_after, IDS, st.sampled_from(["user", "assistant"]), WORDS),
    st.builds(insert_before, IDS, st.just("user"), st.just(Image(url="https://a/b.png"))),
)


@given(st.lists(EDITS, max_size=8))
def test_edits_add_and_change_nothing_that_was_there(edits):
    # OM24, OM29: by parts, and in the order of the history
    check_edits(edits)
    made = apply_prompt_edits(HISTORY, edits)
    kept = [one for one in made if one.id]
    assert [one.id for one in kept] == [one.id for one in HISTORY]
    for before, after in zip(HISTORY, kept, strict=True):
        assert after.message.parts[: len(before.message.parts)] == before.message.parts
    added = sum(len(edit.parts) for edit in edits)
    assert sum(len(one.message.parts) for one in made) == added + len(HISTORY)
    assert apply_prompt_edits(HISTORY, edits) == made


@given(st.lists(EDITS, max_size=4), st.lists(EDITS, max_size=4))
def test_edits_may_be_applied_in_two_lists(first, then):
    # OM26: whoever comes later sees what was done before
    assert apply_prompt_edits(apply_prompt_edits(HISTORY, first), then) == apply_prompt_edits(HISTORY, [*first, *then])


@given(st.lists(EDITS, min_size=1, max_size=4))
def test_one_edit_that_fails_fails_all(edits):
    # OM22
    before = list(HISTORY)
    with pytest.raises(TurnwrightError) as refused:
        apply_prompt_edits(HISTORY, [*edits, insert_after("prompt://9", "user", "x")])
    assert refused.value.metadata["edit"] == str(len(edits))
    assert before == HISTORY


@given(st.lists(EDITS, max_size=8))
def test_edits_survive_the_wire_and_the_store(edits):
    # OM31
    assert edits_from_pb(map(edit_to_pb, edits)) == tuple(edits)
    settings = LoopSettings(Mode.ACT, edits=tuple(edits))
    assert msgspec.convert(msgspec.to_builtins(settings), LoopSettings) == settings


PROTO_REFUSED = {
    "nothing": (prompt_edit_pb2.PromptEdit(plugin="p"), "edits[0]"),
    "no role": (
        prompt_edit_pb2.PromptEdit(append=prompt_edit_pb2.PromptMessage(parts=[message_pb2.Part(text="x")])),
        "edits[0].role",
    ),
    "no target": (
        prompt_edit_pb2.PromptEdit(append_to=prompt_edit_pb2.AppendToMessage(parts=[message_pb2.Part(text="x")])),
        "edits[0].target",
    ),
}


@pytest.mark.parametrize(("edit", "field"), PROTO_REFUSED.values(), ids=PROTO_REFUSED)
def test_what_says_nothing_on_the_wire_is_refused(edit, field):
    # OM21
    with pytest.raises(TurnwrightError) as refused:
        edits_from_pb([edit])
    assert (refused.value.reason, refused.value.metadata) == (Reason.INVALID_FIELD, {"field": field})
