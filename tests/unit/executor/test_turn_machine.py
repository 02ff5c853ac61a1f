"""The tables that move a turn, and turns that are killed anywhere and taken up again. Architecture 11; RU005, RU132."""

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import count, product
from pathlib import Path

import pytest
import pytest_asyncio
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from turnwright.projects.v1 import project_service_pb2, project_service_pb2_grpc
from turnwright.proposals.v1 import proposal_service_pb2, proposal_service_pb2_grpc
from turnwright.store.v1 import queue_pb2, store_service_pb2_grpc
from turnwright.types.v1 import settings_pb2
from turnwright_values.store import EndTurnRequest, NextTurn
from turnwright_values.types import ClientToolEffect, Loop, LoopSettings, Mode, QuestionEffect, State, TurnRequest

from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.runs import RUNNING
from turnwright_executor.domain.addresses import RunAddress, TurnAddress
from turnwright_executor.domain.command_record import CommandRecord, Decision, DecisionKind, Done, Stage, failed
from turnwright_executor.domain.effects import CallEffect, EffectClass
from turnwright_executor.domain.endings import ABORT
from turnwright_executor.hooks.chains import Hooks
from turnwright_executor.hooks.registry import new_registry
from turnwright_executor.peers.store import StoreLedger
from turnwright_executor.tools.contract import Proposed
from turnwright_executor.turn.accepting import Grants, Proposals
from turnwright_executor.turn.commands import CommandSteps, DispatchScope, tool_context
from turnwright_executor.turn.driver import Driver
from turnwright_executor.turn.machine import COMMAND, LAST, Action, LocalStage, Step, TurnState, next_step
from turnwright_executor.turn.records import new_record_write
from turnwright_executor.turn.unsaved import UnsavedState, state_of
from turnwright_executor.turn.write_buffer import WriteBuffer
from turnwright_executor.wire.command_records import record_from_entry
from turnwright_grammar.reply import Command

from .bench import served_store

EFFECT = CallEffect({"n": 1})
PURE, IDEMPOTENT, OUTSIDE = EffectClass.PURE, EffectClass.IDEMPOTENT, EffectClass.OUTSIDE

# Each row of the tables, written down once more: what stands in architecture 11.
AT_STAGE = {
    (Stage.RECORDED, LocalStage.NOTHING): Action.PREPARE,
    (Stage.RECORDED, LocalStage.UNDECIDED): Action.PROPOSE,
    (Stage.RECORDED, LocalStage.GRANTED): Action.ACCEPT,
    (Stage.RECORDED, LocalStage.CLEARED): Action.MARK,
    (Stage.ACCEPTED, LocalStage.NOTHING): Action.ACCEPT,
    (Stage.ACCEPTED, LocalStage.UNDECIDED): Action.ACCEPT,
    (Stage.ACCEPTED, LocalStage.GRANTED): Action.ACCEPT,
    (Stage.ACCEPTED, LocalStage.CLEARED): Action.MARK,
    (Stage.DISPATCHED, LocalStage.MARKED): Action.PERFORM,
    (Stage.DISPATCHED, LocalStage.DONE): Action.SETTLE,
    **{(Stage.PROPOSED, local): Action.PARK for local in LocalStage},
    **{(Stage.ASKED, local): Action.PARK for local in LocalStage},
    **{(Stage.ANSWERED, local): Action.ANSWER for local in LocalStage},
}
OF_CLASS = {
    (Stage.DISPATCHED, PURE, LocalStage.NOTHING): Action.MARK,
    (Stage.DISPATCHED, IDEMPOTENT, LocalStage.NOTHING): Action.MARK,
    (Stage.DISPATCHED, OUTSIDE, LocalStage.NOTHING): Action.INDETERMINATE,
    (Stage.DISPATCHED, OUTSIDE, LocalStage.CLEARED): Action.MARK,
}


