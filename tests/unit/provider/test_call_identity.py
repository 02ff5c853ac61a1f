"""Which call a fragment belongs to (C60): calls are told apart whatever a server leaves out, repeats or mixes up."""

import json
from collections.abc import Iterable
from itertools import pairwise, zip_longest
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Struct
from tests.steps import steps

from turnwright_core.chat.reply import PartialReply
from turnwright_core.limits import CALL_ID_CHARS_MAX
from turnwright_provider.domain.think_tags import ThinkTags
from turnwright_provider.domain.tool_calls import ToolCallFold
from turnwright_provider.domain.wires.anthropic_reply import AnthropicFold
from turnwright_provider.domain.wires.chat import ChatFold
from turnwright_provider.domain.wires.gemini_reply import GeminiFold
from turnwright_provider.domain.wires.json_fold import JsonFold
from turnwright_provider.domain.wires.ollama import OllamaFold

Fragments = list[dict[str, Any]]
ABSENT = object()


def made(fold: JsonFold, chunks: Iterable[dict[str, Any]]) -> list[tuple[str, str]]:
    """Name and arguments of the calls that a client has in the end."""
    reply = PartialReply()
    for delta in [*(delta for chunk in chunks for delta in fold.take(chunk)), *fold.flush()]:
        reply.add(delta)
    return [(call.name, call.arguments) for call in reply.calls]


class Written(Struct):
    """A call as the model made it, and how its server tells of it."""

    name: str
    arguments: str
    id: str
    pieces: list[str]


class Form(Struct):
    """What the server does with ids, indexes and names. `ids`: each, first, or what stands in place of one."""

    ids: Any
    index: str
    names: str
    is_apart: bool
    """The name comes in a fragment of its own."""
    is_mixed: bool
    """Fragments of parallel calls take turns."""
    is_repeated: bool


ARGUMENTS = ["", "{}", '{"path":"keep.txt"}', '{"path":"a}{\\"b\\": {"}', '{"command":"echo \\\\"}', '{"a":{"b":[{}]}}']
FORMS = st.builds(
    Form,
    st.sampled_from(["each", "first", ABSENT, None, "", "null", "one"]),
    st.sampled_from(["own", "text", "zero", "none", "first"]),
    st.sampled_from(["first", "each"]),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)


@st.composite
def written(draw: st.DrawFn) -> list[Written]:
    made_of = st.tuples(st.sampled_from(["get", "rm", "sh"]), st.sampled_from(ARGUMENTS))
    calls = draw(st.lists(made_of, min_size=1, max_size=4, unique=True))
    # No arguments and `{}` are the same.
    calls = [one for one in calls if one[1] or (one[0], "{}") not in calls]
    found = []
    for number, (name, arguments) in enumerate(calls):
        cuts = sorted(draw(st.sets(st.integers(1, max(1, len(arguments) - 1)), max_size=3)))
        pieces = [arguments[a:b] for a, b in zip([0, *cuts], [*cuts, len(arguments)], strict=True)]
        found.append(Written(name, arguments, f"id{number}", [one for one in pieces if one]))
    return found


def is_told_apart(calls: list[Written], form: Form) -> bool:
    """Whether anything says where a call begins: an id, an index, another name, or complete arguments before its own.

    Of two calls of one tool that nothing else tells apart, the first needs arguments, and more than `{}` if the second's
    name does not come with its own.
    """
    if form.ids in ("each", "first") or (form.index in ("own", "text") and form.ids != "one"):
        return True
    pairs = pairwise(calls)
    return all(
        one.name != other.name or (one.pieces and one.arguments != "{}" and other.pieces) for one, other in pairs
    )


def fragments(call: Written, number: int, form: Form) -> Fragments:
    pieces = ["", *call.pieces] if form.is_apart or not call.pieces else call.pieces
    found = []
    for at, piece in enumerate(pieces):
        fragment: dict[str, Any] = {"function": {"arguments": piece}}
        if form.ids == "each" or (form.ids == "first" and not at):
            fragment["id"] = call.id
        elif form.ids not in ("first", ABSENT):
            fragment["id"] = form.ids
        if form.index in ("own", "text"):
            fragment["index"] = str(number) if form.index == "text" else number
        elif form.index == "zero" or (form.index == "first" and not at):
            fragment["index"] = 0
        if form.names == "each" or not at:
            fragment["function"]["name"] = call.name
        found.append(fragment)
    return found


