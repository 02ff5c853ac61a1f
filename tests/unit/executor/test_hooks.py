"""The registry of hooks: events, filters, priorities, failures. Rows RU041, RU042, RU131, RU145, RU155, RU252, RU253."""

import asyncio
import threading
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
from turnwright_values.replies import ToolCall
from turnwright_values.types import CommandEffect, Mode, State

from log_lines import logged
from turnwright_core.tools import TOOL_ORDER
from turnwright_executor.domain.addresses import TurnAddress
from turnwright_executor.hooks import (
    ENTRY_RECORDING,
    PROPOSAL_ACCEPTING,
    PROPOSAL_CONTENT,
    TURN_STARTED,
    TURN_VERDICT,
    Acceptance,
    Command,
    Content,
    Hooks,
    Proposal,
    ProposedFile,
    Recording,
    RecordingContext,
    Registry,
    ReplyFacts,
    TurnFacts,
    TurnStarted,
)
from turnwright_executor.hooks.points import EVENTS, FILTERS
from turnwright_executor.hooks.registry import load_plugins, new_registry
from turnwright_executor.turn.generation import Draft
from turnwright_executor.turn.judging import judge
from turnwright_executor.turn.recording import ParsedReply, RecordingGate, new_records, read_draft
from turnwright_kit.plugin_calls import THREADS_MAX
from turnwright_kit.settings import SettingsError

from .bench import TOOLS

pytestmark = pytest.mark.asyncio

AT = TurnAddress("p", "r", 1, 1)
GET = Command("get", {"path": "a.txt"})
CONTEXT = RecordingContext(AT, Mode.ACT, TOOL_ORDER, 0)
PROPOSAL = Proposal(AT, "log://turn_1/sh/ls", "sh", Command("sh", {"command": "ls"}), CommandEffect("ls", 1.0))


def renaming(word):
    def rename(value, context):
        return value.with_command(Command("get", {"path": value.command.attributes["path"] + word}))

    return rename


async def recorded(registry: Registry, *commands: Command, mode: Mode = Mode.ACT):
    """The records of commands, as RECORD makes them."""
    tools = TOOL_ORDER if mode is Mode.ACT else tuple(name for name in TOOL_ORDER if name != "sh")
    return await new_records(RecordingGate(Hooks(registry, 0.2), TOOLS, AT, mode, tools, {}), ParsedReply(commands))


# ---- Filters


async def test_a_value_goes_through_its_filters_in_the_order_of_priorities_then_of_registration():
    registry = Registry()
    for priority, word in ((20, "c"), (5, "a"), (20, "d"), (10, "b")):
        registry.of("p").filter(ENTRY_RECORDING, renaming(word), priority)
    value = await Hooks(registry).apply(ENTRY_RECORDING, Recording(Command("get", {"path": ""})), CONTEXT)
    assert value.command.attributes["path"] == "abcd"


async def test_without_a_priority_a_filter_stands_at_10():
    registry = Registry()
    registry.of("p").filter("entry.recording", renaming("late"), 11)
    registry.of("p").filter("entry.recording", renaming("early"))
    value = await Hooks(registry).apply(ENTRY_RECORDING, Recording(Command("get", {"path": ""})), CONTEXT)
    assert value.command.attributes["path"] == "earlylate"


async def test_filters_may_be_async_plain_or_objects():
    async def of_async(value, context):
        await asyncio.sleep(0)
        return renaming("a")(value, context)

    class OfObject:
        async def __call__(self, value, context):
            return renaming("c")(value, context)

    registry = Registry().of("p")
    for one in (of_async, renaming("b"), OfObject(), partial(of_async)):
        registry.filter(ENTRY_RECORDING, one)
    value = await Hooks(registry).apply(ENTRY_RECORDING, Recording(Command("get", {"path": ""})), CONTEXT)
    assert value.command.attributes["path"] == "abca"


async def test_a_payload_cannot_be_changed_in_place():
    with pytest.raises(AttributeError):
        CONTEXT.ordinal = 5


def raises(value, context):
    raise RuntimeError("secret text")


def exits(value, context):
    raise SystemExit(3)


def returns_nothing(value, context):
    return None


def makes_an_impossible_refusal(value, context):
    return value.refused("no code", "text")


def refuses_with_a_success(value, context):
    return value.refused("well:200", "text")


def sleeps(value, context):
    time.sleep(5)


async def waits(value, context):
    await asyncio.sleep(5)


