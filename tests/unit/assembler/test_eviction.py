"""What is evicted from a transcript, in which order, and what never is. RL05, RL06, RL08, RL09, RH03."""

from __future__ import annotations

from itertools import pairwise
from math import inf

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from turnwright_values.types import CompressionStrength, MessageKind, Tier

from turnwright_assembler.domain.compression import visibility_writes
from turnwright_assembler.domain.eviction import (
    LEAST_SHARE,
    TARGET_SHARE,
    TURN_SHARE,
    TURNS_BETWEEN,
    Evicted,
    Room,
    WeighedMessage,
    evict,
    shrink,
)

PROMPT, REPLY, RESULT, EVENT = MessageKind.PROMPT, MessageKind.REPLY, MessageKind.RESULT, MessageKind.EVENT


def turn(number: int, *reads: str, chars: int = 100) -> list[WeighedMessage]:
    results = [
        WeighedMessage(f"r{number}{n}", RESULT, chars, number, max(0, chars - 10), read) for n, read in enumerate(reads)
    ]
    return [WeighedMessage(f"a{number}", REPLY, 50, number, results=tuple(one.path for one in results)), *results]


def prompt(number: int, chars: int = 100) -> WeighedMessage:
    return WeighedMessage(f"p{number}", PROMPT, chars, number)


def event(name: str, subkind: str, number: int = 1, chars: int = 10) -> WeighedMessage:
    return WeighedMessage(name, EVENT, chars, number, subkind=subkind, source="s")


HISTORY = [
    prompt(1), *turn(1, "a", "b"), event("e1", "tool_decision"), *turn(2, "a"), prompt(2), *turn(3, "c"), *turn(4, "d"),
    *(WeighedMessage(f"a{n}", REPLY, 1, n) for n in range(5, 15)),
]  # fmt: skip
TOTAL = sum(message.chars for message in HISTORY)

STEPS = [
    # What the messages may take at most, and how far each stage goes for it. The target follows from the room.
    (TOTAL, {}, CompressionStrength.ABSENT),
    (919, {"duplicates": ["r10"], "results": ["r11", "r20"]}, CompressionStrength.LOW),
    (800, {"duplicates": ["r10"], "results": ["r11", "r20", "r30"]}, CompressionStrength.LOW),
    (700, {"duplicates": ["r10"], "results": ["r11", "r20", "r30", "r40"]}, CompressionStrength.LOW),
    (
        600,
        {"duplicates": ["r10"], "results": ["r11", "r20", "r30", "r40"], "history": ["p1"]},
        CompressionStrength.HIGH,
    ),
    (450, {"results": ["r20", "r30", "r40"], "history": ["r10", "r11", "p1", "a1"]}, CompressionStrength.HIGH),
]


@pytest.mark.parametrize(("chars", "stages", "strength"), STEPS, ids=lambda value: str(value)[:10])
def test_each_stage_goes_as_far_as_it_takes(chars, stages, strength):
    # RL06: what was read again, then results by age, then replies with their results and messages by age
    made = evict(HISTORY, Room(chars, 15))
    assert (made.stages, made.strength) == (stages, strength)
    assert made.chars <= chars


def test_what_is_read_again_goes_before_what_is_older():
    messages = [prompt(1, 1), *turn(1, "b"), *turn(2, "a"), *turn(3, "a"), *HISTORY[-10:]]
    assert evict(messages, Room(460, 15)).stages == {"duplicates": ["r20"], "results": ["r10"]}


@pytest.mark.parametrize(
    ("earlier", "later", "covers"),
    [
        ((1, inf), (1, inf), True), ((1, 10), (1, inf), True), ((1, inf), (1, 10), False), ((1, 10), (11, 20), False),
        ((5, 10), (1, 10), True), ((1, 10), (5, 10), False),
    ],
)  # fmt: skip
def test_only_what_a_later_read_has_is_a_duplicate(earlier, later, covers):
    messages = [prompt(1, 1), *turn(1, "x"), *turn(2, "a"), *turn(3, "a"), *HISTORY[-10:]]
    messages[4] = replace(messages[4], lines=earlier)
    messages[6] = replace(messages[6], lines=later)
    assert ("duplicates" in evict(messages, Room(460, 15)).stages) == covers