def streamed(calls: list[Written], form: Form) -> Fragments:
    each = [fragments(call, number, form) for number, call in enumerate(calls)]
    if form.is_repeated and calls[-1].pieces and form.ids != "one":
        # The whole call again, under an index of its own.
        each.append(
            fragments(
                Written(calls[-1].name, calls[-1].arguments, calls[-1].id, [calls[-1].arguments]), len(calls), form
            )
        )
        each[-1] = each[-1][-1:] if form.names == "each" else [one for one in each[-1] if "name" in one["function"]]
        each[-1][0]["function"]["arguments"] = calls[-1].arguments
    is_mixed = form.is_mixed and (form.ids == "each" or (form.index in ("own", "text") and form.ids != "one"))
    if is_mixed and not form.is_repeated:
        return [one for turn in zip_longest(*each) for one in turn if one]
    return [one for fragments in each for one in fragments]


def wanted(calls: list[Written]) -> list[tuple[str, str]]:
    return [(call.name, call.arguments or "{}") for call in calls]


@given(calls=written(), form=FORMS)
def test_calls_in_fragments_are_the_calls_that_were_made(calls, form):
    # RD02, C60
    if is_told_apart(calls, form):
        chunks = [{"choices": [{"delta": {"tool_calls": [one]}}]} for one in streamed(calls, form)]
        assert made(ChatFold(ThinkTags.LEADING), chunks) == wanted(calls), (chunks,)


@given(calls=written(), form=FORMS)
def test_calls_of_a_reply_in_one_piece_are_the_calls_that_were_made(calls, form):
    # RD02, C60: what stands in a list of whole calls is a call, whatever its index
    whole = [Written(one.name, one.arguments, one.id, [one.arguments]) for one in calls]
    listed = [
        fragments(one, number, Form(form.ids, form.index, "each", False, False, False))[0]
        for number, one in enumerate(whole)
    ]
    again = listed[-1:] if form.is_repeated else []
    for one in listed + again if form.ids != "one" else listed:
        one["function"].setdefault("arguments", "")
    message = {"choices": [{"message": {"content": None, "tool_calls": [*listed, *again]}}]}
    assert made(ChatFold(ThinkTags.LEADING), [message]) == wanted(calls)


@given(calls=written(), form=FORMS)
def test_calls_of_ollama_are_the_calls_that_were_made(calls, form):
    # RD02, C60: they come whole, in one message or several
    listed = [
        {
            **fragments(one, number, Form(form.ids, "none", "each", False, False, False))[-1],
            "function": {"index": 0, "name": one.name, "arguments": json.loads(one.arguments or "{}")},
        }
        for number, one in enumerate(calls)
    ]
    if form.is_repeated and form.ids != "one":
        listed.append(listed[-1])
    turns = [listed] if form.is_mixed else [[one] for one in listed]
    chunks: Fragments = [{"message": {"tool_calls": turn}, "done": False} for turn in turns]
    if form.ids != "one":
        said = [(name, json.loads(arguments)) for name, arguments in made(OllamaFold(ThinkTags.LEADING), chunks)]
        assert said == [(name, json.loads(arguments)) for name, arguments in wanted(calls)]


@given(calls=written(), form=FORMS, stops=st.booleans(), given_whole=st.booleans())
def test_calls_in_content_blocks_are_the_calls_that_were_made(calls, form, stops, given_whole):
    # RD02, C60: Anthropic's blocks, with and without indexes and ends
    events: Fragments = []
    is_placed = form.index in ("own", "text")
    for number, call in enumerate(calls):
        place = {} if form.index == "none" else {"index": number if is_placed else 0}
        block: dict[str, Any] = {"type": "tool_use", "name": call.name, "input": {}}
        if form.ids in ("each", "first"):
            block["id"] = call.id
        elif form.ids is not ABSENT:
            block["id"] = form.ids if form.ids != "one" else f"one{number}"
        if given_whole:
            block["input"] = json.loads(call.arguments or "{}")
        events.append({"type": "content_block_start", **place, "content_block": block})
        for piece in [] if given_whole else call.pieces:
            delta = {"type": "input_json_delta", "partial_json": piece}
            events.append({"type": "content_block_delta", **place, "delta": delta})
        if stops:
            events.append({"type": "content_block_stop", **place})
    pairs = pairwise(calls)
    if (
        stops
        or form.index in ("own", "text", "none")
        or form.ids in ("each", "first", "one")
        or all(one.name != other.name for one, other in pairs)
    ):
        said = made(AnthropicFold(), events)
        assert [(name, json.loads(text)) for name, text in said] == [
            (name, json.loads(text)) for name, text in wanted(calls)
        ]