NOT_BEGUN = (Stage.RECORDED, Stage.PROPOSED, Stage.ACCEPTED)
SOMEBODY_TELLS = {Stage.ASKED: Action.INDETERMINATE, Stage.ANSWERED: Action.ANSWER}
LAST_OF_CLASS = {PURE: Action.CANCEL, IDEMPOTENT: Action.COMPARE, OUTSIDE: Action.INDETERMINATE}


def last(stage, kind, local):
    """What is told of a command when its loop ends: cancelled only if it has not happened. C63."""
    if local is LocalStage.DONE:
        return Action.SETTLE
    if stage in NOT_BEGUN:
        return Action.CANCEL
    if stage is Stage.DISPATCHED:
        is_not_started = kind is OUTSIDE and local in (LocalStage.CLEARED, LocalStage.MARKED)
        return Action.CANCEL if is_not_started else LAST_OF_CLASS[kind]
    return SOMEBODY_TELLS[stage]


def record(effect_class=OUTSIDE, path="log://turn_1/act/1", tool="act", **more) -> CommandRecord:
    return CommandRecord(path, tool, "", Command(tool), 0, effect_class, **more)


def test_the_table_of_commands_says_what_the_architecture_says():
    expected = {(stage, kind, local): action for (stage, local), action in AT_STAGE.items() for kind in EffectClass}
    assert dict(COMMAND) == expected | OF_CLASS


def test_the_table_of_endings_says_of_every_command_what_is_known_of_it():
    open_stages = [stage for stage in Stage if stage is not Stage.SETTLED]
    assert dict(LAST) == {cell: last(*cell) for cell in product(open_stages, EffectClass, LocalStage)}


ACCEPTED = Decision(DecisionKind.ACCEPTED)


@pytest.mark.parametrize(
    ("kept", "stage"),
    [
        ({}, Stage.RECORDED),
        ({"effect": EFFECT}, Stage.RECORDED),
        ({"effect": EFFECT, "state": State.PROPOSED}, Stage.PROPOSED),
        ({"effect": QuestionEffect("?"), "interrupted": EFFECT, "state": State.PROPOSED}, Stage.ASKED),
        ({"effect": ClientToolEffect(), "state": State.PROPOSED}, Stage.ASKED),
        ({"effect": EFFECT, "decision": ACCEPTED}, Stage.ACCEPTED),
        ({"effect": EFFECT, "decision": Decision(DecisionKind.REJECTED)}, Stage.RECORDED),
        ({"effect": QuestionEffect("?"), "interrupted": EFFECT, "decision": ACCEPTED}, Stage.ANSWERED),
        ({"effect": EFFECT, "decision": ACCEPTED, "is_dispatched": True}, Stage.DISPATCHED),
        ({"state": State.RESOLVED}, Stage.SETTLED),
        ({"state": State.FAILED, "effect": EFFECT, "decision": Decision(DecisionKind.REJECTED)}, Stage.SETTLED),
        ({"state": State.CANCELLED, "is_dispatched": True}, Stage.SETTLED),
    ],
)
def test_a_record_says_how_far_its_command_came(kept, stage):
    assert record(**kept).stage is stage


# The flags of a state, in the order of the columns, and what comes next.
LOOP_ROWS = [
    # is_over, ending, is_placed, turn, is_recorded, is_assembled, is_replied
    ((True, ABORT, True, 1, True, True, True), Action.STOP),
    ((False, ABORT, True, 1, True, True, True), Action.END),
    ((False, ABORT, False, 0, False, False, False), Action.END),
    ((False, None, False, 1, True, False, False), Action.PLACE),
    ((False, None, True, 0, False, False, False), Action.BEGIN),
    ((False, None, True, 1, False, False, False), Action.ASSEMBLE),
    ((False, None, True, 1, False, False, True), Action.ASSEMBLE),
    ((False, None, True, 1, False, True, False), Action.GENERATE),
    ((False, None, True, 1, False, True, True), Action.RECORD),
    ((False, None, True, 1, True, True, True), Action.JUDGE),
]


