"""Which item an event of Responses belongs to: a reply stays the same whatever identifies its items or is left out."""

import contextlib
import copy
import json
from collections.abc import Callable, Iterator
from itertools import combinations
from typing import Any

import pytest

from turnwright_core.chat.message import Message
from turnwright_core.chat.reply import PartialReply
from turnwright_provider.domain.failures import VendorError
from turnwright_provider.domain.wires.responses_reply import ResponsesFold
from unit.provider.recorded import body_of, recorded
from unit.provider.test_responses_replies import events_of

Event = dict[str, Any]

RECORDED = {
    name: case
    for name, case in recorded(api="openai.responses").items()
    if case["response"]["status"] == 200 and "stream" in case["tags"]
}


def message(text: str, *parts: str) -> Event:
    return {"type": "message", "id": f"ms_{text[:3]}", "role": "assistant", "content": [{"type": "output_text", "text": one} for one in (text, *parts)]}  # fmt: skip


def thought(*texts: str) -> Event:
    return {"type": "reasoning", "id": f"rs_{''.join(texts)[:3]}", "summary": [{"type": "summary_text", "text": one} for one in texts], "encrypted_content": "b3BhcXVl"}  # fmt: skip


def call(number: int, name: str, arguments: str) -> Event:
    return {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}", "name": name, "arguments": arguments}  # fmt: skip


def event(kind: str, **fields: Any) -> Event:
    return {"type": f"response.{kind}", **fields}


def pieces(text: str) -> list[str]:
    return [text[:7], text[7:]] if len(text) > 7 else [text] if text else []


def said(index: int, item: Event) -> Iterator[Event]:
    """The events of one item, as OpenAI sends them."""
    at = {"output_index": index, "item_id": item["id"]}
    empty = {"content": []} if item["type"] == "message" else {"summary": []}
    begun = {**item, "arguments": ""} if item["type"] == "function_call" else {**item, **empty}
    yield event("output_item.added", output_index=index, item=begun)
    for place, part in enumerate(item.get("content", ())):
        yield from (event("output_text.delta", content_index=place, delta=one, **at) for one in pieces(part["text"]))
        yield event("output_text.done", content_index=place, text=part["text"], **at)
        yield event("content_part.done", content_index=place, part=part, **at)
    for place, part in enumerate(item.get("summary", ())):
        for one in pieces(part["text"]):
            yield event("reasoning_summary_text.delta", summary_index=place, delta=one, **at)
        yield event("reasoning_summary_text.done", summary_index=place, text=part["text"], **at)
        yield event("reasoning_summary_part.done", summary_index=place, part=part, **at)
    if arguments := item.get("arguments"):
        for one in pieces(arguments):
            yield event("function_call_arguments.delta", delta=one, **at)
        yield event("function_call_arguments.done", arguments=arguments, **at)
    yield event("output_item.done", output_index=index, item=item)


def stream(*items: Event) -> list[Event]:
    events = [one for index, item in enumerate(items) for one in said(index, item)]
    usage = {"input_tokens": 10, "output_tokens": 5}
    return [
        *events,
        event("completed", response={"status": "completed", "model": "g", "output": [*items], "usage": usage}),
    ]


SH = '{"command":"echo once >> f"}'
WRITTEN = {
    "a text": stream(message("<sh>echo once >> f</sh>\n")),
    "parts": stream(message("First part. ", "Second part.", "third")),
    "texts": stream(message("One, and then "), message("two.")),
    "thoughts": stream(thought("I look at it.", "And at that."), message("Done, all of it.")),
    "an opaque thought": stream(thought(), call(0, "get", '{"path":"a"}')),
    "a call": stream(message("I run it."), call(0, "sh", SH)),
    "calls": stream(call(0, "get", '{"path":"keep.txt"}'), call(1, "rm", '{"path":"other.txt"}')),
    "calls of one tool": stream(call(0, "sh", SH), call(1, "sh", '{"command":"ls"}'), call(2, "get_plan", "{}")),
    "everything": stream(thought("Hm, let me see."), message("I look. "), call(0, "get", '{"path":"a"}'), thought("So."), message("Done."), call(1, "sh", SH)),
}  # fmt: skip

FIELDS = ("output_index", "content_index", "summary_index", "item_id", "item.id", "call_id", "item.call_id")


