"""Which texts of a packet say whose body they show."""

import pytest
from turnwright_values.types import Cursor, Visibility

from turnwright_assembler.app.packet import PIECE_CHARS_MAX, compose
from turnwright_assembler.app.run_rows import RunRows
from turnwright_assembler.ports import ViewPart
from turnwright_core.limits import SHOWN_BYTES_MAX, SHOWN_BYTES_MIN
from unit.assembler.entries import DIVISOR, block, entry


def rows_of(*entries):
    rows = RunRows(DIVISOR)
    rows.apply(ViewPart(entries, (), Cursor("i", 1, 0, 0)))
    return rows


def told(rows, base=""):
    """The next packet: its new texts that show a body, with their paths."""
    messages = compose(rows.ordered(), rows.system, 1, 10**6, DIVISOR).messages
    parts, digest = rows.as_delta(messages, base)
    shows = rows.shows()
    return {piece: shows[piece] for _, pieces in parts for piece in pieces if piece in shows}, digest


@pytest.mark.parametrize(
    ("chars", "shown"),
    [
        (SHOWN_BYTES_MIN - 1, 0),
        (SHOWN_BYTES_MIN, 2),
        (2000, 2),
        (5000, 1),
        (SHOWN_BYTES_MAX, 1),
        (SHOWN_BYTES_MAX + 1, 0),
    ],
)
def test_texts_of_which_the_body_says_much_show_it(chars, shown):
    """The summary of a long body is a small part of it; a very long body stands in more than one piece."""
    made = block("known://a", "x" * chars)
    assert made.showing == (made.whole, made.condensed)[:shown]
    assert all(len(text) <= PIECE_CHARS_MAX for text in made.showing)


def test_a_packet_says_it_of_what_is_new_in_it():
    rows = rows_of(
        entry("known://a", "a" * 2000), entry("log://turn_1/get/b", "b" * 2000, tool="get"), entry("known://c")
    )
    first, digest = told(rows)
    assert sorted(first.values()) == ["known://a", "known://a", "log://turn_1/get/b"]
    assert all(f'path="{path}"' in text for text, path in first.items())
    again, digest = told(rows, digest)
    assert again == {}
    rows.apply(ViewPart((entry("known://a", "z" * 2000), entry("known://d", "d" * 300, position=9)), (), None))
    assert sorted(told(rows, digest)[0].values()) == ["known://a", "known://a", "known://d"]


def test_a_packet_that_is_asked_for_again_says_it_again():
    """Until other rows come: the first answer may not have reached the store."""
    rows = rows_of(entry("known://a", "a" * 2000))
    first = told(rows)
    rows.apply(ViewPart((), (), Cursor("i", 2, 0, 0)))
    assert told(rows) == first
    rows.apply(ViewPart((entry("known://b", "b"),), ("known://a",), None))
    assert told(rows)[0] == {}


def test_a_row_that_was_demoted_in_the_same_turn_says_it_of_its_summary():
    rows = rows_of(entry("known://a", "a" * 1500, visibility=Visibility.SUMMARIZED))
    assert list(told(rows)[0].values()) == ["known://a"]


def test_plans_deltas_and_events_say_it_too():
    event = {"event": {"subkind": "system_notice", "source": "plan", "payload": {}}}
    rows = rows_of(
        entry("plan://main", "a" * 2000, version=1, position=1),
        entry("plan://main/v1/1", "b" * 2000, position=2),
        entry("plan://main/v1", "c" * 2000, position=3),
        entry("event://turn_1/system_notice/a", "d" * 2000, position=4, **event),
    )
    first, digest = told(rows)
    assert list(first.values()) == ["plan://main", "plan://main/v1/1", "event://turn_1/system_notice/a"]
    rows.apply(ViewPart((entry("plan://main/v1/2", "e" * 2000, position=5),), (), None))
    assert list(told(rows, digest)[0].values()) == ["plan://main/v1/2"]