@pytest.mark.parametrize(("flags", "action"), LOOP_ROWS, ids=[str(number) for number in range(len(LOOP_ROWS))])
def test_a_loop_goes_on_where_its_turn_stands(flags, action):
    over, ending, placed, turn, recorded, assembled, replied = flags
    state = TurnState(
        is_over=over, ending=ending, is_placed=placed, turn=turn, is_recorded=recorded, is_assembled=assembled,
        is_replied=replied,
    )  # fmt: skip
    assert next_step(state) == Step(action)


@pytest.mark.parametrize(
    ("is_over", "state", "action"),
    [
        (False, State.RECORDED, Action.PREPARE),
        (False, State.RESOLVED, Action.FLUSH),
        (True, State.RESOLVED, Action.STOP),
    ],
)
def test_a_client_s_command_is_carried_out_and_made_durable(is_over, state, action):
    one = record(state=state)
    called = TurnState(is_call=True, is_over=is_over, is_recorded=True, records={one.path: one})
    assert next_step(called).action is action


@pytest.mark.parametrize(
    ("first", "tool", "action"),
    [
        (State.RESOLVED, "act", Action.PREPARE),
        (State.FAILED, "act", Action.CANCEL),
        (State.CANCELLED, "act", Action.CANCEL),
        (State.FAILED, "update", Action.PREPARE),
    ],
)
def test_behind_a_command_that_failed_only_an_update_is_carried_out(first, tool, action):
    one, other = record(path="a", state=first), record(path="b", tool=tool)
    state = TurnState(is_placed=True, turn=1, is_recorded=True, records={"a": one, "b": other})
    assert next_step(state) == Step(action, "b")


def test_a_rejection_is_reported_once():
    one = record(state=State.FAILED, effect=EFFECT, decision=Decision(DecisionKind.REJECTED))
    state = TurnState(is_placed=True, turn=1, is_recorded=True, records={one.path: one})
    assert next_step(state) == Step(Action.REJECT, one.path)
    state.announced.add(one.path)
    assert next_step(state) == Step(Action.JUDGE)


# ---- Turns that are killed anywhere


class KilledError(BaseException):
    """The process has ended."""


@dataclass
class Life:
    """Ends the process at the n-th moment that is asked about, or does something else there; 0: never."""

    left: int = 0
    end: Callable[[], None] | None = None

    def moment(self) -> None:
        self.left -= 1
        if self.left == 0:
            if self.end is None:
                raise KilledError
            self.end()


class MortalLedger(StoreLedger):
    """The store; before and after each write the process may end."""

    life = Life()

    async def write(self, *arguments, **named):
        self.life.moment()
        await asyncio.sleep(0)
        ack = await super().write(*arguments, **named)
        self.life.moment()
        return ack


@dataclass
class Acting:
    """A tool that acts on the world, as the command says."""

    name: str
    effect_class: EffectClass
    life: Life
    world: list[str] = field(default_factory=list)

    async def prepare(self, command, context):
        match command.attributes["does"]:
            case "settle":
                return Done("Settled.")
            case "fail":
                return failed("no:400", "It fails.")
            case does:
                return Proposed(EFFECT, "It wants to.", needs_decision=does == "ask")

    async def perform(self, effect, command, context):
        assert effect == EFFECT
        self.life.moment()
        self.world.append(context.record_path)
        self.life.moment()
        return Done("Done.")


class TurnOfCommands(CommandSteps):
    """The steps of a turn whose reply is recorded, up to its verdict. What is stored and what is held are one."""

    def __init__(self, scope, state, ledger, address) -> None:
        super().__init__(scope, state)
        self._ledger, self._address = ledger, address

    async def perform(self, state, step) -> None:
        if step.path:
            await super().perform(state, step)
        else:
            # What a loop's turn does once its commands are settled.
            await self._flush()
        if not self.buffer.writes():
            stored = {entry.path: entry for entry in await self._ledger.get_entries(self._address, list(state.records))}
            for path, held in state.records.items():
                if state.local_stages.get(path) not in (
                    LocalStage.UNDECIDED,
                    LocalStage.GRANTED,
                    LocalStage.CLEARED,
                ):
                    assert record_from_entry(stored[path]) == held