def holder(one: Event, name: str) -> tuple[Event, str] | None:
    """The object with a field, and the field's name in it."""
    inner, _, last = name.rpartition(".")
    found = one.get(inner) if inner else one
    return (found, last) if isinstance(found, dict) and last in found else None


def dropped(one: Event, name: str, number: int) -> None:
    del number
    if found := holder(one, name):
        del found[0][found[1]]


def nulled(one: Event, name: str, number: int) -> None:
    del number
    if found := holder(one, name):
        found[0][found[1]] = None


def shifted(one: Event, name: str, number: int) -> None:
    """A number is one more, an id another in each event, as GitHub Copilot has them."""
    if found := holder(one, name):
        value = found[0][found[1]]
        found[0][found[1]] = value + 1 if isinstance(value, int) else f"{value}_{number}"


def shifted_in_deltas(one: Event, name: str, number: int) -> None:
    if one["type"].endswith(".delta"):
        shifted(one, name, number)


def shifted_in_ends(one: Event, name: str, number: int) -> None:
    if one["type"].endswith(".done"):
        shifted(one, name, number)


def the_same(one: Event, name: str, number: int) -> None:
    del number
    if found := holder(one, name):
        found[0][found[1]] = 0 if isinstance(found[0][found[1]], int) else "same"


def numbered(one: Event, name: str, number: int) -> None:
    """An id is a number, of each item another."""
    del number
    found = holder(one, name)
    if found and isinstance(found[0][found[1]], str):
        found[0][found[1]] = int.from_bytes(found[0][found[1]].encode())


FAULTS: dict[str, Callable[[Event, str, int], None]] = {
    one.__name__: one for one in (dropped, nulled, shifted, shifted_in_deltas, shifted_in_ends, the_same, numbered)
}


def damaged(events: list[Event], fault: str, *names: str) -> list[Event]:
    events = json.loads(json.dumps(events))
    for number, one in enumerate(events):
        for name in names:
            FAULTS[fault](one, name, number)
            if isinstance(response := one.get("response"), dict) and name.startswith("item."):
                for place, item in enumerate(response.get("output") or ()):
                    FAULTS[fault](item, name.removeprefix("item."), 1000 + place)
    return events


def folded(events: list[Event]) -> Message:
    fold, reply = ResponsesFold(), PartialReply()
    with contextlib.suppress(VendorError):
        for one in events:
            for delta in fold.take(one):
                reply.add(delta)
    for delta in fold.break_off():
        reply.add(delta)
    return reply.message("v/m")


def ended(events: list[Event], status: str) -> list[Event]:
    """The stream with another end."""
    last = copy.deepcopy(events[-1])
    last["type"] = f"response.{status}"
    last["response"] |= {"status": status, **({"error": {"message": "no"}} if status == "failed" else {})}
    return [*events[:-1], last]


def meant(whole: Message) -> tuple[Any, ...]:
    """What a message says and does, and the order of its blocks; ids are what is damaged here."""
    placed = [(call.block, call.name) for call in whole.calls]
    placed += [(block.index, block.type) for block in whole.thinking]
    placed += [(block.index, json.loads(block.json)["type"]) for block in whole.server_blocks]
    calls = [(call.name, call.arguments) for call in whole.calls]
    return whole.text, whole.reasoning, calls, sorted(placed, key=str), whole.citations


def pairs_of(events: list[Event], most: int = 2) -> list[tuple[str, ...]]:
    """So many fields at most, in every way, of those that the stream has: any other has no damage to show."""
    has = [name for name in FIELDS if damaged(events, "dropped", name) != events]
    return [names for number in range(most + 1) for names in combinations(has, number)]


ENDS = {"completed": 2, "incomplete": 1, "cancelled": 1, "failed": 1}
"""The ends of a reply -> how many fields are damaged together before it."""


def differing(events: list[Event], fault: str) -> list[tuple[str, tuple[str, ...]]]:
    """The ends, and the fields with the fault, with which the stream is another message."""
    wanted, pairs = meant(folded(events)), pairs_of(events)
    streams = [(end, ended(events, end), names) for end, most in ENDS.items() for names in pairs if len(names) <= most]
    return [(end, names) for end, one, names in streams if meant(folded(damaged(one, fault, *names))) != wanted]


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_written_stream_stays_the_same_message_with_any_two_fields_damaged(name, fault):
    assert differing(WRITTEN[name], fault) == []


