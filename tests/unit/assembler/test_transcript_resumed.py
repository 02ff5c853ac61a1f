"""A transcript that goes on from the text of a stored one is what is made of all entries, or is refused. RL02."""

from __future__ import annotations

import json
from collections import Counter
from itertools import chain

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from turnwright.types.v1 import command_record_pb2

from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.checkpoint import Checkpoint, checkpoint_in
from turnwright_assembler.ports import ViewPart
from turnwright_core.chat.transcript import TextOnlyError
from turnwright_core.delta_encoding import decode
from turnwright_core.entries import Cursor, Entry, State, Visibility
from turnwright_core.packet_digest import packet_digest
from unit.assembler.entries import entry
from unit.assembler.test_transcript_rows import rows_of

VERSION = "1.0"


def _note(checkpoint: str) -> str:
    return json.dumps({"tokens": 1, "checkpoint": checkpoint})


class History:
    """A run of which entries come, change and go, as a store has it: later entries have later positions."""

    def __init__(self) -> None:
        self.now: dict[str, Entry] = {}
        self.position = 0
        self.turn = 0

    def add(self, one: Entry) -> Entry:
        known = self.now.get(one.path)
        self.position += not known
        self.now[one.path] = replace(one, position=known.position if known else self.position)
        return self.now[one.path]

    def turned(self, draw: st.DrawFn) -> list[Entry]:
        """A turn: a reply, and results of its calls, now or later."""
        self.turn += 1
        turn, calls = self.turn, draw(st.integers(0, 2))
        ids = [f"call_{turn if draw(st.integers(0, 9)) else max(1, turn - 1)}_{place}" for place in range(calls)]
        told = [{"path": f"log://turn_{turn}/get/{place}", "call_id": one} for place, one in enumerate(ids)]
        text = draw(st.sampled_from(["", "a", 'say "x"\n', "é\u0001", *"b" * 15, "y" * 70_000]))
        found = [entry(f"assistant://{turn}", text, turn=turn, calls=told, call={"model": "a/b"})]
        if draw(st.booleans()):
            found.append(entry(f"reasoning://{turn}", "hm", turn=turn))
        for place, call_id in enumerate(ids):
            record = command_record_pb2.CommandRecord(tool="get", call_id=call_id).SerializeToString()
            state = draw(st.sampled_from([State.RESOLVED, State.RESOLVED, State.RESOLVED, State.RECORDED]))
            result = entry(f"log://turn_{turn}/get/{place}", "r" * draw(st.integers(0, 9)), turn=turn, tool="get")
            found.append(replace(result, record=record, state=state))
        return list(map(self.add, found))

    def said(self, draw: st.DrawFn) -> list[Entry]:
        turn = self.turn + 1
        number = draw(st.integers(0, 10**6))
        event = {"subkind": "tick", "source": "s", "payload": {}}
        report = {
            "subkind": "summarization_marker", "source": "compression",
            "payload": {"breaks_prefix": True, "stages": {"results": 1}, "results": ["log://turn_1/get/0"]},
        }  # fmt: skip
        plan = {
            "plan_id": "main",
            "version": draw(st.integers(1, 2)),
            "change": draw(st.sampled_from(["set", "moved"])),
        }
        said = [
            [entry(f"prompt://{turn}", draw(st.sampled_from(["", "p", "é"])), turn=turn, mode="act")],
            [entry(f"log://turn_{turn}/inject/{number}", "i", tool="inject")],
            [entry(f"event://turn_{turn}/tick/{number}", "e", event=event)],
            [entry(f"event://turn_{turn}/summarization_marker/{number}", "c", event=report)],
            [
                entry(
                    f"event://turn_{turn}/plan_delta/{number}", "changed",
                    event={"subkind": "plan_delta", "source": "plan", "payload": plan},
                ),
                *draw(st.sampled_from([[], [entry("plan://main", f"plan {number}", version=plan["version"])]])),
            ],
            [entry(f"assistant://{turn}", "s", summarizes=["assistant://1"])],
            [entry(f"log://turn_{turn}/get/{number}", "orphan", tool="error", call_id="call_1_0", outcome="e:1")],
        ]  # fmt: skip
        return list(map(self.add, draw(st.sampled_from(said))))

    def changed(self, draw: st.DrawFn) -> tuple[list[Entry], list[str]]:
        """Something that was there before."""
        if not self.now:
            return [], []
        old = self.now[draw(st.sampled_from(sorted(self.now)))]
        match draw(st.integers(0, 4)):
            case 0:
                del self.now[old.path]
                return [], [old.path]
            case 1:
                return [
                    self.add(entry("instructions://system", "", tools=draw(st.sampled_from([["get"], ["set"]]))))
                ], []
            case 2:
                return [self.add(replace(old, visibility=draw(st.sampled_from(list(Visibility)[1:]))))], []
            case 3:
                return [self.add(replace(old, body="other"))], []
        return [self.add(replace(old, state=State.RESOLVED))], []


