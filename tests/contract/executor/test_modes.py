"""Modes, flags, yolo, and what watchers are told. Rows RU122, RU158, RU161-RU164, RU233, RU242-RU244, RU246-RU248."""

from __future__ import annotations

import contextlib
import json

import pytest
from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import settings_pb2

from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from turnwright_core.errors import InvalidError

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
PLANS = ("set_plan", "update_plan", "get_plan")
AGENTS = ("delegate", "wait_agents")
ALL = ("get", "env", "skill", "think", *PLANS, "set", "cp", "mv", "rm", "sh", *AGENTS, "update", "ask_user")
"""What an executor without a search engine offers."""


async def offered(services, run="r") -> tuple[str, ...]:
    """The tools that the latest turn was offered."""
    turn = (await services.client.get_run(services.project, run, turns_max=1)).turns[0]
    return tuple(turn.request.tools)


# Modes and flags --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("flags", "missing"),
    [
        ({}, set()),
        ({"no_interaction": True}, {"ask_user"}),
        ({"no_proposals": True}, {"ask_user", "env", "sh"}),
        ({"no_interaction": True, "no_proposals": True, "no_repo": True}, {"ask_user", "env", "sh"}),
    ],
)
async def test_flags_take_tools_away(services, flags, missing) -> None:
    services.script(DONE)
    await services.until(await services.act(**flags))
    assert await offered(services) == tuple(name for name in ALL if name not in missing)


async def test_search_is_offered_to_models_and_clients_only_where_an_engine_is_configured(services) -> None:
    services.script(f"<search>sqlite</search>{GO_ON}", DONE)
    loop = await services.until(await services.act())
    assert "search" not in await offered(services)
    assert "<search" not in (await services.entry("system://1")).body
    assert "search" not in {tool.name for tool in (await services.client.discover()).tools}
    # It is a command all the same, and refused: taken for prose it would end the loop.
    refused = await services.entry("log://turn_1/search/sqlite")
    assert (loop.status, loop.turns, refused.outcome) == (200, 2, "permission:403")


async def test_ask_mode_is_without_the_shell_and_its_system_message_does_not_name_it(services) -> None:
    services.script(DONE)
    await services.until(await services.ask())
    system = (await services.entry("system://1")).body
    assert await offered(services) == tuple(name for name in ALL if name != "sh")
    assert ("<sh" in system, "<get" in system) == (False, True)


async def test_a_loop_without_the_repository_sees_no_file(services) -> None:
    services.script(DONE)
    await services.until(await services.act(no_repo=True))
    paths = [entry.path async for entry in services.client.list_entries(services.project, "r")]
    assert "a.txt" not in paths
    assert "log://turn_0/repo/manifest" not in paths


# Yolo -------------------------------------------------------------------------------------------------------------------


async def test_yolo_is_an_attribute_of_the_run_that_is_off_unless_it_is_given(services) -> None:
    services.script(DONE, DONE)
    first = await services.until(await services.act(run="a", yolo=False))
    second = await services.until(await services.act(run="b", yolo=True))
    told = [json.loads((await services.entry(f"run://{run}", run)).attributes_json)["yolo"] for run in "ab"]
    assert (first.settings.yolo, second.settings.yolo, told) == (False, True, [False, True])


async def test_yolo_accepts_every_proposal_and_runs_commands_itself(services) -> None:
    command = "cat a.txt; echo said; echo wrong >&2; exit 3"
    services.script(f'<set path="a.txt">new</set>{GO_ON}', f"<sh>{command}</sh>{GO_ON}", DONE)
    loop = await services.until(await services.act())
    (record,) = [entry async for entry in services.client.list_entries(services.project, "r", "log://turn_2/sh/*")]
    channels = [entry async for entry in services.client.list_entries(services.project, "r", "sh://turn_2/*")]
    assert (loop.status, (services.files / "a.txt").read_text()) == (200, "new\n")
    assert [(channel.path[-2:], channel.body, channel.status) for channel in channels] == [
        ("_1", "new\nsaid\n", 500),
        ("_2", "wrong\n", 500),
    ]
    assert record.status >= 400
    assert not any(event.HasField("proposal_pending") for event in services.events)