# ---- ten turns


def test_a_break_frees_what_ten_turns_like_the_latest_take():
    messages = [prompt(1), *(one for n in range(1, 100) for one in turn(n, f"f{n}", chars=1000))]
    made = evict(messages, Room(100_000, 100))
    assert made.breaks_prefix
    fixed = 100 + 1050
    assert made.chars <= fixed + TARGET_SHARE * (100_000 - fixed)
    middle = evict(messages, Room(30_000, 100))
    assert middle.chars <= 30_000 - TURNS_BETWEEN * 1050
    large = evict(messages, Room(11_000, 100))
    assert fixed + LEAST_SHARE * (11_000 - fixed) - 1050 < large.chars <= fixed + LEAST_SHARE * (11_000 - fixed)


def test_until_ten_turns_have_passed_only_what_was_not_sent_yet_is_evicted():
    messages = [prompt(1), *turn(1, "a", chars=500), *turn(2, "b", chars=400)]
    made = evict(messages, Room(900, 2, broken_in=1))
    assert made.stages == {"unread": ["r20"]}
    assert not made.breaks_prefix
    assert made.strength is CompressionStrength.HIGH
    assert evict(messages, Room(900, 11, broken_in=1)).breaks_prefix


def test_where_nothing_else_helps_it_is_broken_earlier():
    messages = [prompt(1), *turn(1, "a", chars=5000), *turn(2, "b", chars=200)]
    assert evict(messages, Room(900, 2, broken_in=1)).breaks_prefix


def test_a_result_larger_than_all_there_is_room_for_is_evicted_before_what_was_said():
    messages = [prompt(1), *turn(1, "a"), *turn(2, "b", chars=100_000)]
    messages[-1] = replace(messages[-1], freed=99_400)
    made = evict(messages, Room(2000, 3))
    assert made.stages == {"unread": ["r20"]}


@given(st.lists(st.integers(1, 15), min_size=10, max_size=30), st.integers(1000, 5000))
def test_turns_that_take_their_share_leave_ten_turns_between_two_breaks(sizes, chars):
    # Each turn takes what is kept free for one, and has a result of any size that can be condensed to nothing.
    least = int(chars * TURN_SHARE)
    now, last, broken = [prompt(1, 1)], 0, []
    for number, size in enumerate(sizes * 4, 1):
        made = evict(now, Room(chars, number, last))
        assert made.chars <= chars
        if made.breaks_prefix:
            broken.append(number)
            last = number
        now = [
            replace(
                one,
                chars=one.chars - made.condensed.get(one.path, 0),
                freed=0 if one.path in made.condensed else one.freed,
            )
            for one in now
            if one.path not in made.dropped
        ]
        # Stubs of results are left out with their replies.
        big = size * chars // 20
        now += [
            WeighedMessage(f"a{number}", REPLY, max(1, least - 1), number, results=(f"r{number}",)),
            WeighedMessage(f"r{number}", RESULT, big, number, big),
        ]
    assert all(two - one >= TURNS_BETWEEN for one, two in pairwise(broken))


# ---- RH03


def test_events_that_are_too_old_go_first_and_anchors_only_where_they_take_a_quarter():
    messages = [
        prompt(1, 100), event("m1", "mode_switch"), event("t1", "tick"), event("d1", "tool_decision"),
        *(event(f"c{n}", "cron_fire") for n in range(5)), event("m2", "mode_switch"), prompt(2, 500), *turn(9, "x"),
    ]  # fmt: skip
    made = evict(messages, Room(700, 10))
    assert made.stages["history"][:4] == ["t1", "m1", "c0", "c1"]
    assert "d1" not in made.dropped
    many = [*messages[:1], *(event(f"n{n}", "tool_decision", chars=100) for n in range(10)), *messages[1:]]
    assert {"n0", "n5"} <= set(evict(many, Room(1400, 10)).dropped)
    assert "m2" not in evict(many, Room(1400, 10)).dropped