@given(calls=written(), form=FORMS)
def test_calls_in_parts_are_the_calls_that_were_made(calls, form):
    # RD02, C60: Gemini's parts, whole or in pieces of which any may repeat the name
    parts: Fragments = []
    for call in calls:
        named = {"id": call.id} if form.ids == "each" else {}
        arguments = json.loads(call.arguments or "{}")
        if form.is_apart:
            for at, (key, value) in enumerate(arguments.items()):
                name = {"name": call.name} if form.names == "each" or not at else {}
                piece = {"jsonPath": f"$.{key}", "stringValue": value if isinstance(value, str) else ""}
                parts.append({"functionCall": {**named, **name, "partialArgs": [piece], "willContinue": True}})
            parts.append({"functionCall": {**named, **({} if arguments else {"name": call.name})}})
        else:
            parts.append({"functionCall": {**named, "name": call.name, "args": arguments}})
    if form.is_repeated and not form.is_apart:
        parts.append(parts[-1])
    chunks = [{"candidates": [{"content": {"parts": [part]}}]} for part in parts]
    if form.is_apart and any('{"a"' in call.arguments for call in calls):
        return
    assert [(name, json.loads(text)) for name, text in made(GeminiFold(), chunks)] == [
        (name, json.loads(text)) for name, text in wanted(calls)
    ]


def folded(*fragments: dict[str, Any]) -> list[tuple[str, str, str]]:
    fold = ToolCallFold()
    for one in fragments:
        fold.feed([one])
    end = fold.end()
    return [(call.id, call.name, call.arguments) for call in end.calls] if end else []


def piece(arguments: str | None = None, name: str | None = None, **more: Any) -> dict[str, Any]:
    return {**more, "function": {"arguments": arguments, "name": name}}


@pytest.mark.parametrize(
    ("fragments", "calls"),
    [
        ([piece('{"a":1}', "f", id="a", index=0), piece('{"a":1}', "f", id="a", index=1)], [("a", "f", '{"a":1}')]),
        ([piece('{"a":1}', "f", id="a", index=0), piece('{"a": 1}', "f", index=1)], [("a", "f", '{"a":1}')]),
        ([piece('{"a":1}', "f", id="a"), piece('{"a":1}', "f", id="b")], [("a", "f", '{"a":1}'), ("b", "f", '{"a":1}')]),
        ([piece('{"a":1}', "f", id="a"), piece("", "f", id="a")], [("a", "f", '{"a":1}')]),
        ([piece('{"a":1}', "f"), piece("", "f"), piece('{"a":2}')], [("", "f", '{"a":1}'), ("", "f", '{"a":2}')]),
        ([piece('{"a":1}', "f", id="a"), piece('{"a":2}', id="a")], [("a", "f", '{"a":1}')]),
        ([piece('{"a":1}', "f", index=0), piece('{"a":2}', index=0)], [("", "f", '{"a":1}')]),
        ([piece("{}", "f", id="a", index=0), piece('{"a":1}', index=0)], [("a", "f", '{"a":1}')]),
        ([piece("{}", "f", id="a"), piece('{"a":1}', "f", id="a")], [("a", "f", '{"a":1}')]),
        ([piece("{}", "f", index=0), piece('{"a":1}', "f", index=0)], [("", "f", "{}"), ("", "f", '{"a":1}')]),
        ([piece("", "f", id="a"), piece('{"a":1}', index=0)], [("a", "f", '{"a":1}')]),
        ([piece('{"a":', "f", id="a", index=0), piece("1}", id="a", index=1)], [("a", "f", '{"a":1}')]),
        ([piece('{"a":', "f", id="c", index=0), piece('{"b":', "g", id="c", index=1), piece("1}", id="c", index=0), piece("2}", id="c", index=1)],
         [("c", "f", '{"a":1}'), ("c", "g", '{"b":2}')]),
        # Ids that are numbers, drawn anew for each fragment, or alike for as long as an id may be.
        ([piece('{"a":', "f", id=1, index=0), piece('{"b":', "g", id=2, index=0), piece("1}", id=1, index=0), piece("2}", id=2, index=0)],
         [("1", "f", '{"a":1}'), ("2", "g", '{"b":2}')]),
        ([piece("", "f", id="u", index=0), piece('{"a":', id="v", index=0), piece("1}", id="w", index=0), piece("{}", "g", id="x", index=1)],
         [("u", "f", '{"a":1}'), ("x", "g", "{}")]),
        # A call without the object around its name; the only one without the list around it.
        ([{"id": "a", "name": "f", "arguments": '{"a":1}'}], [("a", "f", '{"a":1}')]),
        ([piece('{"a":1}{"b":2}', "f", index=0)], [("", "f", '{"a":1}{"b":2}')]),
    ],
)  # fmt: skip
def test_a_fragment_begins_a_call_or_goes_on_with_one(fragments, calls):
    # C60
    assert folded(*fragments) == calls


