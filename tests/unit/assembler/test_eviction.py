"""What of a transcript gives way, in which order, and what never does. RL05, RL06, RL08, RL09."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_assembler.domain.eviction import EXEMPT, Evicted, WeighedMessage, evict
from turnwright_core.chat.run_message import MessageKind

PROMPT, REPLY, RESULT = MessageKind.PROMPT, MessageKind.REPLY, MessageKind.RESULT


def turn(number: int, *reads: str, chars: int = 100) -> list[WeighedMessage]:
    results = [WeighedMessage(f"r{number}{n}", RESULT, chars, chars - 10, read) for n, read in enumerate(reads)]
    return [WeighedMessage(f"a{number}", REPLY, 50, results=tuple(one.path for one in results)), *results]


HISTORY = [
    WeighedMessage("p1", PROMPT, 100), *turn(1, "a", "b"), WeighedMessage("e1", MessageKind.EVENT, 100),
    *turn(2, "a"), WeighedMessage("p2", PROMPT, 100), *turn(3, "c"), *turn(4, "d"),
]  # fmt: skip

STEPS = {
    0: ((), ()),
    1: (("r10",), ()),
    91: (("r10", "r11"), ()),
    181: (("r10", "r11", "r20"), ()),
    271: (("r10", "r11", "r20", "r30"), ()),
    361: (("r10", "r11", "r20", "r30"), ("p1",)),
    461: (("r20", "r30"), ("p1", "a1", "r10", "r11")),
    9999: ((), ("p1", "a1", "r10", "r11", "a2", "r20", "a3", "r30")),
}


@pytest.mark.parametrize(("excess", "step"), STEPS.items(), ids=map(str, STEPS))
def test_each_stage_goes_as_far_as_it_takes(excess, step):
    # RL06: what was read again, then results by age, then replies with their results and messages by age
    assert evict(HISTORY, excess) == Evicted(*step)


def test_what_is_read_again_goes_before_what_is_older():
    messages = [WeighedMessage("p1", PROMPT, 1), *turn(1, "b"), *turn(2, "a"), *turn(3, "a"), *turn(4, "d")]
    assert evict(messages, 1).stubs == ("r20",)


def test_a_stub_saves_nothing_again():
    messages = [WeighedMessage("p1", PROMPT, 1), *turn(1, "a"), *turn(2, "b")]
    messages[2] = WeighedMessage("r10", RESULT, 10, 0, "a")
    assert evict(messages, 1) == Evicted((), ("a1", "r10"))


@st.composite
def histories(draw: st.DrawFn) -> list[WeighedMessage]:
    found = [WeighedMessage("p0", PROMPT, draw(st.integers(0, 50)))]
    for number in range(draw(st.integers(0, 6))):
        reads = draw(st.lists(st.sampled_from(["", "a", "b"]), max_size=3))
        found += turn(number, *reads, chars=draw(st.integers(10, 200)))
        for place in range(draw(st.integers(0, 2))):
            kind = draw(st.sampled_from([PROMPT, MessageKind.STEERING, MessageKind.SYNTHETIC, *EXEMPT]))
            found.append(WeighedMessage(f"x{number}{place}", kind, draw(st.integers(1, 100))))
    return found


@given(histories(), st.integers(0, 2000))
def test_pairs_stay_whole_and_the_exempt_stay(messages, excess):
    # RL05, RL06, RL09
    made = evict(messages, excess)
    dropped, stubs = set(made.dropped), set(made.stubs)
    kinds = {message.path: message.kind for message in messages}
    assert not dropped & stubs
    assert not {kinds[path] for path in dropped} & set(EXEMPT)
    assert {kinds[path] for path in stubs} <= {RESULT}
    for message in messages:
        if message.results:
            assert len({path in dropped for path in (message.path, *message.results)}) == 1
    latest = [max((n for n, one in enumerate(messages) if one.kind is kind), default=0) for kind in (PROMPT, REPLY)]
    assert not {messages[place].path for place in latest} & dropped
    assert not {message.path for message in messages[latest[1] :]} & stubs


@given(histories(), st.integers(0, 2000))
def test_it_is_enough_or_nothing_more_can_go(messages, excess):
    # RL08
    made = evict(messages, excess)
    size = {message.path: message for message in messages}
    freed = sum(size[path].freed for path in made.stubs) + sum(size[path].chars for path in made.dropped)
    assert freed >= excess or made == evict(messages, 10**9)
