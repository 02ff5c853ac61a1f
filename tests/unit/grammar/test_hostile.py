"""Hostile text ends within the timeout: at these sizes anything quadratic would not."""

import resource
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import pytest

from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit
from turnwright_grammar.edits.operations import EditSyntaxError
from turnwright_grammar.native import commands_from_call
from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.values.repair import repair_json

from .hostile import COMBINED, EDIT_BODIES, HOSTILE, SINGLE, Hostile
from .invariants import check_narration, check_spans

pytestmark = pytest.mark.slow

# What every run reads, and what `make soak` reads.
QUICK_CHARS = 30_000
SIZE_CHARS = 200_000
SOAK_CHARS = 10_000_000
PEAK_BYTES_PER_CHAR_MAX = 100
# Repeated ten million characters long.
SOAKED = (
    "<",
    '<get path="',
    "<set>",
    '<set path="a">\n',
    "<<SEARCH ",
    '{"name":',
    "`",
    "```\n",
    '"',
    "<tool_call>",
    "<a_b>",
)


@pytest.mark.parametrize("hostile", SINGLE, ids=lambda one: one.name)
def test_a_hostile_reply_is_read(hostile):
    check_hostile(hostile.text(QUICK_CHARS))


@pytest.mark.parametrize("hostile", COMBINED, ids=lambda one: one.name)
def test_a_reply_of_two_hostile_pieces_is_read(hostile):
    check_hostile(hostile.text(QUICK_CHARS // 10))


@pytest.mark.soak
@pytest.mark.parametrize("hostile", HOSTILE, ids=lambda one: one.name)
def test_a_large_hostile_reply_is_read(hostile):
    check_hostile(hostile.text(SIZE_CHARS))


def check_hostile(text: str) -> None:
    reply = read_reply(text)
    check_spans(text, reply)
    check_narration(text, reply)


@pytest.mark.soak
@pytest.mark.timeout(600)
@pytest.mark.parametrize("piece", SOAKED)
def test_ten_million_characters_are_read_in_memory_of_their_order(piece):
    with ProcessPoolExecutor(1, get_context("fork")) as alone:
        taken_s, peak_bytes = alone.submit(cost_of_reading, piece, SOAK_CHARS).result()
    pace = SOAK_CHARS / taken_s / 1e6
    print(f"\n{piece!a:<24} {taken_s:7.2f} s {pace:8.1f} MB/s {peak_bytes / 1e6:8.1f} MB beside the text")
    assert peak_bytes < PEAK_BYTES_PER_CHAR_MAX * SOAK_CHARS


def cost_of_reading(piece: str, chars: int) -> tuple[float, int]:
    """Seconds, and how much the memory of this process had to grow."""
    text = Hostile(piece).text(chars)
    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    read_reply(text)
    taken_s = time.perf_counter() - begin
    return taken_s, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) * 1024


@pytest.mark.parametrize("hostile", EDIT_BODIES, ids=lambda one: one.name)
@pytest.mark.parametrize("original", ["a b\n" * 1000, None], ids=["text", "none"])
def test_a_hostile_body_is_applied(hostile, original):
    result = apply_edit(original, hostile.text(2 * QUICK_CHARS))
    assert isinstance(result, EditResult | EditConflict | EditSyntaxError)


@pytest.mark.parametrize(
    "search", ["a b\na b\na c", "ab" * 1000, "a\n" * 50_000 + "z", " a" * 50_000, "a b\n" * 50_000 + "q"]
)
def test_a_search_in_a_large_repetitive_text_ends(search):
    text = "a b\n" * (SIZE_CHARS // 8)
    assert isinstance(apply_edit(text, f"<<SEARCH\n{search}\nSEARCH\n<<REPLACE\nz\nREPLACE"), EditConflict)


@pytest.mark.parametrize(
    "piece",
    [
        "{",
        "[",
        "(",
        '{"a":',
        '"',
        "'",
        "[1,",
        '{"a":"b" ',
        "a",
        "\\",
        "/*",
        "//",
        "#",
        '\\"',
        "```",
        "1",
        "-",
        '"a" ',
        "<|",
    ],
)
def test_broken_json_of_one_repeated_piece_is_repaired(piece):
    for prefix in ("", '{"a":', '{"a":"', "["):
        text = prefix + piece * (QUICK_CHARS // 2 // len(piece))
        repair_json(text)
        (command, *_), _ = commands_from_call("get", text)
        assert command.name == "get"
