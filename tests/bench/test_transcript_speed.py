"""What a transcript costs warm and cold, and what of it vendors can cache, beside packets of the same run."""

from __future__ import annotations

import gc
import os
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence

import pytest
from msgspec.structs import replace
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import command_record_pb2, packet_pb2
from turnwright_values.assembler import AssembleRequest
from turnwright_values.types import Cursor, Entry, State, Tier

from contract.store.harness import Client, new_project, set_, start_store, working_run
from turnwright_assembler.app.assemble import Assembler, Rules
from turnwright_assembler.app.packet import compose
from turnwright_assembler.app.run_cache import RunCache
from turnwright_assembler.app.run_rows import RunRows
from turnwright_assembler.app.transcript import fitting_transcript
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.ladder import TokenBudget
from turnwright_assembler.edge.store_reader import StoreReader
from turnwright_assembler.ports import ViewPart
from turnwright_core.chat.message import Role, text_message
from turnwright_core.chat.prompt_edits import append, append_to, prepend
from turnwright_core.chat.transcript import to_json_lines
from turnwright_core.packet_digest import packet_digest
from turnwright_core.wire.packets import piece_to_pb, role_to_pb
from unit.assembler.entries import entry

pytestmark = [pytest.mark.bench, pytest.mark.timeout(300)]

WARM_MAX = 0.35
"""Warm over cold, of 1,000 messages of 1 KB."""

DOUBLED_MAX = 2.2
"""Of twice the history."""

CACHED_MIN = 0.9
"""Share of the 40-turn reading run that a request has in common with the one before."""

TEXT = ('some words of a line, and a "quoted" one\n' * 30)[:1024]
PRICES = (0.1, 0.25, 0.5)
"""Of a cached token over one that is not."""


def turn_of(number: int, text: str = TEXT, path: str = "src/a.py") -> list[Entry]:
    """The reply of a turn, and the result of its call."""
    called = command_record_pb2.CommandRecord(tool="get", call_id=f"call_{number}_0", vendor_call_id=f"v{number}")
    record = f"log://turn_{number}/get/a"
    reply = entry(
        f"assistant://{number}", "I read the next file." if text != TEXT else TEXT, position=3 * number, turn=number,
        calls=[{"path": record, "call_id": f"call_{number}_0", "id": f"v{number}"}], call={"model": "openai/m"},
    )  # fmt: skip
    got = entry(record, text, position=3 * number + 1, turn=number, tool="get", target=path)
    return [reply, replace(got, record=called.SerializeToString())]