@pytest.mark.parametrize("chars", [300, CALL_ID_CHARS_MAX + 1])
def test_calls_whose_long_ids_begin_alike_are_several(chars):
    made = folded(*(piece("{}", "f", id="x" * (chars - 1) + last) for last in "1212"))
    assert len({call_id for call_id, *_ in made}) == len(made) == 2
    assert {len(call_id) for call_id, *_ in made} == {min(chars, CALL_ID_CHARS_MAX)}


def test_fragments_of_calls_with_long_ids_find_their_call():
    one, two = ("call_1__thought__" + "+/=x" * 1_000 + last for last in "12")
    made = folded(piece('{"a":', "f", id=one), piece('{"b":', "g", id=two), piece("1}", id=one), piece("2}", id=two))
    assert made == [(one, "f", '{"a":1}'), (two, "g", '{"b":2}')]


@pytest.mark.parametrize(
    "choices",
    [
        [{"delta": {"content": "I look."}}, {"delta": {}, "message": {"content": "I look.", "tool_calls": [piece("{}", "get", id="a")]}, "finish_reason": "tool_calls"}],
        [{"delta": {"function_call": {"name": "get", "arguments": ""}}}, {"delta": {"function_call": {"arguments": "{}"}}, "finish_reason": "function_call"}],
        [{"delta": {"tool_calls": piece("{}", "get", index=0)}, "finish_reason": "tool_calls"}],
    ],
    ids=["in the last message", "outside of a list", "alone"],
)  # fmt: skip
def test_a_call_is_found_wherever_servers_put_it(choices):
    assert made(ChatFold(ThinkTags.LEADING), [{"choices": [one]} for one in choices]) == [("get", "{}")]


@pytest.mark.parametrize("start", [{"type": "text", "text": "a"}, {"type": "thinking", "thinking": "hm"}])
@pytest.mark.parametrize("piece", ['{"a":1}', {"a": 1}])
def test_arguments_of_a_block_that_takes_none_are_those_of_the_latest_call(start, piece):
    events = [
        {"type": "content_block_start", "index": 0, "content_block": start},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "tool_use", "id": "u", "name": "f"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": piece}},
    ]
    assert made(AnthropicFold(), events) == [("f", '{"a":1}')]


def test_arguments_for_gemini_may_be_their_text():
    part = {"functionCall": {"name": "get", "args": '{"path":"a"}'}}
    assert made(GeminiFold(), [{"candidates": [{"content": {"parts": [part]}}]}]) == [("get", '{"path":"a"}')]


def test_a_call_that_is_one_too_many_takes_nothing_of_the_others():
    fold = ToolCallFold()
    for number in range(200):
        fold.feed([piece("", "f", id=str(number), index=0)])
        fold.feed([piece(f'{{"n":{number}}}', index=0)])
    assert [json.loads(call.arguments)["n"] for call in fold.end().calls] == list(range(129))


@pytest.mark.parametrize("text", ["{}", '{"a":1}', "{x}", "}", '{"', "\\", '"}{"'])
def test_fragments_cost_the_same_however_many_came_before(text):
    def fed(times: int) -> None:
        fold = ToolCallFold()
        for _ in range(times):
            fold.feed([piece(text, "f", index=0)])

    assert steps(lambda: fed(2000)) < 2.5 * steps(lambda: fed(1000))