class Nobody:
    """No watcher."""

    def progress(self, *_):
        pass

    def stream(self, *_):
        pass

    async def caught_up(self, _):
        pass

    async def ended(self, _):
        await asyncio.Event().wait()


@dataclass
class World:
    """A store, and the runs that are made in it."""

    peer: object
    project: str
    numbers: count = field(default_factory=count)

    async def ended(self, commands, decisions, kills, *, yolo, end=None):
        """What became of a turn's commands in the end, and how often each was carried out.

        At the moments of `kills` the process ends, or `end` is called with the driver and its task.
        """
        stub = store_service_pb2_grpc.StoreServiceStub(self.peer.channel)
        life, known = Life(), UnsavedState(1)
        # What the store does, it does in calls to it.
        met = Life() if end is lose_store else life
        tools = {name: Acting(name, kind, met) for name, kind in zip("poi", (PURE, OUTSIDE, IDEMPOTENT), strict=True)}
        address = RunAddress(self.project, f"r{next(self.numbers)}")
        ledger = MortalLedger(self.peer, "me", "here:1")
        await self._begun(stub, ledger, address, commands, yolo=yolo)
        decisions, kills = iter(decisions), iter(kills)
        while True:
            ledger.life = Life()
            claim = await ledger.claim(address)
            state = state_of(claim, known, 10_000)
            state.is_placed = True
            scope = self._scope(ledger, address, claim, state, tools, known)
            ledger.life = life
            life.left = next(kills, 0)
            driver = Driver(state, TurnOfCommands(scope, state, ledger, address))
            driving = asyncio.ensure_future(driver.drive())
            life.end = end and partial(end, driver, driving)
            try:
                parked = await driving is Action.PARK
            except TurnwrightError:
                # The process has not ended.
                continue
            except (KilledError, asyncio.CancelledError):
                known = UnsavedState(1)
                continue
            if not parked:
                done = Counter(path for tool in tools.values() for path in tool.world)
                return list(state.records.values()), done
            await self._decided(address, state, accept=next(decisions, True))

    async def _begun(self, stub, ledger, address, commands, *, yolo) -> None:
        await self.peer.call(
            stub.EnqueueLoop,
            queue_pb2.EnqueueLoopRequest(
                project=address.project,
                run=address.run,
                prompt="go",
                settings=settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, model="m", yolo=yolo),
                run_settings=settings_pb2.RunSettings(model="m"),
            ),
        )
        claim = await ledger.claim(address)
        first = NextTurn(TurnRequest("m", "scripted/m", 8192, 0.0, ()), ())
        await ledger.end_turn(address, claim.epoch, EndTurnRequest(turn=0, next=first))
        kinds = {"p": PURE, "o": OUTSIDE, "i": IDEMPOTENT}
        records = [
            CommandRecord(f"log://turn_1/{tool}/{number}", tool, "", Command(tool, {"does": does}), number, kinds[tool])
            for number, (tool, does) in enumerate(commands)
        ]
        await ledger.write(address, claim.epoch, [new_record_write(one) for one in records])

    def _scope(self, ledger, address, claim, state, tools, known) -> DispatchScope:
        async def confirm() -> None:
            pass

        loop, publisher = Loop(1, LoopSettings(Mode.ACT), "go", RUNNING), Nobody()
        grants = Grants(claim.run, claim.rules, partial(ledger.get_run_and_rules, address))
        buffer = WriteBuffer(ledger, address, claim.epoch, 1, 1, state.records)
        return DispatchScope(
            context=tool_context(loop, 1, buffer, None, None, publisher),
            publisher=publisher,
            buffer=buffer,
            tools=tools,
            proposals=Proposals(Hooks(new_registry()), TurnAddress(*address_of(address), 1, 1), grants),
            grants=grants,
            confirm=confirm,
            allows_network=lambda _: False,
            asks_indeterminate=False,
            outside_results=known.outside_results,
            unstarted=known.unstarted,
        )

    async def _decided(self, address, state, *, accept) -> None:
        [path] = [path for path, one in state.records.items() if one.stage is Stage.PROPOSED]
        decision = {"accept" if accept else "reject": {}}
        request = proposal_service_pb2.ResolveProposalRequest(
            project=address.project, run=address.run, path=path, **decision
        )
        stub = proposal_service_pb2_grpc.ProposalServiceStub(self.peer.channel)
        await self.peer.call(stub.ResolveProposal, request)