def history(messages: int) -> list[Entry]:
    turns = (one for number in range(1, messages // 2 + 1) for one in turn_of(number))
    return [entry("prompt://1", "Read all.", mode="act", loop=1, position=1), *turns]


EDITS = (prepend("user", "Mind the style."), append("user", "Be brief."), append_to("last-user", "Do it now."))


class Run:
    """A transcript that is told turn by turn, edited or not."""

    def __init__(self, entries: Sequence[Entry], *, edited: bool = False) -> None:
        self._rows = TranscriptRows()
        self._digest = ""
        self._edits = EDITS if edited else ()
        self.next(entries)

    def next(self, entries: Sequence[Entry]) -> None:
        self._rows.apply(ViewPart(tuple(entries), (), Cursor("i", 1, 0, 0)))
        ask = AssembleRequest(
            "p", "r", 9, 1, 10**9, transcript=True, edits=self._edits, base_digest=self._digest, prefill=True
        )
        self._digest = fitting_transcript(self._rows, ask, 2, TokenBudget(10**9)).digest

    @property
    def pieces(self) -> list[str]:
        return self._rows.conversation.pieces


def seconds(work: Callable[[], object]) -> float:
    begin = time.thread_time()
    work()
    return time.thread_time() - begin


@pytest.fixture(autouse=True)
def no_gc() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def test_what_a_turn_costs_warm_and_cold(capsys) -> None:
    one, two = history(1000), history(2000)
    warm, long, edited = Run(one), Run(two), Run(one, edited=True)
    said = [text_message(Role.USER, each.body) for each in one]
    taken: dict[str, list[float]] = {}

    def take(name: str, work: Callable[[], object]) -> None:
        taken.setdefault(name, []).append(seconds(work))

    for number in range(15):
        more = turn_of(2000 + number)
        take("cold", lambda: Run(one))
        take("doubled", lambda: Run(two))
        take("warm", lambda: warm.next(more))  # noqa: B023
        take("long", lambda: long.next(more))  # noqa: B023
        take("edited", lambda: edited.next(more))  # noqa: B023
        take("join", lambda: "".join(warm.pieces))
        take("hash", lambda: packet_digest((("user", warm.pieces),)))
        take("json", lambda: packet_digest((("user", to_json_lines(said)),)))
    ms = {name: statistics.median(each) * 1000 for name, each in taken.items()}
    with capsys.disabled():
        print(
            f"\n1,000 messages of 1 KB: cold {ms['cold']:.2f} ms ({ms['cold'] / ms['hash']:.1f}x joining and hashing, "
            f"{ms['cold'] / ms['json']:.1f}x the same with writing JSON, {ms['cold'] / ms['join']:.0f}x the join alone), "
            f"warm {ms['warm']:.3f} ms ({ms['warm'] / ms['cold']:.3f}x), with edits {ms['edited']:.3f} ms; "
            f"2,000: cold {ms['doubled'] / ms['cold']:.2f}x, warm {ms['long'] / ms['warm']:.2f}x"
        )
    if os.environ.get("TURNWRIGHT_BENCH_ASSERT"):
        assert ms["warm"] <= WARM_MAX * ms["cold"]


@pytest.mark.asyncio
async def test_what_the_first_turn_after_a_restart_costs(tmp_path, capsys) -> None:
    """CPU of store, wire and assembler."""
    server = await start_store(tmp_path)
    client = Client(server.address)
    run = await working_run(client, await new_project(client))
    reader, rules = StoreReader(client.peer), Rules(2, 1.0)
    assembler = Assembler(reader, RunCache(2**30), rules)
    ask = AssembleRequest(run.project, run.alias, 1, 1, 10**9, transcript=True)
    digest = ""
    for number in range(1, 502):
        await run.begin()
        made = await assembler.assemble(replace(ask, turn=number, base_digest=digest))
        messages = [
            packet_pb2.PacketMessage(role=role_to_pb(role), pieces=[piece_to_pb(piece, {}) for piece in pieces])
            for role, pieces in made.messages
        ]
        digest = made.report.digest
        await run.write(packet=write_pb2.PacketRecord(turn=number, messages=messages, base_turn=number - 1))
        writes = (
            set_(one.path, one.body, one.attributes_json, writer=Tier.SYSTEM, state=State.RESOLVED, record=one.record or None)
            for one in turn_of(number)
        )  # fmt: skip
        await run.end(number, *writes, status=102)
    wanted = (await assembler.assemble(replace(ask, turn=502))).report.digest
    ms = []
    for _ in range(10):
        cold, begin = Assembler(reader, RunCache(1), rules), time.process_time()
        assert (await cold.assemble(replace(ask, turn=502))).report.digest == wanted
        ms.append((time.process_time() - begin) * 1000)
    await client.close()
    await server.stop()
    with capsys.disabled():
        print(f"\n1,000 messages of 1 KB, CPU at best with all reading: {min(ms):.1f} ms")


MADE = {
    "cold": "entries = history({messages}); work = lambda number: Run(entries)",
    "with edits": "run = Run(history({messages}), edited=True); work = lambda number: run.next(turn_of(5000 + number))",
}


@pytest.mark.timeout(900)
@pytest.mark.skipif(not shutil.which("valgrind"), reason="instructions are counted by valgrind")
@pytest.mark.parametrize("kind", MADE)
def test_twice_the_history_takes_twice_the_instructions(kind, capsys) -> None:
    one, two = (
        (_instructions(MADE[kind].format(messages=messages), 4) - _instructions(MADE[kind].format(messages=messages), 1)) / 3
        for messages in (1000, 2000)
    )  # fmt: skip
    with capsys.disabled():
        print(f"\n{kind}: {one / 1e6:.1f} million instructions, twice the history {two / one:.2f}x")
    assert two <= DOUBLED_MAX * one


def _instructions(made: str, times: int) -> int:
    """The instructions of a process that does a piece of work so many times: the same, whatever else a machine does."""
    lines = ["import gc", "gc.disable()", "from bench.test_transcript_speed import *", made]
    code = "\n".join([*lines, f"for number in range({times}): work(number)"])
    counting = ["valgrind", "--tool=cachegrind", "--cache-sim=no", "--cachegrind-out-file=/dev/null"]
    # What is compiled in one process must be compiled in each.
    fixed = {"PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    told = {**os.environ, **fixed, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    done = subprocess.run([*counting, sys.executable, "-c", code], env=told, capture_output=True, text=True, check=True)
    found = re.search(r"I\s+refs:\s+([0-9,]+)", done.stderr)
    assert found
    return int(found[1].replace(",", ""))


def test_turn_400_costs_what_turn_10_costs(capsys) -> None:
    run, taken = Run(history(0)), []
    for number in range(1, 421):
        more = turn_of(number)
        taken.append(seconds(lambda: run.next(more)))  # noqa: B023
    early, late = (statistics.median(taken[at - 8 : at + 8]) * 1000 for at in (10, 400))
    with capsys.disabled():
        print(f"\nturn 10 takes {early:.3f} ms, turn 400 {late:.3f} ms: {late / early:.2f}x")
    assert run.pieces


def test_what_of_a_reading_run_can_be_cached(capsys) -> None:
    shares = {"packet": _shared(_packets(40)), "transcript": _shared(_transcripts(40))}
    prices = {
        name: ", ".join(f"{share * price + 1 - share:.2f} at {price}" for price in PRICES)
        for name, share in shares.items()
    }
    with capsys.disabled():
        for name, share in shares.items():
            print(f"\n40 turns of reading as {name}: {share:.1%} as in the turn before, price factor {prices[name]}")
    assert shares["transcript"] >= CACHED_MIN


def _file(number: int) -> str:
    return f"{number} " + "some words of text\n" * 80


def _transcripts(turns: int) -> Iterator[str]:
    rows = TranscriptRows()
    rows.apply(ViewPart(tuple(history(0)), (), Cursor("i", 1, 0, 0)))
    for number in range(1, turns + 1):
        yield "".join(piece for _, pieces in rows.messages() for piece in pieces)
        rows.apply(ViewPart(tuple(turn_of(number, _file(number), f"f{number}.txt")), (), Cursor("i", 1, 0, 0)))


def _packets(turns: int) -> Iterator[str]:
    rows = RunRows(2)
    prompt = entry("prompt://1", "Read all.", mode="act", loop=1, tokenUsage=3, tokensFree=4, position=1)
    rows.apply(ViewPart((prompt,), (), Cursor("i", 1, 0, 0)))
    for number in range(1, turns + 1):
        made = compose(rows.ordered(), rows.system, 1, 200_000, 2, tools=rows.tools)
        yield "".join(piece for _, pieces in made.messages for piece in pieces)
        record = entry(f"log://turn_{number}/get/a", "read", tool="get", target=f"f{number}.txt", position=3 * number)
        file = entry(f"f{number}.txt", _file(number), position=3 * number + 1, turn=number)
        rows.apply(ViewPart((record, file), (), Cursor("i", 1, 0, 0)))


def _shared(prompts: Iterator[str]) -> float:
    """The share of all bytes that are those of the prompt before, from its beginning on."""
    before, shared, total = "", 0, 0
    for prompt in prompts:
        shared += next((at for at, (a, b) in enumerate(zip(before, prompt, strict=False)) if a != b), len(before))
        total += len(prompt)
        before = prompt
    return shared / total