async def cancels_itself(value, context):
    raise asyncio.CancelledError


FAULTS = (
    cancels_itself,
    raises,
    exits,
    returns_nothing,
    makes_an_impossible_refusal,
    refuses_with_a_success,
    sleeps,
    waits,
)


@pytest.mark.parametrize("fault", FAULTS)
async def test_a_recording_filter_that_fails_refuses_the_command(fault):
    registry = new_registry()
    registry.of("guard").filter(ENTRY_RECORDING, fault)
    with logged() as lines:
        [record] = await recorded(registry, GET)
    assert (record.state, record.outcome) == (State.FAILED, "hook_failed:500")
    assert "The plugin guard that checks this failed" in record.body
    assert "secret" not in record.body
    [line] = lines
    assert {key: line[key] for key in ("event", "hook", "plugin", "function")} == {
        "event": "hook_failed",
        "hook": "entry.recording",
        "plugin": "guard",
        "function": fault.__name__,
    }
    assert line["error_id"] in record.body


async def test_a_proposal_filter_that_fails_is_a_veto():
    registry = Registry().of("guard")
    registry.filter(PROPOSAL_ACCEPTING, raises)
    registry.filter(PROPOSAL_CONTENT, raises)
    hooks = Hooks(registry)
    accepting = await hooks.apply(PROPOSAL_ACCEPTING, Acceptance(), PROPOSAL)
    content = await hooks.apply(PROPOSAL_CONTENT, Content("x"), ProposedFile(PROPOSAL, "a.txt", "x"))
    assert (accepting.allow, accepting.outcome) == (False, "hook_failed:500")
    assert (content.is_refused, content.outcome) == (True, "hook_failed:500")


async def test_the_first_veto_wins_and_later_filters_do_not_run():
    asked = []
    registry = Registry().of("p")
    registry.filter(PROPOSAL_ACCEPTING, lambda value, _: value.vetoed("permission:403", "Not here."), 1)
    registry.filter(PROPOSAL_ACCEPTING, lambda value, _: asked.append("late") or Acceptance(), 2)
    value = await Hooks(registry).apply(PROPOSAL_ACCEPTING, Acceptance(), PROPOSAL)
    assert (value, asked) == (Acceptance(False, "permission:403", "Not here."), [])


async def test_the_content_of_a_proposal_can_be_overridden():
    registry = Registry().of("p")
    registry.filter(PROPOSAL_CONTENT, lambda value, context: Content(f"{context.staged}, then {value.text}"))
    value = await Hooks(registry).apply(PROPOSAL_CONTENT, Content("b"), ProposedFile(PROPOSAL, "a.txt", "a", "b"))
    assert value == Content("a, then b")


async def test_a_filter_that_takes_no_notice_of_being_cancelled_is_left_behind():
    let_go = asyncio.Event()

    async def stubborn(value, context):
        while not let_go.is_set():
            with suppress(asyncio.CancelledError):
                await let_go.wait()
        return value

    registry = Registry().of("guard")
    registry.filter(ENTRY_RECORDING, stubborn)
    async with asyncio.timeout(60):
        value = await Hooks(registry, deadline_s=0.01).apply(ENTRY_RECORDING, Recording(GET), CONTEXT)
    let_go.set()
    assert value.outcome == "hook_failed:500"


async def test_a_cancelled_turn_cancels_the_filter_it_waits_for():
    ended = asyncio.Event()

    async def waiting(value, context):
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    registry = Registry().of("p")
    registry.filter(TURN_VERDICT, waiting)
    turn = asyncio.create_task(Hooks(registry).apply(TURN_VERDICT, None, None))
    await asyncio.sleep(0.01)
    turn.cancel()
    with pytest.raises(asyncio.CancelledError):
        await turn
    assert ended.is_set()


async def test_a_plain_filter_does_not_block_the_event_loop():
    gate = threading.Event()
    registry = Registry().of("p")
    registry.filter(ENTRY_RECORDING, lambda value, context: value if gate.wait(60) else None)
    waiting = asyncio.create_task(Hooks(registry).apply(ENTRY_RECORDING, Recording(GET), CONTEXT))
    await asyncio.sleep(0.01)
    gate.set()
    assert await waiting == Recording(GET)


# ---- Recording


async def test_a_recording_filter_may_refuse_a_command():
    def no_reading(value, context):
        return value.refused("permission:403", "Ask somebody else.")

    registry = new_registry()
    registry.of("p").filter(ENTRY_RECORDING, no_reading)
    [record] = await recorded(registry, GET)
    assert (record.state, record.outcome, record.body) == (State.FAILED, "permission:403", "Ask somebody else.")