@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_recorded_stream_stays_the_same_message_with_any_two_fields_damaged(name, fault):
    assert differing(events_of(body_of(RECORDED[name])), fault) == []


def written_anew(events: list[Event]) -> list[Event]:
    """What is complete is stripped, and arguments are in another spelling, as some proxies have them."""

    def anew(value: Any) -> Any:
        if isinstance(value, list):
            return [anew(one) for one in value]
        if not isinstance(value, dict):
            return value
        new = {name: anew(one) for name, one in value.items()}
        new |= {name: new[name].strip() for name in ("text",) if name in new}
        return new | {name: new[name].replace(":", ": ") for name in ("arguments",) if new.get(name)}

    return [anew(one) if one["type"].endswith((".done", ".completed")) else one for one in events]


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("fault", ["dropped", "shifted", "shifted_in_ends", "the_same", "numbered"])
def test_a_stream_whose_complete_items_are_written_anew_says_nothing_twice(name, fault):
    events = [one for one in WRITTEN[name] if not (fault == "dropped" and one["type"].endswith("added"))]
    wanted, anew = meant(folded(events)), written_anew(events)
    differ = [names for names in pairs_of(anew) if meant(folded(damaged(anew, fault, *names))) != wanted]
    assert differ == []


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "content": "Done."},
        {"type": "message", "content": [{"type": "text", "text": "Done."}]},
        {"type": "function_call", "name": "get", "call_id": "c", "arguments": {"path": "a"}},
        {"type": "function_call", "name": "get", "call_id": "c", "arguments": '{"path":"a"}'},
    ],
)
@pytest.mark.parametrize("kind", ["output_item.added", "output_item.done", "completed"])
def test_an_item_is_taken_in_any_form_and_from_the_only_event_that_has_it(item, kind):
    listed = {"response": {"status": "completed", "output": [item] if kind == "completed" else []}}
    first = [] if kind == "completed" else [event(kind, output_index=0, item=item)]
    got = folded([*first, event("completed", **listed)])
    assert (got.text, [(one.name, one.arguments) for one in got.calls]) in [
        ("Done.", []),
        ("", [("get", '{"path":"a"}')]),
    ]


def test_a_call_may_be_named_by_the_end_of_its_arguments():
    arguments = '{"path":"a"}'
    pieces = [event("function_call_arguments.delta", item_id="f", delta=arguments)]
    end = event("function_call_arguments.done", item_id="f", name="get", arguments=arguments)
    got = folded([*pieces, end, event("completed", response={"status": "completed", "output": []})])
    assert [(one.name, one.arguments) for one in got.calls] == [("get", arguments)]


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize("end", ENDS)
def test_what_only_the_last_event_lists_is_taken(name, end):
    events = ended(WRITTEN[name], end)
    wanted = meant(folded(events))
    last = events[-1]
    for index in range(len(last["response"]["output"])):
        got = folded([one for one in events if one.get("output_index", -1) != index])
        assert sorted(got.text) == sorted(wanted[0])
        assert sorted((call.name, call.arguments) for call in got.calls) == sorted(wanted[2])
    assert meant(folded([last])) == wanted


@pytest.mark.parametrize("name", WRITTEN)
@pytest.mark.parametrize(
    "kinds",
    [
        ("output_item.added",),
        ("output_item.done",),
        (".delta",),
        ("text.done", "arguments.done"),
        (".delta", "text.done", "part.done", "arguments.done"),
        ("output_item.added", "output_item.done", "text.done", "part.done", "arguments.done"),
    ],
    ids=" ".join,
)
def test_each_text_is_taken_once_whichever_events_are_missing(name, kinds):
    events = [one for one in WRITTEN[name] if not one["type"].endswith(kinds)]
    got, wanted = folded(events), folded(WRITTEN[name])
    assert (got.text, got.reasoning) == (wanted.text, wanted.reasoning)
    assert [(one.name, one.arguments) for one in got.calls] == [(one.name, one.arguments) for one in wanted.calls]


