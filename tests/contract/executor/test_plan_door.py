"""Nothing but the plan tools and rpcs changes a plan, however it is tried. Decision C45; rows RP03, RP07."""

from __future__ import annotations

import pytest
from turnwright.types.v1 import plan_pb2, settings_pb2

from services import running
from turnwright_grammar.reader.parser import read_reply
from unit.assembler.packet_reader import section

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
PLANS = (
    f"<set_plan>One</set_plan><update_plan>to one</update_plan><set_plan>Two</set_plan><update_plan>to two</update_plan>"
    f'<set path="known://a">x</set>{GO_ON}'
)
OTHERS = (
    '<rm path="**"/>',
    '<rm path="plan://**"/>',
    '<rm path="plan://main/v1"/>',
    '<rm path="plan://main/v1/1"/>',
    '<rm path="/plan:.*/"/>',
    '<mv path="plan://main/v1" to="known://z"/>',
    '<mv path="known://*" to="plan://"/>',
    '<mv path="**" to="known://all/"/>',
    '<cp path="known://*" to="plan://x"/>',
    '<cp path="**" to="plan://main/v1/"/>',
    '<cp path="plan://**" to="known://kept/"/>',
    '<set path="plan:///x">x</set>',
    '<set path=" plan://main ">x</set>',
    '<set path="plan://main/../main">x</set>',
    '<set path="plan://main#x">x</set>',
    '<set path="plan://main/v2/2">x</set>',
    '<set path="plan://main" summary="x"/>',
    '<set path="plan://*" visibility="archived"/>',
    '<set path="**" visibility="archived"/>',
    '<set path="/plan:.*/" visibility="summarized"/>',
    '<get path="plan://main/v1"/>',
    '<get path="plan://**"/>',
)


async def told(services) -> list[tuple[int, str, list[str]]]:
    """Every version of the plan."""
    versions = [await services.client.get_plan(services.project, "r", version=version) for version in (1, 2)]
    return [(plan.version, plan.body, [delta.text for delta in plan.deltas]) for plan in versions]


async def test_no_pattern_and_no_spelling_of_a_path_leads_around_the_plan_tools(services) -> None:
    """What a model reads of its plan, and each version with its deltas, stay as they are."""
    services.script(PLANS, DONE)
    await services.until(await services.act())
    before = await told(services)
    assert before == [(1, "One", ["to one"]), (2, "Two", ["to two"])]
    for command in OTHERS:
        (sent,) = read_reply(command).commands
        await services.client.call_tool(services.project, "r", sent.name, dict(sent.attributes), sent.body)
        assert await told(services) == before, command
        assert [plan.plan_id async for plan in services.client.list_plans(services.project, "r")] == ["main"], command
    services.script(DONE)
    loop = await services.until(await services.act())
    packet = (await services.entry(f"user://{loop.first_turn}")).body
    assert [plan.body for plan in section(packet, "plans").children] == ["Two"]
    assert [node.body for node in section(packet, "log").children if node.name == "plan-update"] == ["to two"]


TOOL = """
from turnwright_executor.plugins import Done, EntryWrite, PluginTool, SetEntry, Visibility
from turnwright_core.entries import AppendEntry, CopyEntry, MoveEntry, RemoveEntry

DELTA = '{"version": 1, "sequence": 7}'
WRITES = {
    "set": ("plan://main", SetEntry(body="x")),
    "new": ("plan://new", SetEntry(body="x", attributes_json='{"kind": "markdown", "version": 1, "mode": ""}')),
    "archive": ("plan://main", SetEntry(visibility=Visibility.ARCHIVED)),
    "delta": ("plan://main/v1/7", SetEntry(body="x", attributes_json=DELTA)),
    "append": ("plan://main/v1/1", AppendEntry("x")),
    "remove": ("plan://main", RemoveEntry()),
    "move": ("plan://main", MoveEntry("known://x")),
    "move here": ("known://a", MoveEntry("plan://main")),
    "copy here": ("known://a", CopyEntry("plan://new")),
}


class Writer(PluginTool):
    name = "write"
    doc = "## <write>how</write> - writes to a plan"

    async def prepare(self, command, context):
        if command.body == "copy":
            return Done("Copied.", writes=(EntryWrite("known://a", CopyEntry("known://copy")),))
        path, change = WRITES[command.body]
        return Done("Done.", writes=(EntryWrite("known://beside", SetEntry(body="x")), EntryWrite(path, change)))


def register(registry):
    registry.tool(Writer())
"""
HOWS = ("set", "new", "archive", "delta", "append", "remove", "move", "move here", "copy here")


@pytest.mark.parametrize("how", HOWS)
async def test_what_a_plugin_writes_to_a_plan_fails_its_command_and_nothing_else(plugin, tmp_path, how) -> None:
    """Where it copies and moves to counts too; the turn goes on."""
    async with running(tmp_path, tools=plugin("plan_writer", TOOL)) as services:
        services.script(PLANS, f"<write>{how}</write>{GO_ON}", DONE)
        loop = await services.until(await services.act())
        assert loop.status == 200
        [record] = [one for one in services.view().entries.values() if "turn_2/write/" in one.path]
        assert (record.outcome, "set_plan" in record.body) == ("plan_tool:409", True)
        assert await told(services) == [(1, "One", ["to one"]), (2, "Two", ["to two"])]
        assert "known://beside" not in services.view().entries


async def test_what_a_plugin_copies_is_read_in_the_same_reply(plugin, tmp_path) -> None:
    async with running(tmp_path, tools=plugin("plan_copier", TOOL)) as services:
        services.script(f'<set path="known://a">x</set><write>copy</write><get path="known://copy"/>{GO_ON}', DONE)
        loop = await services.until(await services.act())
        [record] = [one for one in services.view().entries.values() if "turn_1/get/" in one.path]
        assert (loop.status, record.outcome) == (200, "")


async def test_a_plan_of_a_fork_is_its_own_at_whatever_turn_it_was_taken(services) -> None:
    """RP07: going back to a turn brings back the plan of then; numbers go on from what the fork has seen."""
    client, run = services.client, (services.project, "r")
    await client.create_run(*run, settings_pb2.RunSettings(model="m"))
    services.script(
        *[f"<set_plan>at {n}</set_plan><update_plan>more {n}</update_plan>{GO_ON}" for n in (1, 2, 3)], DONE
    )
    await services.until(await services.act())
    await client.delete_plan(*run)
    for turn in (1, 2, 3):
        await client.fork_run(*run, new_run=f"fork{turn}", turn=turn)
        forked = await client.get_plan(services.project, f"fork{turn}")
        assert (forked.version, forked.body) == (turn, f"at {turn}")
        assert [delta.text for delta in forked.deltas] == [f"more {turn}"]
        made = await client.set_plan(services.project, f"fork{turn}", plan_pb2.Plan(body="anew"))
        assert made.version == turn + 1
    assert [(await client.get_plan(*run, version=version)).body for version in (1, 2, 3)] == ["at 1", "at 2", "at 3"]
    assert (await client.set_plan(*run, plan_pb2.Plan(body="anew"))).version == 4