async def test_a_recording_filter_may_give_a_command_another_form():
    registry = new_registry()
    registry.of("p").filter(ENTRY_RECORDING, renaming(".md"))
    [record] = await recorded(registry, GET)
    assert (record.state, record.path) == (State.RECORDED, "log://turn_1/get/a.txt.md")
    assert dict(record.command.attributes) == {"path": "a.txt.md"}


@pytest.mark.parametrize("priority", [-1, 10, 1000])
async def test_no_filter_brings_a_command_past_the_gate(priority):
    registry = new_registry()
    write = Command("set", {"path": "a.txt"}, "text")
    registry.of("p").filter(ENTRY_RECORDING, lambda value, context: Recording(write), priority)
    [record] = await recorded(registry, GET, mode=Mode.ASK)
    assert (record.state, record.outcome) == (State.FAILED, "permission:403")


async def test_a_refusal_of_the_gate_cannot_be_taken_back():
    registry = new_registry()
    registry.of("p").filter(ENTRY_RECORDING, lambda value, context: Recording(value.command), 1000)
    [record] = await recorded(registry, Command("nothing"))
    assert (record.state, record.outcome) == (State.FAILED, "not_found:404")


async def test_each_record_says_what_an_interruption_of_its_command_means():
    commands = [
        Command("get", {"path": "a"}),
        Command("set", {"path": "a"}, "x"),
        Command("sh", {"command": "ls"}),
        Command("update", {"status": "200"}, "Done."),
    ]
    records = await recorded(new_registry(), *commands)
    assert [record.effect_class.value for record in records] == ["pure", "idempotent", "outside", "pure"]
    assert [len(record.key) for record in records] == [0, 16, 0, 0]


# ---- Events


async def test_observers_are_told_in_order_and_what_they_return_is_ignored():
    heard = []
    registry = Registry().of("p")
    registry.on(TURN_STARTED, lambda event: heard.append(event.at.turn) or "ignored")
    hooks = Hooks(registry)
    for turn in range(5):
        hooks.emit(TURN_STARTED, TurnStarted(TurnAddress("p", "r", 1, turn)))
    await hooks.stop()
    assert heard == [0, 1, 2, 3, 4]


@pytest.mark.parametrize("fault", [RuntimeError, asyncio.CancelledError, GeneratorExit])
async def test_an_observer_that_fails_breaks_nothing_and_hears_the_next_event(fault):
    heard = []

    async def observer(event):
        heard.append(event.at.turn)
        raise fault

    registry = Registry().of("p")
    registry.on("turn.started", observer)
    hooks = Hooks(registry)
    with logged() as lines:
        for turn in (1, 2):
            hooks.emit(TURN_STARTED, TurnStarted(TurnAddress(turn=turn)))
        await hooks.stop()
    assert heard == [1, 2]
    assert [line["event"] for line in lines] == ["hook_failed", "hook_failed"]


async def test_a_plugin_that_hangs_again_and_again_takes_no_place_from_another():
    let_go = threading.Event()
    registry = Registry()
    registry.of("stuck").filter(ENTRY_RECORDING, lambda value, _: let_go.wait() and value)
    registry.of("p").filter(PROPOSAL_ACCEPTING, lambda value, _: value.vetoed("permission:403", "Not here."))
    hooks = Hooks(registry, deadline_s=2.0)
    calls = (hooks.apply(ENTRY_RECORDING, Recording(GET), CONTEXT) for _ in range(THREADS_MAX))
    stuck = await asyncio.gather(*calls)
    heard = await hooks.apply(PROPOSAL_ACCEPTING, Acceptance(), PROPOSAL)
    let_go.set()
    assert {value.outcome for value in stuck} == {"hook_failed:500"}
    assert heard.outcome == "permission:403"


async def test_a_slow_observer_delays_neither_the_teller_nor_other_observers():
    heard = asyncio.Event()

    async def slow(event):
        await asyncio.sleep(3600)

    async def quick(event):
        heard.set()

    registry = Registry().of("p")
    registry.on(TURN_STARTED, slow)
    registry.on(TURN_STARTED, quick)
    hooks = Hooks(registry, deadline_s=3600)
    hooks.emit(TURN_STARTED, TurnStarted(AT))
    async with asyncio.timeout(60):
        assert await heard.wait()
    await hooks.stop(grace_s=0.01)


