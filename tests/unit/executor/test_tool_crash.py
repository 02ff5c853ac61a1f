"""A tool that crashes while its command is dispatched. Rows RU134, RU153, RU157."""

import pytest
import structlog

from turnwright_core.entries import State
from turnwright_core.runs import RUNNING, Loop, LoopSettings, Mode
from turnwright_executor.app.accepting import Proposals
from turnwright_executor.app.dispatch import Progress, Room, dispatch
from turnwright_executor.app.hub import RunHub
from turnwright_executor.app.recording import Gate, Reading, new_records, record_writes
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.domain.effect_class import EffectClass
from turnwright_executor.domain.toolset import TOOL_ORDER
from turnwright_executor.hooks import Hooks
from turnwright_executor.hooks.rules import new_registry
from turnwright_executor.ports import RunAddress
from turnwright_executor.tools.registry import TOOLS
from turnwright_grammar import Command

from .bench import TURN

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Crashing:
    """A tool with a fault."""

    name = "think"
    effect_class = EffectClass.PURE

    async def prepare(self, command, context):
        raise RuntimeError("secret text")

    async def perform(self, effect, command, context):
        raise AssertionError("nothing was prepared")


async def confirmed() -> None:
    """The run is still ours."""


async def test_a_crash_fails_its_command_with_an_error_entry_and_aborts_those_after_it(bench) -> None:
    tools, hooks, at = {**TOOLS, "think": Crashing()}, Hooks(new_registry()), TurnAddress("p", "bench", 1, TURN)
    commands = (
        Command("think", body="Hm."),
        Command("get", {"path": "a.txt"}),
        Command("update", {"status": "102"}, "On."),
    )
    records = await new_records(Gate(hooks, tools, at, Mode.ACT, TOOL_ORDER), Reading(commands))
    await bench.entries.write(record_writes(records))
    context = bench.context(commands[0])
    room = Room(
        turn=TURN,
        loop=Loop(1, LoopSettings(Mode.ACT), "go", RUNNING),
        hub=RunHub(RunAddress("p", "bench"), "e", bench.entries._ledger, ExecutorSettings()),
        pending=bench.entries,
        workspace=context.workspace,
        shell=context.shell,
        tools=tools,
        proposals=Proposals(hooks, at, yolo=False),
        epoch=1,
        confirm=confirmed,
        asks_indeterminate=False,
    )
    with structlog.testing.capture_logs() as lines:
        assert await dispatch(room, records) is Progress.SETTLED
    await bench.entries.flush()

    ended = [(record.state, record.outcome) for record in records]
    assert ended == [(State.FAILED, "crash:500"), (State.CANCELLED, "aborted:499"), (State.RESOLVED, "")]
    error = await bench.entry(f"log://turn_{TURN}/error/think/1")
    assert (error.state, error.outcome, error.body) == (State.FAILED, "crash:500", records[0].body)
    assert "secret" not in error.body
    [line] = lines
    assert line["error_id"] in error.body
