"""What commands of chats cost beside the calls that do a part of them: Act, and a fork of as many views."""

from __future__ import annotations

import itertools
import statistics
import time

import pytest
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright.types.v1 import settings_pb2

from bench.test_plan_speed import _in_turn
from bench.test_store_speed import bench, kind  # noqa: F401 - fixtures
from contract.executor.proposing import GO_ON, SET
from contract.executor.sessions import ASKING, say
from contract.store.harness import Run, new_run, set_
from services import running
from turnwright_client.sessions import user_message

pytestmark = [pytest.mark.bench, pytest.mark.asyncio, pytest.mark.timeout(600)]

PAIRS = 300
VIEWS = 2_000
ROUNDS = 7


async def test_a_message_beside_act(tmp_path, monkeypatch):
    """Both add a loop to the queue of a run that waits, so that nobody works on them."""
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, store_settings={"loops_queued_max": 10_000}) as services:
        (services.files / "a.txt").write_text("old\n")
        services.script(f"{SET}{GO_ON}")
        await say(services, "Wait.", ASKING, until="paused")
        number = itertools.count()
        settings = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT)

        async def act():
            await services.client.act(services.project, f"Task {next(number)}.", run="r", settings=settings)

        async def submit():
            message = user_message(f"Task {next(number)}.", settings=settings)
            await services.client.submit(services.project, "r", user_message=message)

        times = await _in_turn(PAIRS, act, submit)
    low, ratio, high = statistics.quantiles([submit / act for act, submit in times], n=4)
    act_ms, submit_ms = (statistics.median(each) for each in zip(*times, strict=True))
    assert ratio > 0
    print(
        f"\nSubmitCommand {submit_ms:.2f} ms, Act {act_ms:.2f} ms: {ratio:.2f} "
        f"(pairs, quartiles {low:.2f} to {high:.2f})"
    )


async def filled(client, project: str, alias: str) -> Run:
    """A run whose first turn has written so many entries, and that is at rest."""
    run = await new_run(client, project, alias)
    await run.enqueue()
    await run.claim()
    await run.begin(set_("prompt://{turn}", "go"))
    for first in range(0, VIEWS, 500):
        await run.write(*(set_(f"known://{place}", "x" * 100) for place in range(first, first + 500)))
    await run.end(1, loop=(200, "update", "done"))
    return run


async def test_a_rewind_beside_a_fork(bench):  # noqa: F811
    taken: dict[str, list[float]] = {"fork": [], "rewind": [], "restore": []}
    for number in range(ROUNDS):
        run = await filled(bench.client, bench.run.project, f"r{number}")
        revision = (await run.view()).cursor.run_revision
        truncate = pb.TruncateMessages(from_index=0, expected_revision=revision)
        restore = pb.RewindToTurn(turn=1)
        steps = {
            "fork": ("ForkRun", {"new_run": f"f{number}"}),
            "rewind": (
                "SubmitCommand",
                {"command_id": f"t{number}", "command": pb.SessionCommand(truncate_messages=truncate)},
            ),
            "restore": (
                "SubmitCommand",
                {"command_id": f"r{number}", "command": pb.SessionCommand(rewind_to_turn=restore)},
            ),
        }
        for name, (method, fields) in steps.items():
            begin = time.perf_counter()
            await bench.client.call(method, **run.address, **fields)
            taken[name].append((time.perf_counter() - begin) * 1000)
        assert len((await run.view()).paths) >= VIEWS
    fork, rewind, restore = (statistics.median(taken[name]) for name in ("fork", "rewind", "restore"))
    bench.say(
        f"{VIEWS} views: rewind {rewind:.1f} ms, restore {restore:.1f} ms, fork {fork:.1f} ms: "
        f"{rewind / fork:.2f} and {restore / fork:.2f}"
    )
