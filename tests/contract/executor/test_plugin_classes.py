"""A plugin may be a class: made once at the start, with the registry; told of each turn by values. Rows RU144, RU147."""

from __future__ import annotations

import sys

import pytest

from services import running

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'

WATCHMAN = """
from turnwright_executor.hooks import ENTRY_RECORDING, TURN_VERDICT

MADE = []


class Watchman:
    def __init__(self, core):
        self.core = core
        self.contexts = []
        self.turns = []
        core.filter(ENTRY_RECORDING, self.recording, priority=5)
        core.filter(TURN_VERDICT, self.verdict, priority=80)
        core.on("turn.started", self.started)
        MADE.append(self)

    def recording(self, recording, context):
        self.contexts.append(context)
        return recording

    def verdict(self, vote, facts):
        self.contexts.append(facts)
        return vote

    def started(self, event):
        self.turns.append(event.at.turn)
"""


async def test_a_class_registers_all_that_it_takes_part_in_when_it_is_made(plugin, tmp_path) -> None:
    # RU144
    name = plugin("watchman", WATCHMAN).replace(":register", ":Watchman")
    async with running(tmp_path, hooks=name) as services:
        services.script(f"<think>a</think>{GO_ON}", DONE)
        assert (await services.until(await services.act())).status == 200
    [made] = sys.modules["watchman"].MADE
    assert (made.core.plugin, made.turns) == ("watchman:Watchman", [1, 2])
    assert made.core.plugins() == {"watchman:Watchman": ("entry.recording", "turn.started", "turn.verdict")}


async def test_what_a_plugin_is_given_at_the_start_and_what_in_each_turn_are_two_things(plugin, tmp_path) -> None:
    # RU147
    name = plugin("watchman_of_turns", WATCHMAN).replace(":register", ":Watchman")
    async with running(tmp_path, hooks=name) as services:
        services.script(f"<think>a</think>{GO_ON}", DONE)
        assert (await services.until(await services.act())).status == 200
    [made] = sys.modules["watchman_of_turns"].MADE
    seen = [(type(context).__name__, context.at.turn) for context in made.contexts]
    assert seen == [
        ("RecordingContext", 1), ("RecordingContext", 1), ("TurnFacts", 1), ("RecordingContext", 2), ("TurnFacts", 2),
    ]  # fmt: skip
    assert not any(hasattr(context, verb) for context in made.contexts for verb in ("on", "filter"))
    with pytest.raises(AttributeError):
        made.contexts[0].ordinal = 9
