"""The grammar against damaged replies, for as long as one likes: `make fuzz`.

`TURNWRIGHT_FUZZ_S` is how many seconds it goes on in all (120 by default). What was found is kept in
`.hypothesis` and tried first the next time; `TURNWRIGHT_FUZZ_SEED` draws the same again.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from draws import SEED
from fuzz.mutations import AMPLIFIED, mutated
from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit
from turnwright_grammar.edits.operations import EditSyntaxError
from turnwright_grammar.native import commands_from_call
from turnwright_grammar.reader.parser import read_reply
from unit.grammar.hostile import Hostile
from unit.grammar.invariants import check_reading
from unit.grammar.streams import check_stream, cut_at, in_pieces

FUZZ_S = float(os.environ.get("TURNWRIGHT_FUZZ_S", "120"))
TARGETS = 4
AMPLIFIED_CHARS = 40_000
# Processor time, not the wall's: other processes must not make a text look slow.
SLOW_S = 0.5
SLOW_S_PER_CHAR = 20e-6
# Without the phase that explains: it traces every line, which no pace survives.
BATCH = settings(
    max_examples=200,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    phases=(Phase.reuse, Phase.generate, Phase.shrink),
)

pytestmark = [pytest.mark.fuzz, pytest.mark.timeout(FUZZ_S + 600)]


def check_for_a_while(batch: Callable[[], None]) -> None:
    """Run batches of examples until this target's share of the time is over."""
    begin, batches = time.monotonic(), 0
    while time.monotonic() - begin < FUZZ_S / TARGETS:
        try:
            seed(SEED + batches)(batch)()
        except Exception as error:
            error.add_note(f"TURNWRIGHT_FUZZ_SEED={SEED + batches} make fuzz: draws it again, first of all")
            raise
        batches += 1
    print(f"\n{batch.__name__}: {batches * BATCH.max_examples} examples in {time.monotonic() - begin:.0f} s")


def check_pace(text: str, act: Callable[[], object]) -> None:
    """Do something whose cost must grow with the text and not faster; what seems slow gets a second try."""
    allowed_s = SLOW_S + SLOW_S_PER_CHAR * len(text)
    taken_s = processor_s(act)
    assert taken_s < allowed_s or processor_s(act) < allowed_s, f"{len(text)} characters took {taken_s:.2f} s"


def processor_s(act: Callable[[], object]) -> float:
    """Seconds of processor time that `act` takes."""
    begin = time.process_time()
    act()
    return time.process_time() - begin


@BATCH
@given(mutated(), st.data())
def damaged_replies(text: str, data: st.DataObject) -> None:
    check_pace(text, lambda: read_reply(text))
    whole = check_reading(text)
    check_stream(text, text, whole)
    check_stream(text, cut_at(text, data.draw(st.lists(st.integers(0, len(text)), max_size=8))), whole)


@BATCH
@given(AMPLIFIED)
def amplified_replies(hostile: Hostile) -> None:
    text = hostile.text(AMPLIFIED_CHARS)
    check_pace(text, lambda: read_reply(text))
    check_pace(text, lambda: check_stream(text, in_pieces(text, 16)))


@BATCH
@given(st.none() | mutated(), mutated() | AMPLIFIED)
def damaged_edits(original: str | None, body: str | Hostile) -> None:
    body = body if isinstance(body, str) else body.text(AMPLIFIED_CHARS)
    check_pace(body, lambda: apply_edit(original, body))
    assert isinstance(apply_edit(original, body), EditResult | EditConflict | EditSyntaxError)


@BATCH
@given(mutated() | AMPLIFIED)
def damaged_arguments(text: str | Hostile) -> None:
    text = text if isinstance(text, str) else text.text(AMPLIFIED_CHARS)
    check_pace(text, lambda: commands_from_call("set", text))


@pytest.mark.parametrize(
    "target", [damaged_replies, amplified_replies, damaged_edits, damaged_arguments], ids=lambda one: one.__name__
)
def test_nothing_breaks_the_grammar(target):
    check_for_a_while(target)