seen: Counter[str] = Counter()


@settings(max_examples=60)
@given(st.data())
def test_what_goes_on_from_a_stored_text_is_what_all_entries_come_to(data):
    history, rows = History(), TranscriptRows()
    stored: tuple[Checkpoint, dict[str, tuple[str, ...]]] | None = None
    warm, digest, told = None, "", ()
    for number in range(data.draw(st.integers(2, 8))):
        entries: dict[str, Entry] = {}
        removed: list[str] = []
        for kind in data.draw(st.lists(st.sampled_from("ttttssc"), min_size=1, max_size=3)):
            if kind == "c":
                changed, gone = history.changed(data.draw)
                removed += gone
            else:
                changed = (history.turned if kind == "t" else history.said)(data.draw)
            entries |= {one.path: one for one in changed}
        part = ViewPart(
            tuple(sorted((one for path, one in entries.items() if path in history.now), key=lambda one: one.position)),
            tuple(path for path in removed if path not in history.now),
            Cursor("i", number, 0, 0),
        )
        rows.apply(part)
        cold = rows_of(*sorted(history.now.values(), key=lambda one: one.position))
        wanted = [(role, tuple(pieces)) for role, pieces in cold.messages()]
        digest_before, digest = digest, packet_digest(wanted)
        assert rows.as_delta("")[1] == digest
        resumed = TranscriptRows.resumed(*stored) if stored else None
        assert bool(resumed) == bool(stored)
        going_on = [one for one in (warm, resumed) if one]
        warm = None
        for one in going_on:
            try:
                one.apply(part)
                made, made_digest = one.as_delta(digest_before)
            except TextOnlyError:
                seen["refused"] += 1
                continue
            seen["resumed"] += 1
            warm = warm or one
            assert [(role, tuple(decode(parts, told))) for role, parts in made] == wanted
            assert [(role, tuple(pieces)) for role, pieces in one.messages()] == wanted
            assert made_digest == digest
            assert (one.chars, one.strength, one.broken_in) == (rows.chars, rows.strength, rows.broken_in)
            assert one.checkpoint(VERSION, digest) == rows.checkpoint(VERSION, digest)
        told = tuple(chain.from_iterable(pieces for _, pieces in wanted))
        noted = checkpoint_in(_note(rows.checkpoint(VERSION, digest)), VERSION)
        stored = (noted, dict(wanted)) if noted else None


def test_texts_were_gone_on_from_and_refused():
    # Without both, the test above compares nothing.
    assert not seen or min(seen["refused"], seen["resumed"]) > 20, seen


@pytest.mark.parametrize(
    "note",
    ["", "{", "[]", '{"tokens":1}', '{"checkpoint":7}', '{"checkpoint":"{"}', '{"checkpoint":"{}"}', _note("null")],
)
def test_a_note_without_a_checkpoint_is_not_gone_on_from(note):
    assert checkpoint_in(note, VERSION) is None


def test_another_text_than_was_noted_or_another_version_is_not_gone_on_from():
    rows = rows_of(entry("prompt://1", "p"), entry("assistant://1", "a", position=2))
    note, sent = (
        _note(rows.checkpoint(VERSION, packet_digest(rows.messages()))),
        {role: tuple(pieces) for role, pieces in rows.messages()},
    )
    assert checkpoint_in(note, "1.1") is None
    noted = checkpoint_in(note, VERSION)
    assert noted
    assert TranscriptRows.resumed(noted, sent)
    pieces = sent["conversation"]
    broken = [
        (),
        pieces[:-1],
        (pieces[0], "x"),
        (pieces[0], pieces[1].replace('"a"', '"b"')),
        ("",),
        ("\n",),
        ("[]\n",),
    ]
    assert [TranscriptRows.resumed(noted, sent | {"conversation": other}) for other in broken] == [None] * len(broken)
    assert TranscriptRows.resumed(noted, sent | {"system": ("Obey.",)}) is None
    assert TranscriptRows.resumed(noted, {}) is None
