"""Pictures of explained packets, compared with golden texts: wide, narrow, of a preview, of a packet with gaps."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.text import Text
from turnwright.types.v1 import explanation_pb2 as pb
from turnwright.types.v1 import settings_pb2

from turnwright_cli.explaining import KINDS, budget_words, picture, scaled

GOLDEN = Path(__file__).parents[2] / "golden"
LONG = "src/" + "deep/" * 12 + "module.py"


def piece(path: str, kind: int, section: str, tokens: int, why: str, **more) -> pb.ExplainedPiece:
    return pb.ExplainedPiece(path=path, kind=kind, section=section, tokens=tokens, bytes=2 * tokens, why=why, **more)


def explained(**changes) -> pb.PacketExplanation:
    """A packet in which a step of the ladder summarized a file."""
    pieces = [
        piece("instructions://system", pb.PIECE_KIND_SYSTEM, "system", 1400, "Rules of the runtime."),
        piece("sh", pb.PIECE_KIND_TOOL, "system", 900, "Documentation of a tool that the loop offers."),
        piece("prompt://1", pb.PIECE_KIND_PROMPT, "prompt", 60, "The task of loop 1.", form=pb.PIECE_FORM_WHOLE),
        piece(
            LONG, pb.PIECE_KIND_FILE, "summary", 240, "Summarized; last touched in turn 6.",
            form=pb.PIECE_FORM_SUMMARIZED, reduced_by=pb.PACKET_STEP_KIND_PREVIOUS_TURN, reduced_in_turn=7,
        ),
        piece(
            "src/app.py\x1b[31m", pb.PIECE_KIND_FILE, "visible", 3100, "Visible; last touched in turn 2.",
            form=pb.PIECE_FORM_WHOLE,
        ),
        piece("log://turn_6/get/deep", pb.PIECE_KIND_RECORD, "log", 300, "A record of turn 6.", form=pb.PIECE_FORM_WHOLE),
        piece("", pb.PIECE_KIND_BUDGET, "budget", 200, "Figures of this packet."),
    ]  # fmt: skip
    sums: dict[int, int] = {}
    for one in pieces:
        sums[one.kind] = sums.get(one.kind, 0) + one.tokens
    given = {
        "turn": 7, "loop": 1, "assembly": settings_pb2.ASSEMBLY_PACKET, "model": "coder", "context_length": 8192,
        "ceiling": 7372, "tokens": 6200, "bytes": 12400, "pieces": pieces,
        "kinds": [
            pb.KindTotal(kind=kind, tokens=tokens, pieces=1)
            for kind, tokens in sorted(sums.items(), key=lambda item: -item[1])
        ],
        "steps": [pb.PacketStep(kind=pb.PACKET_STEP_KIND_PREVIOUS_TURN, entries=1, tokens=9100, excess=1728, paths=[LONG])],
        "prefix": pb.PrefixBreak(
            before_turn=6, bytes=4780, tokens=2390, path=LONG, kind=pb.PIECE_KIND_FILE, section="summary"
        ),
    } | changes  # fmt: skip
    return pb.PacketExplanation(**given)


def drawn(told: pb.PacketExplanation, width: int, pieces_max: int = 15) -> list[Text]:
    return list(picture("fix-tests", told, width, pieces_max=pieces_max, styled=False))


def transcript() -> pb.PacketExplanation:
    """A transcript of which one message was left out and one shortened, and in which one was healed."""
    pieces = [
        piece("prompt://1", pb.PIECE_KIND_PROMPT, "user", 60, "A user said it.", form=pb.PIECE_FORM_WHOLE),
        piece(
            "assistant://1", pb.PIECE_KIND_REPLY, "assistant", 0, "Left out so that the rest fits.",
            form=pb.PIECE_FORM_LEFT_OUT, reduced_by=pb.PACKET_STEP_KIND_HISTORY, reduced_in_turn=6, whole_tokens=1900,
        ),
        piece(
            "log://turn_2/get/a", pb.PIECE_KIND_RESULT, "tool", 240, "A call needs its result.",
            form=pb.PIECE_FORM_SUMMARIZED, reduced_by=pb.PACKET_STEP_KIND_RESULTS, reduced_in_turn=6, whole_tokens=4240,
        ),
        piece(
            "", pb.PIECE_KIND_RESULT, "tool", 20, "A call needs its result.", form=pb.PIECE_FORM_WHOLE,
            healed="The call has no result: it is sent with one that says so.",
        ),
    ]  # fmt: skip
    steps = [
        pb.PacketStep(kind=pb.PACKET_STEP_KIND_RESULTS, entries=1),
        pb.PacketStep(kind=pb.PACKET_STEP_KIND_HISTORY, entries=1),
    ]
    return explained(
        assembly=settings_pb2.ASSEMBLY_TRANSCRIPT, tokens=320, pieces=pieces, kinds=[], steps=steps, prefix=None
    )


CASES = {
    "explain_transcript_80": (transcript(), 80, 2),
    "explain_80": (explained(), 80, 15),
    "explain_20": (explained(), 20, 15),
    "explain_preview_80": (explained(preview=True, calibration=0.5, steps=[]), 80, 3),
    "explain_gaps_60": (
        explained(prefix=None, pieces_left_out=1200, gaps=["It was assembled by 1.0; now 2.0 assembles."]), 60, 2,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_picture_is_as_it_was_drawn(name) -> None:
    told, width, pieces_max = CASES[name]
    text = "\n".join(line.plain.rstrip() for line in drawn(told, width, pieces_max)) + "\n"
    assert text == (GOLDEN / f"{name}.txt").read_text()


@pytest.mark.parametrize("width", [20, 33, 50, 80, 200])
def test_no_line_is_longer_than_the_terminal_and_none_has_control_characters(width) -> None:
    hostile = explained(gaps=["first at a\x1b[2Jb\n"], pieces=[piece("p", 99, "\x1b]0;t\x07", 1, "why\x1b[31m")])
    many = explained(kinds=[pb.KindTotal(kind=kind, tokens=300_000) for kind in KINDS])
    for told in (
        explained(),
        many,
        hostile,
        transcript(),
        explained(tokens=2**32 - 1, ceiling=1, context_length=1),
        pb.PacketExplanation(),
    ):
        for line in drawn(told, width):
            assert len(line.plain) <= width
            assert line.plain.isprintable()


def test_colours_change_nothing_but_colours() -> None:
    styled = list(picture("fix-tests", explained(), 80, pieces_max=15, styled=True))
    assert [line.plain for line in styled] == [line.plain for line in drawn(explained(), 80)]
    assert any(line.spans for line in styled)
    assert not any(span.style for line in drawn(explained(), 80) for span in line.spans)


def test_every_kind_of_the_contract_has_a_letter_of_its_own() -> None:
    assert KINDS.keys() == set(pb.PieceKind.values()) - {pb.PIECE_KIND_UNSPECIFIED}
    assert len({words.letter for words in KINDS.values()}) == len(KINDS)


TOOLS = [piece(f"tool{n}", pb.PIECE_KIND_TOOL, "system", 297 + n, "Documentation of a tool.") for n in range(15)]


@pytest.mark.parametrize("rate", [0.31, 0.5, 1.0, 1.37, 3.3333])
def test_pieces_and_kinds_add_up_to_what_the_vendor_counts(rate) -> None:
    pieces = [*TOOLS[:7], piece("a.py", pb.PIECE_KIND_FILE, "visible", 333, "Visible."), *TOOLS[7:]]
    kinds = [
        pb.KindTotal(kind=pb.PIECE_KIND_TOOL, tokens=sum(one.tokens for one in TOOLS), pieces=15),
        pb.KindTotal(kind=pb.PIECE_KIND_FILE, tokens=333, pieces=1),
    ]
    whole = sum(one.tokens for one in pieces)
    told = scaled(explained(pieces=pieces, kinds=kinds, tokens=whole, calibration=rate))
    assert told.tokens == round(whole * rate)
    assert sum(one.tokens for one in told.pieces) == told.tokens
    for total in told.kinds:
        assert total.tokens == sum(one.tokens for one in told.pieces if one.kind == total.kind)
    assert [one.path for one in told.pieces] == [one.path for one in pieces]
    assert budget_words(told).startswith(f"{told.tokens:,} of 7,372 tokens (vendor's count); ")


def test_tools_are_one_row_unless_all_is_asked_for() -> None:
    told = explained(pieces=[*explained().pieces[2:], *TOOLS])
    rows = "\n".join(line.plain for line in drawn(told, 80))
    assert "  4,560  T 15 tools\n" in rows
    assert "tool3" not in rows
    assert "smaller pieces" not in rows
    full = "\n".join(line.plain for line in picture("r", told, 80, pieces_max=99, styled=False, full=True))
    assert "15 tools" not in full
    assert all(f"T {one.path}\n" in full for one in TOOLS)


def test_a_scale_beyond_all_counts_is_drawn() -> None:
    assert drawn(explained(tokens=2**32 - 1, calibration=100), 80)