@pytest.mark.parametrize("kind", [MessageKind.SUMMARY, MessageKind.SYNTHETIC, RESULT])
@pytest.mark.parametrize("place", range(3))
def test_what_the_runtime_wrote_gives_way_at_last_wherever_it_stands(kind, place):
    # RL08
    messages = [prompt(1, 50), WeighedMessage("a1", REPLY, 50, 1)]
    messages.insert(place, WeighedMessage("x", kind, 1000, 1))
    made = evict(messages, Room(200, 2))
    assert (list(made.dropped), made.chars) == (["x"], 100)
    assert list(evict(messages, Room(1100, 2)).dropped) == []
    assert list(shrink(messages, Room(200, 2)).dropped) == ["x"]


# ---- properties


@st.composite
def histories(draw: st.DrawFn) -> list[WeighedMessage]:
    found = [prompt(0, draw(st.integers(0, 50)))]
    for number in range(1, draw(st.integers(1, 7))):
        reads = draw(st.lists(st.sampled_from(["", "a", "b"]), max_size=3))
        found += turn(number, *reads, chars=draw(st.integers(10, 200)))
        for place in range(draw(st.integers(0, 2))):
            kind = draw(st.sampled_from([PROMPT, MessageKind.STEERING, MessageKind.SYNTHETIC, EVENT, MessageKind.PLAN]))
            found.append(WeighedMessage(f"x{number}{place}", kind, draw(st.integers(1, 100)), number))
    return found


@given(histories(), st.integers(0, 2000), st.integers(0, 9))
def test_pairs_stay_whole_and_the_exempt_stay(messages, chars, broken_in):
    # RL05, RL06, RL09
    made = evict(messages, Room(chars, 9, broken_in))
    dropped, condensed = set(made.dropped), set(made.condensed)
    kinds = {message.path: message.kind for message in messages}
    assert not dropped & condensed
    assert not {path for path in dropped if kinds[path] is MessageKind.PLAN}
    assert {kinds[path] for path in condensed} <= {RESULT}
    for message in messages:
        if message.results:
            assert len({path in dropped for path in (message.path, *message.results)}) == 1
    for kind in (PROMPT, REPLY):
        latest = [message.path for message in messages if message.kind is kind][-1:]
        assert not set(latest) & dropped
    assert made.stage_of.keys() == dropped | condensed


@given(histories(), st.integers(0, 2000), st.integers(0, 9))
def test_it_is_enough_or_nothing_more_can_go(messages, chars, broken_in):
    # RL08
    made = evict(messages, Room(chars, 9, broken_in))
    freed = sum(made.condensed.values()) + sum(one.chars for one in messages if one.path in made.dropped)
    assert made.chars == sum(one.chars for one in messages) - freed
    assert made.chars <= chars or made.chars == evict(messages, Room(chars, 9)).chars


@given(histories(), st.integers(0, 2000), st.integers(0, 9))
def test_what_is_left_fits_and_breaks_no_prefix_again(messages, chars, broken_in):
    made = evict(messages, Room(chars, 9, broken_in))
    left = [
        replace(
            one, chars=one.chars - made.condensed.get(one.path, 0), freed=0 if one.path in made.condensed else one.freed
        )
        for one in messages
        if one.path not in made.dropped
    ]
    again = evict(left, Room(chars, 9, 9 if made.breaks_prefix else broken_in))
    if made.chars <= chars:
        assert not again.breaks_prefix


def test_each_evicted_message_is_written_by_who_may_write_it():
    evicted = Evicted(1, condensed={"log://turn_1/get/a": 9}, dropped=dict.fromkeys(("prompt://1", "assistant://1")))
    assert {one.path: one.writer for one in visibility_writes(evicted.shown)} == {
        "log://turn_1/get/a": Tier.PLUGIN, "prompt://1": Tier.PLUGIN, "assistant://1": Tier.SYSTEM,
    }  # fmt: skip
