"""What a transcript consists of: what is left out, shortened or healed says so, at its place. RL04, RL06."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from turnwright.types.v1 import explanation_pb2 as pb
from turnwright_values.types import RequestKind, Visibility

from turnwright_assembler.app.explaining import place
from turnwright_assembler.app.provenance import Piece, all_aligned, of_nothing_known, transcript_pieces
from turnwright_assembler.app.transcript import fitting_transcript
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.ladder import TokenBudget
from turnwright_assembler.sections.plugin_sections import NOTHING
from turnwright_core.chat.message import Role
from unit.assembler.entries import entry
from unit.assembler.test_transcript_fits import DIVISOR, ask, fit, messages_of, written
from unit.assembler.test_transcript_rows import prompt, record, reply, rows_of


def pieces(rows: TranscriptRows, ceiling: int = 10**9, turn: int = 99, **more: object) -> list[Piece]:
    made = fitting_transcript(rows, ask(turn, **more), DIVISOR, TokenBudget(ceiling))
    said = dict(transcript_pieces(turn, made, rows, NOTHING, DIVISOR))["conversation"]
    text = "".join(part for part in dict(made.messages)["conversation"] if isinstance(part, str))
    assert "".join(piece.text for piece in said) == text
    # Neither stored bytes nor edits lose what has no bytes.
    assert all_aligned([("conversation", text)], [("conversation", said)], of_nothing_known) == [("conversation", said)]
    assert sum(one.tokens for one in place([("conversation", said)], DIVISOR)) == -(-len(text) // DIVISOR)
    return said


def by_path(told: Sequence[Piece]) -> dict[str, Piece]:
    return {piece.origin.path: piece for piece in told if piece.origin.path}


def test_a_message_that_is_left_out_stands_at_its_place_with_the_stage_and_what_it_would_take():
    turns = [one for turn in range(1, 7) for one in (reply(turn, 1, f"I look {turn}."), record(turn, 0, "r" * 3000))]
    entries = [prompt(), *turns]
    whole = by_path(pieces(rows_of(*entries)))
    assert {(piece.origin.form, piece.origin.whole_tokens) for piece in whole.values()} == {(pb.PIECE_FORM_WHOLE, 0)}
    rows = rows_of(*entries)
    ceiling = rows.fixed_chars // DIVISOR + 2500
    told = pieces(rows, ceiling)
    gone = {piece.origin.path: piece for piece in told if piece.origin.form == pb.PIECE_FORM_LEFT_OUT}
    assert gone
    assert {(piece.origin.reduced_by, piece.origin.reduced_in_turn) for piece in gone.values()} == {
        (pb.PACKET_STEP_KIND_HISTORY, 99)
    }
    for path, piece in gone.items():
        assert (piece.text, piece.origin.whole_tokens) == ("", -(-len(whole[path].text) // DIVISOR))
    order = [piece.origin.path for piece in told if piece.origin.path]
    assert order == sorted(order, key=[*whole].index)
    # When it is stored, later turns say the same of it.
    after = sorted(written(entries, fit(rows, ceiling).effects), key=lambda one: one.position)
    later = by_path(pieces(rows_of(*after), turn=100))
    assert {path: later[path] for path in gone} == gone


def test_a_result_that_is_shortened_says_what_it_would_take():
    long = record(1, 0, "r" * 5000, visibility=Visibility.SUMMARIZED)
    told = by_path(pieces(rows_of(prompt(), reply(1, 1), long)))["log://turn_1/get/0"]
    whole = by_path(pieces(rows_of(prompt(), reply(1, 1), record(1, 0, "r" * 5000))))["log://turn_1/get/0"]
    assert (told.origin.form, told.origin.whole_tokens) == (pb.PIECE_FORM_SUMMARIZED, -(-len(whole.text) // DIVISOR))


def test_what_the_request_for_a_summary_shortens_is_told_too():
    turns = [one for turn in range(1, 6) for one in (reply(turn, 1), record(turn, 0, "r" * 4000))]
    rows = rows_of(prompt(), *turns)
    told = pieces(rows, rows.fixed_chars // DIVISOR + 4000, turn=6, kind=RequestKind.COMPACTION)
    short = [piece for piece in told if piece.origin.form == pb.PIECE_FORM_SUMMARIZED]
    assert short
    assert {(piece.origin.reduced_by, piece.origin.reduced_in_turn) for piece in short} == {
        (pb.PACKET_STEP_KIND_RESULTS, 6)
    }
    assert told[-1].origin.why == "The runtime asks for a summary."


def test_a_summary_is_named_as_what_replaced_messages():
    entries = [prompt(), *(one for turn in range(1, 6) for one in (reply(turn, 1), record(turn, 0, "r" * 2000)))]
    rows = rows_of(*entries)
    budget = TokenBudget(fit(rows, 10**9).tokens - 2500)
    asked = fitting_transcript(rows, ask(6, kind=RequestKind.COMPACTION), DIVISOR, budget)
    after = sorted(written(entries, asked.after_reply), key=lambda one: one.position)
    told = by_path(pieces(rows_of(*after), turn=7))
    gone = [piece for piece in told.values() if piece.origin.form == pb.PIECE_FORM_LEFT_OUT]
    assert "assistant://1" in {piece.origin.path for piece in gone}
    assert {(piece.origin.reduced_by, piece.origin.why) for piece in gone} == {
        (pb.PACKET_STEP_KIND_SUMMARY, "Left out: a summary stands for it.")
    }


def test_what_vendors_would_refuse_says_how_it_is_sent_instead():
    again = replace(reply(2, 1), attributes_json=reply(1, 1).attributes_json)
    second = replace(record(1, 0, "Again."), path="log://turn_1/get/again", position=150)
    orphan = replace(record(3, 0, "Of nobody."), position=310)
    rows = rows_of(prompt(), reply(1, 2), record(1, 0, "One."), second, again, orphan)
    told = pieces(rows)
    found = by_path(told)
    assert {path: piece.origin.healed.split(":")[0] for path, piece in found.items() if piece.origin.healed} == {
        "log://turn_1/get/again": "A second result of the call call_1_0",
        "assistant://2": "The call id call_1_0 is used again",
        "log://turn_3/get/0": "A result without a call",
    }
    assert (found["log://turn_1/get/again"].origin.form, found["log://turn_3/get/0"].origin.form) == (
        pb.PIECE_FORM_LEFT_OUT,
        pb.PIECE_FORM_WHOLE,
    )
    unanswered = [piece for piece in told if not piece.origin.path]
    assert {piece.origin.healed for piece in unanswered} == {
        "The call has no result: it is sent with one that says so."
    }
    assert [one.text for one in messages_of(fit(rows, 10**9)) if one.role is Role.USER][-1] == "Of nobody."


def test_a_conversation_that_begins_with_a_reply_says_who_begins_it():
    told = pieces(rows_of(entry("assistant://1", "Hello.", position=1, turn=1)))
    assert told[0].origin.healed == "The user says that earlier messages were left out."
