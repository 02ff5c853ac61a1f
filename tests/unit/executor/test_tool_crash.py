"""A tool that crashes while its command is dispatched. Rows RU134, RU153, RU157."""

import pytest
from turnwright_values.types import Loop, LoopSettings, Mode, State, Tier

from log_lines import logged
from turnwright_core.runs import RUNNING
from turnwright_core.tools import TOOL_ORDER
from turnwright_executor.clients.tool_calls import ClientCommand, ToolCalls
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.addresses import RunAddress, TurnAddress
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.hooks import Hooks
from turnwright_executor.hooks.registry import new_registry
from turnwright_executor.tools.catalogue import ToolCatalogue
from turnwright_executor.turn.accepting import Proposals
from turnwright_executor.turn.commands import CommandSteps, DispatchScope, tool_context
from turnwright_executor.turn.driver import Driver
from turnwright_executor.turn.loop_scope import Placement
from turnwright_executor.turn.machine import Action, TurnState
from turnwright_executor.turn.recording import ParsedReply, RecordingGate, new_records
from turnwright_executor.turn.records import new_record_write
from turnwright_executor.turn.write_buffer import WriteBuffer
from turnwright_executor.watching.hub import Predicate, RunHub
from turnwright_executor.watching.hubs import Hubs
from turnwright_grammar.reply import Command
from turnwright_kit.identity.caller import Caller, Kind

from .bench import TOOLS, TURN

pytestmark = pytest.mark.asyncio(loop_scope="module")

ALICE = Caller("alice", Kind.PERSON, Tier.CLIENT)


class Crashing:
    """A tool with a fault."""

    parameters = ()

    name = "think"
    effect_class = EffectClass.PURE

    async def prepare(self, command, context):
        raise RuntimeError("secret text")

    async def perform(self, effect, command, context):
        raise AssertionError("nothing was prepared")


async def confirmed() -> None:
    """The run is still ours."""


async def nowhere(condition: Predicate) -> None:
    """Nobody waits here."""


async def test_a_crash_fails_its_command_with_an_error_entry_and_aborts_those_after_it(bench) -> None:
    tools, hooks, at = {**TOOLS, "think": Crashing()}, Hooks(new_registry()), TurnAddress("p", "bench", 1, TURN)
    commands = (
        Command("think", body="Hm."),
        Command("get", {"path": "a.txt"}),
        Command("update", {"status": "102"}, "On."),
    )
    records = await new_records(RecordingGate(hooks, tools, at, Mode.ACT, TOOL_ORDER, {}), ParsedReply(commands))
    await bench.entries.write([new_record_write(record) for record in records])
    state = TurnState(is_call=True, is_recorded=True, records={record.path: record for record in records})
    written = bench.entries
    buffer = WriteBuffer(written.ledger, written.address, written.epoch, TURN, 1, state.records)
    loop, place = Loop(1, LoopSettings(Mode.ACT), "go", RUNNING), bench.context(commands[0])
    hub = RunHub(RunAddress("p", "bench"), "e", bench.entries.ledger, ExecutorSettings(), nowhere)
    scope = DispatchScope(
        context=tool_context(loop, TURN, buffer, place.workspace, place.shell, hub),
        publisher=hub,
        buffer=buffer,
        tools=tools,
        proposals=Proposals(hooks, at),
        confirm=confirmed,
        allows_network=lambda _: False,
        asks_indeterminate=False,
    )
    with logged("info") as lines:
        assert await Driver(state, CommandSteps(scope, state)).drive() is Action.STOP

    records = list(state.records.values())
    ended = [(record.state, record.outcome) for record in records]
    assert ended == [(State.FAILED, "crash:500"), (State.CANCELLED, "aborted:499"), (State.RESOLVED, "")]
    error = await bench.entry(f"log://turn_{TURN}/error/think/1")
    assert (error.state, error.outcome, error.body) == (State.FAILED, "crash:500", records[0].body)
    assert "secret" not in error.body
    [line] = [line for line in lines if "error_id" in line]
    assert line["error_id"] in error.body


async def test_a_crash_of_a_tool_that_a_client_calls_fails_its_command_with_an_error_entry(bench) -> None:
    # RU127, RU134
    address, ledger = bench.entries.address, bench.entries.ledger
    context = bench.context(Command("think"))

    async def found(_project) -> Placement:
        return Placement(context.workspace, context.shell, "")

    hubs = Hubs("o", ledger, ExecutorSettings())
    tools, hooks = {**TOOLS, "think": Crashing()}, Hooks(new_registry())
    calls = ToolCalls(ledger, tools, found, hooks, hubs, 8, "bench", ToolCatalogue())
    with logged("info") as lines:
        record = await calls.call(ClientCommand(address, Command("think", body="Hm."), ALICE, "1"))
    await hubs.close()

    assert (record.state, record.outcome) == (State.FAILED, "crash:500")
    error = await bench.entry(record.path.replace("/think/", "/error/think/"))
    assert (error.state, error.outcome, error.body) == (State.FAILED, "crash:500", record.body)
    assert "secret" not in error.body
    [line] = [line for line in lines if "error_id" in line]
    assert line["error_id"] in error.body
