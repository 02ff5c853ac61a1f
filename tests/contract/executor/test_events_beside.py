"""Events and plans beside the work of a loop: what they change of it, and what they leave. Rows RH03, RH05, RP07, RU280."""

import json
import re

import pytest
from turnwright.types.v1 import plan_pb2, settings_pb2
from turnwright_values.types import Visibility

from services import running

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
RING = "<ring/>"

BELL = """
import itertools
import json

from turnwright_executor.plugins import Done, EntryWrite, PluginTool, SetEntry, State, Visibility

NUMBERS = itertools.count(1)


class Bell(PluginTool):
    name = "ring"
    doc = "## <ring/> - rings, and tells of a process that failed"
    times = 1

    async def prepare(self, command, context):
        return Done("It rang.", writes=tuple(self.event(next(NUMBERS)) for _ in range(self.times)))

    def event(self, number):
        told = {"subkind": "process_completed", "source": "exec:build", "payload": {"number": number}}
        change = SetEntry(
            body=f"Process {number} has failed.",
            attributes_json=json.dumps({"event": told}),
            visibility=Visibility.VISIBLE,
            state=State.FAILED,
            outcome="exit:500",
        )
        return EntryWrite(f"event://turn_1/process_completed/{number}", change)


class Bells(Bell):
    name = "ring_twice"
    doc = "## <ring_twice/> - rings twice"
    times = 2


def register(registry):
    registry.tool(Bell())
    registry.tool(Bells())
"""


async def strikes(services) -> list[int]:
    turns = (await services.client.get_run(services.project, "r", turns_max=10)).turns
    return [turn.result.strikes for turn in sorted(turns, key=lambda turn: turn.number)]


async def test_an_event_is_no_strike_whatever_it_tells(plugin, tmp_path) -> None:
    async with running(tmp_path, tools=plugin("bell_strikes", BELL)) as services:
        services.script(f"{RING}{GO_ON}", f"{RING}<think>On.</think>{GO_ON}", DONE)
        loop = await services.until(await services.act())
        assert (loop.status, await strikes(services)) == (200, [0, 0, 0])
        assert (await services.entry("event://turn_1/process_completed/1")).outcome == "exit:500"


async def test_events_hide_no_cycle(plugin, tmp_path) -> None:
    # RU156, RU280: a turn that does the same is the same, whatever it brings
    async with running(tmp_path, tools=plugin("bell_cycles", BELL)) as services:
        services.script(*[RING] * 6)
        loop = await services.until(await services.act())
        assert (loop.status, loop.reason, loop.turns) == (499, "cycles", 5)
        assert await strikes(services) == [0, 0, 1, 2, 3]


async def test_an_executor_writes_down_what_is_folded(plugin, tmp_path) -> None:
    # RH03: the packet that is sent, and the entries behind it
    async with running(tmp_path, tools=plugin("bell_folds", BELL)) as services:
        twice = [f"<ring_twice/><think>{n}</think>{GO_ON}" for n in range(3)]
        services.script(*twice, f"<think>3</think>{GO_ON}", DONE)
        loop = await services.until(await services.act())
        assert (loop.status, loop.turns) == (200, 5)
        for turn in (4, 5):
            packet = (await services.entry(f"user://{turn}")).body
            assert [n for n in range(1, 7) if f"Process {n} has failed." in packet] == [4, 5, 6]
            assert packet.count('subkind="summarization_marker"') == 1
        visibilities = [(await services.entry(f"event://turn_1/process_completed/{n}")).visibility for n in range(1, 7)]
        assert visibilities == [Visibility.ARCHIVED] * 3 + [Visibility.VISIBLE] * 3
        marker = await services.entry("event://turn_4/summarization_marker/folded")
        assert json.loads(marker.attributes_json)["event"]["payload"]["count"] == 3
        old = await services.entry("event://turn_3/summarization_marker/folded")
        assert (old.visibility, marker.visibility) == (Visibility.ARCHIVED, Visibility.VISIBLE)


async def test_a_plan_that_a_client_sets_stands_in_the_next_packet_and_stays_over_restarts(services) -> None:
    # RP07
    client, run = services.client, (services.project, "r")
    await client.create_run(*run, settings_pb2.RunSettings(model="m"))
    await client.set_plan(*run, plan_pb2.Plan(body="1. mend it", mode="agent"))
    await client.update_plan(*run, "2. test it")
    services.script(DONE, DONE)
    await services.until(await services.act())
    for name in ("assembler", "store", "executor"):
        await services.restart(name)
    await client.update_plan(*run, "3. tell")
    await services.until(await services.act("Go on."))
    first, second = [(await services.entry(f"user://{turn}")).body for turn in (1, 2)]
    plan = '<plan plan_id="main" version="1" mode="agent">\n<<:::plan://main\n1. mend it\n:::plan://main\n</plan>'
    assert plan in first
    assert plan in second
    assert first.count("<plan-update ") == 1
    assert second.index("2. test it") < second.index("3. tell") < second.index("</log>")


async def test_the_end_of_a_loop_that_plans_fill_names_their_tokens(services) -> None:
    # C46
    client, run = services.client, (services.project, "r")
    await client.create_run(*run, settings_pb2.RunSettings(model="m", context_limit=8192))
    await client.set_plan(*run, plan_pb2.Plan(body="mend it " * 2000))
    services.script(DONE)
    loop = await services.until(await services.act())
    assert loop.status == 413
    assert re.search(r"plans take \d{4} of them", loop.reason)
    told = await services.entry("log://turn_1/error/budget_overflow")
    assert "* plan main: 80" in told.body


async def test_a_packet_stays_as_it_was_sent_when_its_plan_does_not(services) -> None:
    # RU197: what was stored of it by the plan's body is found again
    client, run = services.client, (services.project, "r")
    await client.create_run(*run, settings_pb2.RunSettings(model="m"))
    await client.set_plan(*run, plan_pb2.Plan(body="mend it\n" * 300))
    await client.update_plan(*run, "test it\n" * 300)
    services.script(GO_ON, DONE, DONE)
    await services.until(await services.act())
    sent = [(await services.entry(f"user://{turn}")).body for turn in (1, 2)]
    await client.set_plan(*run, plan_pb2.Plan(body="something else"))
    await client.delete_plan(*run, plan_id="main")
    await services.restart("store")
    await services.until(await services.act("Go on."))
    assert [(await services.entry(f"user://{turn}")).body for turn in (1, 2)] == sent
    assert all("mend it\n" * 300 in body and "test it\n" * 300 in body for body in sent)
    assert "<plans>" not in (await services.entry("user://3")).body
