"""What plans cost in packets, beside the same packet without them that is made in the same run."""

from __future__ import annotations

import gc
import statistics
import time

import pytest
from turnwright_values.assembler import AssembleRequest
from turnwright_values.types import Cursor, Entry, ViewChange, ViewFilter

from turnwright_assembler.app.assemble import Assembled, Assembler, Rules
from turnwright_assembler.app.run_cache import RunCache
from turnwright_assembler.ports import ViewPart
from turnwright_core.limits import PLAN_DELTAS_MAX
from unit.assembler.entries import entry

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(300)]

RECORDS = 400
FILES = 100
TURNS = 200
DELTA_CHARS = 2_500
"""As long as a hundred deltas of one plan may be together."""
BODY = "a line of a file that the model has read\n" * 25


class Warm:
    """A run whose packets are assembled turn by turn, each told what the turn before wrote."""

    def __init__(self, *plan: Entry) -> None:
        files = (entry(f"src/{n}.py", BODY, position=n) for n in range(2, FILES + 2))
        records = (
            entry(f"log://turn_{n}/get/{n}", f"read {n} " * 20, tool="get", target=f"src/{n}.py", position=200 + n)
            for n in range(RECORDS)
        )
        prompt = entry("prompt://1", "Mend it.", mode="act", tokenUsage=3, tokensFree=4, position=1)
        self._rows = (prompt, *files, *plan, *records)
        self._assembler = Assembler(self, RunCache(10**9), Rules(2, 0.9))  # type: ignore[arg-type]
        self._turn = -1
        self._digest = ""

    async def read(self, _project: str, _run: str, _after: Cursor | None, _schemes: str):
        yield ViewPart(self._rows, (), _at(0))

    async def packet(self) -> Assembled:
        """The packet of the next turn, which has one record more."""
        self._turn += 1
        record = entry(
            f"log://turn_{self._turn}/set/x", "wrote", tool="set", turn=self._turn, position=9_000 + self._turn
        )
        patch = ViewChange(_at(self._turn - 1), _at(self._turn), (record,), filter=ViewFilter.PACKET)
        made = await self._assembler.assemble(
            AssembleRequest(
                project="p", run="r", turn=1000, loop=1, context_length=10**6, at_least=_at(self._turn),
                base_digest=self._digest, view_changes=(patch,) if self._turn else (),
            )
        )  # fmt: skip
        self._digest = made.report.digest
        return made


def _at(revision: int) -> Cursor:
    return Cursor("i", revision, 0, 0)


async def test_a_plan_with_a_hundred_deltas_beside_the_packet_without(capsys) -> None:
    plan = [entry("plan://main", "Go on. " * 300, version=1, position=150)]
    deltas = [entry(f"plan://main/v1/{n}", "x" * DELTA_CHARS, position=700 + n) for n in range(1, PLAN_DELTAS_MAX + 1)]
    without, with_ = runs = Warm(), Warm(*plan, *deltas)
    await without.packet()
    first = await with_.packet()
    pieces = [piece for _, pieces in first.messages for piece in pieces if isinstance(piece, str)]
    texts = [piece for piece in pieces if piece.startswith("<plan") and piece != "<plans>\n"]
    assert len(texts) == 1 + PLAN_DELTAS_MAX
    taken: dict[Warm, list[float]] = {run: [] for run in runs}
    gc.disable()
    try:
        for turn in range(TURNS):
            # In turn, as what a machine has to do beside changes while it is measured.
            for run in runs if turn % 2 else runs[::-1]:
                begin = time.thread_time()
                await run.packet()
                taken[run].append(time.thread_time() - begin)
    finally:
        gc.enable()
    assert (await with_.packet()).report.plan_tokens > PLAN_DELTAS_MAX * DELTA_CHARS / 2
    ratios = [b / a for a, b in zip(taken[without], taken[with_], strict=True)]
    low, ratio, high = statistics.quantiles(ratios, n=4)
    times = [statistics.median(each) * 1000 for each in (taken[without], taken[with_])]
    with capsys.disabled():
        print(
            f"\na warm packet {times[0]:.2f} ms, with a plan and {PLAN_DELTAS_MAX} deltas {times[1]:.2f} ms: "
            f"{ratio:.2f} (pairs, quartiles {low:.2f} to {high:.2f})"
        )
    assert ratio > 0
