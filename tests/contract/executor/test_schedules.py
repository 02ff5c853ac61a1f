"""What happens in a run without anybody's doing: background processes, schedules, ticks. Rows RE07, RH04, OM32."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from turnwright.types.v1 import run_message_pb2, settings_pb2
from turnwright.types.v1 import session_command_pb2 as pb

from contract.executor.proposing import DONE, GO_ON, PROPOSAL, SET
from contract.executor.sessions import ACT, say, state_of
from contract.executor.watcher import Watcher, command, kind
from services import running
from turnwright_client.sessions import user_message
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio


def added(event) -> str:
    """The subkind of the event that a message adds; empty for any other."""
    entry = event.message_added.entry
    return json.loads(entry.attributes_json)["event"]["subkind"] if entry.scheme == "event" else ""


def payload(event) -> dict:
    return json.loads(event.message_added.entry.attributes_json)["event"]["payload"]


async def test_what_ends_or_is_due_meanwhile_is_told_and_interrupts_nothing(tmp_path, monkeypatch) -> None:
    # RE07: the run waits, and its queue is full
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, store_settings={"loops_queued_max": 2}) as services:
        (services.files / "a.txt").write_text("old\n")
        client, where = services.client, (services.project, "r")
        services.script(f"<sh>true</sh>{SET}{GO_ON}", DONE, DONE, DONE)
        await client.create_run(*where, settings_pb2.RunSettings(model="m"))
        async with Watcher(services) as watcher:
            await watcher.until(lambda event: kind(event) == "snapshot")
            process = await client.open_stream(*where, "sh", "make all")
            await say(
                services, "One.", settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT), until="paused"
            )
            await command(services, approve_tools=pb.ApproveTools(calls=["log://turn_1/sh/true"]))
            await watcher.until(lambda event: event.proposal_pending.proposal.path == PROPOSAL)
            for text in ("Two.", "Three."):
                await command(services, user_message=user_message(text, settings=ACT))
            with pytest.raises(TurnwrightError) as full:
                await command(services, user_message=user_message("Four.", settings=ACT))
            assert full.value.reason is Reason.QUEUE_FULL
            await client.set_schedule(*where, "nightly", every=timedelta(seconds=1), prompt="Look at the build.")
            await client.set_schedule(*where, "beat", every=timedelta(seconds=1))
            await client.append_stream(*where, process.path, 1, "built\n")
            await client.end_stream(*where, process.path, exit_code=3, duration_s=2.0)
            ended = await watcher.until(lambda event: added(event) == "process_completed")
            due = await watcher.until(lambda event: added(event) == "cron_fire")
            await watcher.until(lambda event: added(event) == "tick")
            beat = await watcher.until(
                lambda event: (
                    event.message_updated.entry.path.endswith("/tick/beat") and event.message_updated.entry.body
                )
            )
            again = await watcher.until(
                lambda event: (
                    event.message_updated.entry.path.endswith("/cron_fire/nightly") and event.message_updated.entry.body
                )
            )
            await services.restart("store")
            [first, second] = await client.list_schedules(*where)
            for name in ("nightly", "beat"):
                await client.delete_schedule(*where, name)
            assert await state_of(services) == {"paused"}
            assert [one.preview for one in await client.list_commands(*where)] == ["Two.", "Three."]
            await command(services, approve_tools=pb.ApproveTools(calls=[PROPOSAL]))
            await client.wait_loop(*where, 3)
    assert (first.schedule_id, second.schedule_id, second.prompt) == ("beat", "nightly", "Look at the build.")
    assert second.fired >= 1 <= second.next_time.seconds - second.last_time.seconds
    told_of = payload(ended)
    assert (told_of["path"], told_of["status"], told_of["exit_code"]) == (process.path, "exited", 3)
    assert payload(due)["schedule_id"] == "nightly"
    assert len({event.message_added.entry.path for event in watcher.events if added(event) == "tick"}) == 1
    assert beat
    # What comes while nobody reads is one event, with its number.
    assert len({event.message_added.entry.path for event in watcher.events if added(event) == "cron_fire"}) == 1
    told = json.loads(again.message_updated.entry.attributes_json)["event"]["payload"]
    assert (payload(due)["count"], told["count"]) == (1, told["fired"])
    assert f"{told['count']} times" in again.message_updated.entry.body
    # A command of a turn is no background process.
    assert [payload(event)["target"] for event in watcher.events if added(event) == "process_completed"] == ["make all"]
    place = watcher.events.index(ended)
    assert not any(kind(event) in ("stream_cancelled", "message_removed") for event in watcher.events[place:])


async def test_a_schedule_begins_a_loop_that_is_no_input_of_a_user(services) -> None:
    # RH04, OM32
    client, where = services.client, (services.project, "r")
    services.script(DONE, DONE, DONE, DONE)
    mine = settings_pb2.LoopSettings(model="m", yolo=True, no_web=True, mode=settings_pb2.MODE_ACT)
    await say(services, "One.", mine)
    await client.set_schedule(*where, "nightly", every=timedelta(seconds=1), prompt="Look at the build.")
    loop = await client.wait_loop(*where, 2)
    await client.delete_schedule(*where, "nightly")
    assert (loop.prompt, loop.settings.synthetic, loop.settings.no_web) == ("Look at the build.", True, True)
    assert "cron_fire" in (await services.entry("user://2")).body
    latest = (await client.get_run(*where)).run.loop.sequence
    foreign = settings_pb2.LoopSettings(model="m", yolo=True, synthetic=True, mode=settings_pb2.MODE_ASK)
    await say(services, "By a program.", foreign)
    messages = [message async for message in client.list_messages(*where)]
    prompts = [(one.kind, one.message.parts[0].text) for one in messages if one.path.startswith("prompt://")]
    user, synthetic = run_message_pb2.MESSAGE_KIND_PROMPT, run_message_pb2.MESSAGE_KIND_SYNTHETIC
    assert prompts[0] == (user, "One.")
    assert {one for one, _ in prompts[1:]} == {synthetic}
    services.script(DONE, DONE, DONE, DONE, DONE, DONE)
    two = await say(services, "", user_message=user_message("Two."))
    assert (two.loop.settings.synthetic, two.loop.settings.no_web, two.loop.settings.mode) == (False, True, mine.mode)
    assert latest >= 2
    await say(services, "By a program.", foreign)
    again = await say(services, "", regenerate=pb.Regenerate())
    assert (again.loop.prompt, again.loop.settings.synthetic) == ("Two.", False)


async def test_a_bad_schedule_is_refused_by_name(services) -> None:
    client, where = services.client, (services.project, "r")
    await client.create_run(*where, settings_pb2.RunSettings(model="m"))
    bad = {
        "schedule.cron": [
            {"cron": "61 * * * *"},
            {"cron": "* * * *"},
            {"cron": "0 0 30 2 *"},
            {"cron": "* * * * *", "every": timedelta(seconds=1)},
        ],
        "schedule.every": [{"every": timedelta(seconds=31_536_001)}],
        "schedule.prompt": [
            {"every": timedelta(seconds=1), "prompt": "  "},
            {"every": timedelta(seconds=1), "prompt": "x" * 65_537},
        ],
    }
    for field, wishes in bad.items():
        for wish in wishes:
            with pytest.raises(TurnwrightError) as refused:
                await client.set_schedule(*where, "x", **wish)
            assert refused.value.metadata["field"] == field, wish
    with pytest.raises(TurnwrightError) as refused:
        await client.set_schedule(*where, "no such/id", every=timedelta(seconds=1))
    assert refused.value.metadata["field"] == "schedule.schedule_id"
    with pytest.raises(TurnwrightError) as missing:
        await client.delete_schedule(*where, "x")
    assert missing.value.reason is Reason.ENTRY_NOT_FOUND
    yearly = await client.set_schedule(*where, "x", cron="0 3 * * 1-5", prompt="Good morning.")
    assert yearly.next_time.ToDatetime().hour == 3
    for number in range(99):
        await client.set_schedule(*where, f"x{number}", every=timedelta(seconds=86_400))
    with pytest.raises(TurnwrightError) as one_more:
        await client.set_schedule(*where, "y", every=timedelta(seconds=1))
    assert one_more.value.reason is Reason.LIMIT_EXCEEDED
    await client.set_schedule(*where, "x", every=timedelta(seconds=3600))
    assert len(await client.list_schedules(*where)) == 100
