"""The messages of a run as a transcript shows them: what is kept up to date is what is made anew. RL02, RL06."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from turnwright.types.v1 import command_record_pb2
from turnwright_values.types import Cursor, Entry, State, Visibility

from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.ports import ViewPart
from turnwright_core.chat.message import Message
from turnwright_core.chat.transcript import from_json_lines
from turnwright_core.delta_encoding import decode
from turnwright_core.packet_digest import packet_digest
from unit.assembler.entries import entry

AT = Cursor("i", 1, 0, 0)


def record(turn: int, place: int, text: str, tool: str = "get", **changes: object) -> Entry:
    """A settled call of a turn."""
    call_id = f"call_{turn}_{place}"
    made = command_record_pb2.CommandRecord(tool=tool, call_id=call_id, vendor_call_id=f"v{turn}{place}")
    made.command.attributes.add(name="path", value="a.txt")
    path = f"log://turn_{turn}/{tool}/{place}"
    stored = entry(path, text, position=100 * turn + 1 + place, turn=turn, tool=tool, target="a.txt")
    return replace(stored, record=made.SerializeToString(), **changes)


def reply(turn: int, calls: int, text: str = "I look.") -> Entry:
    """A reply that calls tools."""
    told = [
        {"path": f"log://turn_{turn}/get/{place}", "call_id": f"call_{turn}_{place}", "id": f"v{turn}{place}"}
        for place in range(calls)
    ]
    return entry(f"assistant://{turn}", text, position=100 * turn, turn=turn, calls=told, call={"model": "a/b"})


def prompt(turn: int = 1, text: str = "Do it.") -> Entry:
    return entry(f"prompt://{turn}", text, position=100 * turn - 1, turn=turn, mode="act", loop=turn)


def rows_of(*entries: Entry) -> TranscriptRows:
    rows = TranscriptRows()
    rows.apply(ViewPart(entries, (), AT))
    return rows


def sent(rows: TranscriptRows) -> list[Message]:
    return from_json_lines("".join(dict(rows.messages())["conversation"]))


def test_a_call_has_the_arguments_of_its_record_and_its_result_behind_it():
    rows = rows_of(prompt(), reply(1, 2), record(1, 1, "two"), record(1, 0, "one"))
    _, said, *results = sent(rows)
    assert [(call.name, call.arguments, call.call_id) for call in said.calls] == [
        ("get", '{"path":"a.txt"}', "call_1_0"), ("get", '{"path":"a.txt"}', "call_1_1"),
    ]  # fmt: skip
    assert [result.text for result in results] == ["one", "two"]


def test_a_result_that_gave_way_keeps_both_ends_or_says_where_it_is():
    text = "begin " + "x" * 5000 + " end"
    kept = rows_of(prompt(), reply(1, 1), record(1, 0, text, visibility=Visibility.SUMMARIZED))
    assert sent(kept)[-1].text.startswith("begin ")
    assert sent(kept)[-1].text.endswith(" end")
    assert "log://turn_1/get/0" in sent(kept)[-1].text
    assert len(sent(kept)[-1].text) < 1000
    gone = rows_of(prompt(), reply(1, 1), record(1, 0, text, visibility=Visibility.ARCHIVED))
    assert sent(gone)[-1].text == "This result was left out to save room. `get` of log://turn_1/get/0 shows it again."


ENTRIES = st.one_of(
    st.builds(reply, st.integers(1, 4), st.integers(0, 2), st.sampled_from(["", "a", "b"])),
    st.builds(
        record,
        st.integers(1, 4),
        st.integers(0, 2),
        st.sampled_from(["r", "x" * 2000]),
        visibility=st.sampled_from(list(Visibility)[1:]),
        state=st.sampled_from([State.RECORDED, State.RESOLVED, State.FAILED]),
    ),
    st.builds(prompt, st.integers(1, 5), st.sampled_from(["", "p"])),
    st.builds(
        lambda turn, text: entry(f"log://turn_{turn}/inject/a", text, position=100 * turn + 50, tool="inject"),
        st.integers(1, 4),
        st.sampled_from(["", "i"]),
    ),
    st.builds(
        lambda tools: entry("instructions://system", "", tools=tools), st.sampled_from([["get"], ["get", "set"]])
    ),
)
PARTS = st.lists(st.tuples(st.lists(ENTRIES, max_size=4), st.lists(ENTRIES, max_size=1)), min_size=1, max_size=8)


@given(PARTS)
def test_what_changes_come_to_is_what_a_snapshot_comes_to(parts):
    warm, now = TranscriptRows(), {}
    digest, told = "", ()
    for changed, gone in parts:
        removed = tuple(one.path for one in gone)
        for one in changed:
            now[one.path] = one
        for path in removed:
            now.pop(path, None)
        kept = tuple(one for one in {one.path: one for one in changed}.values() if one.path not in removed)
        warm.apply(ViewPart(kept, removed, AT))
        cold = rows_of(*sorted(now.values(), key=lambda one: one.position))
        made, digest = warm.as_delta(digest)
        assert _whole(made, told) == [(role, tuple(pieces)) for role, pieces in cold.messages()]
        assert digest == packet_digest(cold.messages())
        assert warm.chars == cold.chars
        told = tuple(chain.from_iterable(pieces for _, pieces in warm.messages()))


def _whole(
    messages: Sequence[tuple[str, Sequence[object]]], base: Sequence[str]
) -> list[tuple[str, tuple[object, ...]]]:
    return [(role, tuple(decode(pieces, base))) for role, pieces in messages]
