"""Reading costs time in proportion to the length, counted in characters and calls."""

import json
import random
import sys
from functools import partial
from itertools import permutations

import pytest

from turnwright_grammar.edits.apply import apply_edit
from turnwright_grammar.native import commands_from_call
from turnwright_grammar.reader.parser import read_reply

from .counted import cost_of
from .hostile import COMBINED, EDIT_BODIES, SINGLE, Hostile
from .hostile import PIECES as MARKERS
from .streams import in_pieces, stream

pytestmark = pytest.mark.slow

CHARS = 1_500
GROWTH = 4
PIECES = [
    '"a": ', '"a": "a": ', '"a":"b"c', '\n"a": "b" c"\n', "\u201ca\u201d: \u201c", "\u201c", '"a": {"b": ', "'a': 'a': ",
    '"x", {"y": "', '{"a":"x"y","b":"', 'x = "y", ', '"a" "', '" "a": "', '"k": r"', "{a:b ", "{a: b\n", '["a" b", ', '[r"',
    '"//', '"/*', '{"a":"b" ', '",', '"+"', '"}', '"], ', '(")', "# ", "// } ", "[note] x ", "{} x ", '"\\q" ', '"""', "```{",
    '<|"|>', "a, ", "a=b ", '"a"\n',
]  # fmt: skip


@pytest.mark.parametrize("prefix", ["", '{"a":', "["])
@pytest.mark.parametrize("piece", PIECES)
def test_the_repair_of_arguments_is_linear(piece, prefix):
    short, long = (cost_of_repair(prefix + piece * (chars // len(piece))) for chars in (CHARS, GROWTH * CHARS))
    # Where little is read of a text at all, the little may grow by steps.
    assert long < 1.5 * GROWTH * short + 20 * GROWTH * CHARS


def cost_of_repair(text: str) -> int:
    return cost_of("turnwright_grammar", lambda: commands_from_call("set", text))


READ_CHARS = 5_000
GROWTH_MAX = 2.5
FEW = 150_000
"""Below this cost nothing is slow, and a step may look like growth."""
DICE = random.Random(7)
PAIRS = [DICE.sample(MARKERS, 2) for _ in range(80)]
TRIPLES = [DICE.sample(MARKERS, 3) for _ in range(40)]


def check_growth(read, text_of):
    """Twice as long a text costs at most two and a half times as much."""
    long = cost_of("turnwright_grammar", partial(read, text_of(2 * READ_CHARS)))
    assert long < FEW or long < GROWTH_MAX * cost_of("turnwright_grammar", partial(read, text_of(READ_CHARS)))


def read_in_pieces(text):
    stream(in_pieces(text, 64))


@pytest.mark.parametrize("read", [read_reply, read_in_pieces])
@pytest.mark.parametrize("hostile", [*SINGLE, *COMBINED[::20]], ids=lambda one: one.name)
def test_the_reading_of_a_reply_is_linear(hostile, read):
    check_growth(read, hostile.text)


@pytest.mark.parametrize(("piece", "share"), [('[{"id":', 0.05), ('[{"id":{},"": ', 0.6)])
def test_few_of_the_brackets_that_never_close_are_decoded_once_that_is_not_afforded(piece, share):
    decoded = 0

    def called(frame, event, _arg):
        nonlocal decoded
        decoded += event == "call" and frame.f_code is json.JSONDecoder.raw_decode.__code__

    text = piece * (2 * READ_CHARS // len(piece))
    before = sys.getprofile()
    sys.setprofile(called)
    try:
        read_reply(text)
    finally:
        sys.setprofile(before)
    assert decoded < share * 2 * text.count("[")


@pytest.mark.parametrize("pieces", [*PAIRS, *TRIPLES], ids=ascii)
def test_the_reading_of_interleaved_markers_is_linear(pieces):
    check_growth(read_reply, Hostile("".join(pieces)).text)
    check_growth(read_reply, Hostile(pieces[0], tail="".join(pieces[1:])).text)


@pytest.mark.parametrize("hostile", EDIT_BODIES, ids=lambda one: one.name)
@pytest.mark.parametrize("original", ["a b\n" * 1000, None], ids=["text", "none"])
def test_the_reading_of_an_edit_is_linear(hostile, original):
    check_growth(lambda body: apply_edit(original, body), hostile.text)


@pytest.mark.soak
@pytest.mark.timeout(3_600)
def test_every_pair_of_markers_is_linear():
    for pieces in permutations(MARKERS, 2):
        check_growth(read_reply, Hostile("".join(pieces)).text)