async def test_a_command_that_succeeds_leaves_its_channels_at_200(services) -> None:
    services.script(f"<sh>echo said</sh>{GO_ON}", DONE)
    await services.until(await services.act())
    channels = [entry async for entry in services.client.list_entries(services.project, "r", "sh://turn_1/*")]
    assert {channel.status for channel in channels} == {200}
    assert [channel.body for channel in channels if channel.path.endswith("_1")] == ["said\n"]


async def test_a_run_without_yolo_waits_while_another_one_does_not(services) -> None:
    services.script(f'<set path="b.txt">new</set>{DONE}', DONE)
    careful = await services.act(run="careful", yolo=False)
    await services.until(careful, 202)
    services.script(f'<set path="c.txt">new</set>{DONE}', DONE)
    await services.until(await services.act(run="bold"))
    assert ((services.files / "b.txt").exists(), (services.files / "c.txt").exists()) == (False, True)


# What watchers are told -------------------------------------------------------------------------------------------------


async def test_a_watcher_is_told_of_each_command_of_the_verdict_and_of_the_end(services) -> None:
    services.script(f'<set path="known://a">1</set><get path="a.txt"/>{GO_ON}', DONE)
    await services.until(await services.act())
    told = []
    for event in services.events:
        match event.WhichOneof("event"):
            case "message_added" | "message_updated" as kind if getattr(event, kind).entry.path.startswith(
                "log://turn_1"
            ):
                told.append(getattr(event, kind).entry.path)
            case "turn_finished":
                told.append(event.turn_finished.turn.result.status)
            case "run_state":
                told.append(("run", event.run_state.run.status))
    commands = [one for one in told if isinstance(one, str)]
    verdicts = [one for one in told if isinstance(one, int)]
    assert {path.split("/")[3] for path in commands} == {"set", "get", "update"}
    assert (verdicts, told[-1]) == ([102, 200], ("run", 200))


async def test_progress_tells_of_thinking_processing_and_retrying(services) -> None:
    (services.root / "m.txt").write_text(
        f"=== error class=gateway attempts=1 ===\n=== reply delay_ms=0 ===\n<sh>true</sh>{DONE}\n"
    )
    await services.until(await services.act())
    told = [event.run_progress for event in services.events if event.HasField("run_progress")]
    phases = [one.phase for one in told]
    retry = next(one for one in told if one.phase == event_pb2.RunProgress.PHASE_RETRYING)
    assert phases.index(event_pb2.RunProgress.PHASE_THINKING) < phases.index(event_pb2.RunProgress.PHASE_RETRYING)
    assert phases[-1] == event_pb2.RunProgress.PHASE_PROCESSING
    assert (retry.turn, retry.HasField("wait")) == (1, True)


async def test_usage_is_reported_at_the_end_of_a_turn_and_not_before(services) -> None:
    services.script(f'<set path="known://a">1</set>{GO_ON}', DONE)
    await services.until(await services.act())
    started = [event.turn_started.turn for event in services.events if event.HasField("turn_started")]
    finished = [event.turn_finished.turn for event in services.events if event.HasField("turn_finished")]
    assert [turn.HasField("result") for turn in started] == [False, False]
    assert all(turn.result.usage.total_tokens > 0 and turn.result.packet_tokens > 0 for turn in finished)
    assert sum(turn.result.usage.total_tokens for turn in finished) == services.view().run.loop.usage.total_tokens


async def test_watchers_hear_of_their_own_project_only(services) -> None:
    other = services.root / "other"
    other.mkdir()
    project = (await services.client.init_project(str(other))).name
    seen = []
    async with contextlib.aclosing(services.client.watch_runs(project)) as messages:
        await anext(messages)
        await anext(messages)
        services.script(DONE)
        await services.until(await services.act(run="theirs"))
        settings = settings_pb2.RunSettings(model="m")
        await services.client.create_run(project, "ours", settings)
        async for message in messages:
            seen += [one.run.run for one in message.changed.created]
            if seen:
                break
    assert seen == ["ours"]


@pytest.mark.parametrize("call", ["start", "act", "ask"])
async def test_a_new_run_needs_a_model(services, call) -> None:
    settings = settings_pb2.LoopSettings()
    calls = {
        "start": lambda: services.client.create_run(services.project, "r", settings_pb2.RunSettings()),
        "act": lambda: services.client.act(services.project, "x", run="r", settings=settings),
        "ask": lambda: services.client.ask(services.project, "x", run="r", settings=settings),
    }
    with pytest.raises(InvalidError) as caught:
        await calls[call]()
    assert caught.value.metadata["available"] == "m"