async def test_events_beyond_what_an_observer_keeps_waiting_are_dropped():
    heard = []
    registry = Registry().of("p")

    async def observer(event):
        heard.append(event.at.turn)

    registry.on(TURN_STARTED, observer)
    hooks = Hooks(registry, events_max=2)
    with logged() as lines:
        for turn in range(9):
            hooks.emit(TURN_STARTED, TurnStarted(TurnAddress(turn=turn)))
        await hooks.stop()
    assert heard == [0, 1]
    assert lines[0]["event"] == "events_dropped"


# ---- Registering


@pytest.mark.parametrize("kind", ["on", "filter"])
async def test_a_hook_that_there_is_not_is_refused_with_those_there_are(kind):
    with pytest.raises(ValueError, match=r"turn\."):
        getattr(Registry(), kind)("turn.finished", print)


async def test_every_hook_can_be_named_by_its_name():
    registry = Registry().of("p")
    for name in EVENTS:
        registry.on(name, print)
    for name in FILTERS:
        registry.filter(name, lambda value, context: value)
    assert registry.plugins() == {"p": tuple(sorted([*EVENTS, *FILTERS]))}


@pytest.mark.parametrize(
    ("enabled", "word"),
    [
        ("nobody", "there is no plugin 'nobody'"),
        ("nobody", "Without an entry point, write module:function."),
        ("no_such_module:register", "No module named 'no_such_module'"),
        ("hr:register", "Set TURNWRIGHT_HOOKS=none to load no plugins. Is hr.py on PYTHONPATH?"),
        ("hr.rules:register", "to load no plugins. Is hr on PYTHONPATH?"),
        ("json.nothing:register", "to load no plugins. Is json/nothing.py on PYTHONPATH?"),
        ("json:register", "no attribute 'register'"),
        ("json:loads", "the plugin json:loads cannot be loaded"),
        ("asyncio:sleep", "a plain one is needed"),
        (":x", "not of the form module:function"),
    ],
)
async def test_a_plugin_that_cannot_be_loaded_is_reported_by_name(enabled, word):
    with pytest.raises(SettingsError, match=r"^TURNWRIGHT_HOOKS: ") as refused:
        load_plugins(enabled, "none")
    assert word in str(refused.value)


async def test_without_plugins_the_rules_alone_are_there():
    assert load_plugins("none", "none").plugins() == {}
    assert [one.name for one in load_plugins("none", "none").chain("turn.verdict")] == [
        "plain_text", "update", "refuted", "commented", "answer", "undone", "strikes", "loop_turns", "budget",
        "rejected", "expired",
    ]  # fmt: skip


async def test_halves_of_characters_that_a_model_names_are_replaced_and_those_of_a_plugin_refused():
    # RU276
    draft = Draft(calls=(ToolCall("get", '{"path": "a\\ud800b"}'),))
    reading = read_draft(draft, 9)
    [record] = await recorded(new_registry(), *reading.commands)
    assert (record.state, record.target) == (State.RECORDED, "a\N{REPLACEMENT CHARACTER}b")

    registry = new_registry()
    registry.of("p").filter(ENTRY_RECORDING, lambda value, _: value.with_command(Command("get", {"path": "\udfff"})))
    [record] = await recorded(registry, GET)
    assert record.outcome == "hook_failed:500"


async def test_the_plugin_of_the_documentation_does_what_it_says():
    page = (Path(__file__).parents[3] / "docs" / "hooks.md").read_text()
    names: dict = {}
    exec(page.partition("```python\n")[2].partition("```")[0], names)
    registry = new_registry()
    names["register"](registry.of("house_rules"))
    assert registry.plugins() == {"house_rules": ("entry.recording", "turn.completed", "turn.verdict")}

    [removal, kept] = await recorded(
        registry, Command("sh", {"command": "rm -rf build"}), Command("sh", {"command": "ls"})
    )
    assert (removal.outcome, removal.state, kept.state) == ("permission:403", State.FAILED, State.RECORDED)

    reply = ReplyFacts(any_command=True)
    ninth, tenth = (
        TurnFacts(records=(), reply=reply, errors=0, fingerprint="f", recent=(), loop_turn=n) for n in (9, 10)
    )
    hooks = Hooks(registry)
    assert (await judge(hooks, ninth)).continue_
    assert (await judge(hooks, tenth)).reason == "ten_turns"