def address_of(address: RunAddress) -> tuple[str, str]:
    return address.project, address.run


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def world(tmp_path_factory):
    folder: Path = tmp_path_factory.mktemp("machine")
    async with served_store(folder) as peer:
        stub = project_service_pb2_grpc.ProjectServiceStub(peer.channel)
        wanted = project_service_pb2.InitProjectRequest(
            root=str(folder), workspace_id="3f0c0ac7-4f3f-4a39-9d0c-0c6f4f1f2a11"
        )
        yield World(peer, (await peer.call(stub.InitProject, wanted)).project.name)


COMMANDS = st.lists(
    st.tuples(st.sampled_from("poi"), st.sampled_from(["settle", "fail", "act", "ask"])), min_size=1, max_size=4
)


@pytest.mark.asyncio(loop_scope="module")
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    commands=COMMANDS,
    decisions=st.lists(st.booleans(), max_size=4),
    kills=st.lists(st.integers(1, 12), max_size=4),
    yolo=st.booleans(),
)
async def test_a_turn_that_is_killed_anywhere_ends_as_if_it_had_not_been(world, commands, decisions, kills, yolo):
    """Or an outside effect of which nobody knows is told as that; it happens once at most, whatever comes."""
    whole, _ = await world.ended(commands, decisions, (), yolo=yolo)
    cut, done = await world.ended(commands, decisions, kills, yolo=yolo)
    broken = False
    for one, other in zip(cut, whole, strict=True):
        if one.effect_class is OUTSIDE:
            assert done[one.path] <= 1
        if broken:
            assert one.outcome == "aborted:499"
            assert done[one.path] == 0
        elif one.outcome == "indeterminate:500":
            assert one.effect_class is OUTSIDE
            broken = True
        else:
            assert (one.state, one.outcome, one.body) == (other.state, other.outcome, other.body)
            assert done[one.path] >= (one.body == "Done.")


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("tool", "moment"), list(product("poi", range(1, 9))))
async def test_a_kill_at_each_moment_of_an_effect_leaves_one_outcome(world, tool, moment):
    [one], done = await world.ended([(tool, "act")], (), [moment], yolo=True)
    is_unknown = one.outcome == "indeterminate:500"
    assert is_unknown or (one.state, one.body) == (State.RESOLVED, "Done.")
    assert not is_unknown or tool == "o"
    assert done[one.path] in ((0, 1) if tool == "o" else (1, 2))


def leave(driver, driving):
    """End the process as SIGTERM does."""
    if not driver.stop_after_effect():
        driving.cancel()


def lose(_driver, driving):
    """Stop the work as the loss of its lease does."""
    driving.cancel()


def lose_store(_driver, _driving):
    """The store is being restarted."""
    raise fault(Reason.SERVICE_UNAVAILABLE, "It is restarted.", service="store", address="here:1")


ACTS = [("o", "act"), ("o", "act"), ("o", "settle"), ("o", "act")]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("end", [leave, lose, lose_store])
@pytest.mark.parametrize("yolo", [True, False])
async def test_no_effect_is_in_doubt_after_a_restart_at_any_moment(world, end, yolo):
    """Each effect happens once, and its result is known, whether or not the store has written what it did not answer."""
    commands = ACTS if yolo else [("o", "ask"), *ACTS]
    for moment in range(1, 12):
        kills = [moment] if end is leave else [moment, moment]
        records, done = await world.ended(commands, (), kills, yolo=yolo, end=end)
        told = [(one.state, one.outcome, done[one.path]) for one in records]
        assert told == [(State.RESOLVED, "", int(one.body == "Done.")) for one in records], moment