@pytest.mark.parametrize("field", ["output_index", "item_id"])
def test_pieces_of_two_calls_that_take_turns_are_told_apart_by_an_id_or_an_index_alone(field):
    calls = [call(0, "get", '{"path":"keep.txt"}'), call(1, "rm", '{"path":"other.txt"}')]
    ends = WRITTEN["calls"][-1:]
    each = [list(said(index, one))[:-2] for index, one in enumerate(calls)]
    turns = [one for turn in zip(*each, strict=True) for one in turn]
    kept = ("type", "delta", "item", field)
    events = [{name: value for name, value in one.items() if name in kept} for one in turns]
    got = folded([*events, *ends])
    assert [(one.name, one.arguments) for one in got.calls] == [(one["name"], one["arguments"]) for one in calls]


CARRIERS = {
    "pieces": (".delta",),
    "texts": ("text.done",),
    "parts": ("part.done",),
    "items": ("output_item.done",),
    "the end": (),
}
"""What carries the texts of a reply -> the ends of those events' names."""


def carried(events: list[Event], *carriers: str) -> list[Event]:
    """The stream whose texts are only in these carriers. Whatever else is in it has no text."""
    left_out = tuple(end for name, ends in CARRIERS.items() if name not in carriers for end in ends)
    kept = [one for one in events if not one["type"].endswith(left_out) or "arguments" in one["type"]]
    if "the end" not in carriers:
        empty = [isinstance(one.get("response"), dict) for one in kept]
        kept = [
            {**one, "response": {**one["response"], "output": []}} if is_empty else one
            for one, is_empty in zip(kept, empty, strict=True)
        ]
    return kept


def texts_of(events: list[Event]) -> tuple[str, str]:
    """What is said, and what was thought, where only the ends of its parts tell where they are."""
    got = folded(events)
    return got.text, "".join(got.reasoning.split())


@pytest.mark.parametrize("name", [*WRITTEN, *RECORDED])
@pytest.mark.parametrize("fault", ["dropped", "shifted", "the_same"])
def test_a_text_is_taken_once_from_whatever_carries_it_with_any_field_damaged(name, fault):
    events = WRITTEN[name] if name in WRITTEN else events_of(body_of(RECORDED[name]))
    wanted = texts_of(events)
    kept = [set(one) for size in (1, 2) for one in combinations(CARRIERS, size)]
    has = {one for one in CARRIERS if texts_of(carried(events, one)) == wanted}
    assert has == {*CARRIERS} or name in RECORDED
    streams = [(one, carried(events, *one)) for one in kept if one & has]
    differ = [
        (one, names)
        for one, stream in streams
        for names in pairs_of(stream, 1)
        if texts_of(damaged(stream, fault, *names)) != wanted
    ]
    assert differ == []


OUTPUT_TEXT = [
    event("output_text", text="Done."),
    event("output_text.done", text="Done."),
    event("content_part.done", part={"type": "output_text", "text": "Done."}),
    event("content_part.done", part={"type": "text", "text": "Done."}),
    event("content_part.done", part={"type": "refusal", "refusal": "Done."}),
    event("completed", response={"status": "completed", "output": [], "output_text": "Done."}),
    event("completed", response={"status": "completed", "output_text": "Done."}),
    event("output_text.delta", delta="Do"),
    event("output_text", delta="Do"),
    event("output_item.done", item={"type": "message", "content": "Done."}),
]


@pytest.mark.parametrize("first", OUTPUT_TEXT)
@pytest.mark.parametrize("then", OUTPUT_TEXT[:-3])
def test_a_text_beside_the_items_is_taken_once(first, then):
    end = event("completed", response={"status": "completed", "output": []})
    assert folded([first, then, end]).text == "Done."
    assert folded([then, end]).text == "Done."


def test_a_text_beside_the_items_of_a_whole_body_is_taken():
    fold, reply = ResponsesFold(), PartialReply()
    for delta in [*fold.whole({"status": "completed", "output": [], "output_text": "Done."}), *fold.break_off()]:
        reply.add(delta)
    assert reply.message("v/m").text == "Done."


def test_a_text_beside_the_items_is_no_other_text_than_theirs():
    # It is made of them, and a server may make it of other ones than it lists.
    events = WRITTEN["texts"]
    events = [*events[:-1], {**events[-1], "response": {**events[-1]["response"], "output_text": "One, and more"}}]
    assert folded(events).text == "One, and then two."
