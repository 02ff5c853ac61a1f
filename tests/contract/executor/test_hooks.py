"""Plugins in the turns of a running executor. Rows RU041, RU131, RU145, RU148, RU153, RU155; decision C26."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from services import running
from turnwright_executor.hooks import TurnFacts, Vote

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'

GUARD = """
from turnwright_executor.hooks import ENTRY_RECORDING, Command


def register(registry):
    registry.filter(ENTRY_RECORDING, guard)


async def guard(recording, context):
    command = recording.command
    if command.name == "sh" and "rm " in command.attributes["command"]:
        return recording.refused("permission:403", "Nothing is removed here.")
    if command.attributes.get("path") == "b.txt":
        return recording.with_command(Command("get", {"path": "a.txt"}))
    return recording
"""

WITNESS = """
HEARD = []


def register(registry):
    for hook in ("loop.started", "turn.started", "turn.response", "entry.created", "turn.dispatched",
                 "turn.completed", "loop.completed"):
        registry.on(hook, told(hook))


def told(hook):
    def observer(event):
        HEARD.append((hook, event))
        raise RuntimeError("an observer breaks nothing")

    return observer
"""

VOTER = """
from turnwright_executor.hooks import TURN_VERDICT, Vote

SEEN = []


def register(registry):
    registry.filter(TURN_VERDICT, vote, priority=80)


def vote(vote, facts):
    SEEN.append((vote, facts))
    return Vote(False, 422, "enough") if facts.loop_turn == 2 else vote
"""


async def test_a_recording_filter_refuses_a_command_which_is_stored_and_never_dispatched(plugin, tmp_path) -> None:
    # RU131, RU155
    async with running(tmp_path, hooks=plugin("guard_of_shell", GUARD)) as services:
        (services.files / "keep").write_text("x")
        services.script(f"<sh>rm keep</sh><sh>touch after</sh>{GO_ON}", DONE)
        loop = await services.until(await services.act())
        refused = await services.entry("log://turn_1/sh/rm_keep")
        assert (refused.status, refused.outcome, refused.body) == (403, "permission:403", "Nothing is removed here.")
        assert await services.status("log://turn_1/sh/touch_after") == 499
        assert (loop.status, (services.files / "keep").exists()) == (200, True)


async def test_a_recording_filter_gives_a_command_another_form(plugin, tmp_path) -> None:
    # RU131
    async with running(tmp_path, hooks=plugin("guard_of_paths", GUARD)) as services:
        (services.files / "a.txt").write_text("text of a")
        services.script(f'<get path="b.txt"/>{GO_ON}', DONE)
        await services.until(await services.act())
        record = await services.entry("log://turn_1/get/a.txt")
        assert (record.status, json.loads(record.attributes_json)["target"]) == (200, "a.txt")


async def test_observers_are_told_of_loops_and_turns_and_break_nothing(plugin, tmp_path) -> None:
    # RU041, RU142, RU148
    async with running(tmp_path, hooks=plugin("witness_of_turns", WITNESS)) as services:
        (services.files / "a.txt").write_text("x")
        services.script(f'<get path="a.txt"/>{GO_ON}', DONE)
        loop = await services.until(await services.act("Look."))
    heard = sys.modules["witness_of_turns"].HEARD
    turns = {
        hook: [event.at.turn for name, event in heard if name == hook]
        for hook in ("loop.started", "turn.started", "turn.response", "turn.dispatched", "turn.completed")
    }
    assert turns == {
        "loop.started": [1],
        "turn.started": [1, 2],
        "turn.response": [1, 2],
        "turn.dispatched": [1, 2],
        "turn.completed": [1, 2],
    }
    assert [event.path for name, event in heard if name == "entry.created"] == [
        "log://turn_1/get/a.txt", "log://turn_1/update/2", "log://turn_2/update/1",
    ]  # fmt: skip
    [ended] = [event for name, event in heard if name == "loop.completed"]
    assert (loop.status, ended.status, ended.reason, ended.summary, ended.at.run) == (200, 200, "update", "Done.", "r")


async def test_observers_are_told_of_a_loop_that_was_aborted(plugin, tmp_path) -> None:
    async with running(tmp_path, hooks=plugin("witness_of_aborts", WITNESS)) as services:
        services.script("<sh>sleep 30</sh>")
        queued = await services.act()
        async with asyncio.timeout(60):
            while not any(event.HasField("run_progress") and "sleep" in event.run_progress.detail
                          for event in services.events):  # fmt: skip
                async for event in services.client.watch(queued.project, queued.run, queued.cursor):
                    services.events.append(event)
                    if event.HasField("run_progress") and "sleep" in event.run_progress.detail:
                        break
        await services.client.abort(services.project, "r")
        await services.until(queued)
    heard = sys.modules["witness_of_aborts"].HEARD
    assert [(event.status, event.reason) for name, event in heard if name == "loop.completed"] == [(499, "aborted")]


async def test_a_voter_ends_a_loop_and_sees_what_happened(plugin, tmp_path) -> None:
    # RU010
    async with running(tmp_path, hooks=plugin("voter_of_enough", VOTER)) as services:
        services.script(f'<get path="gone.txt"/>{GO_ON}', GO_ON, DONE)
        loop = await services.until(await services.act())
    assert (loop.status, loop.reason, loop.turns) == (422, "enough", 2)
    (first_vote, first), (_, second) = sys.modules["voter_of_enough"].SEEN
    assert (first_vote, type(first)) == (Vote(True, 102), TurnFacts)
    assert [(record.tool, record.state.name) for record in first.records] == [("get", "FAILED"), ("update", "RESOLVED")]
    assert (first.at.run, first.at.turn, second.loop_turn, second.recent[0].strikes) == ("r", 1, 2, 1)
