"""Events of a session: each kind once for each change, whole messages, snapshots. Rows RE01, RE03-RE06, RE08, RS11."""

from __future__ import annotations

import asyncio
import itertools

import pytest
from turnwright.executor.v1 import event_pb2, executor_service_pb2, executor_service_pb2_grpc, session_event_pb2
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright.types.v1 import settings_pb2
from turnwright_values.types import Entry

from contract.executor.proposing import DONE, GO_ON, PROPOSAL, SET
from contract.executor.sessions import ACT, ASKING, named, say, until_state
from contract.executor.watcher import Watcher, command, kind, snapshot
from services import SECRET, running
from turnwright_client import RunView
from turnwright_client.sessions import user_message
from turnwright_core.limits import STOCK_MESSAGE_BYTES_MAX
from turnwright_core.text import count_tokens
from turnwright_executor.watching.run_fold import RunFold, draft_usage
from turnwright_kit.peer import Peer

pytestmark = pytest.mark.asyncio

KINDS = {
    "snapshot", "stream_started", "stream_delta", "stream_finished", "message_added", "message_updated",
    "message_removed", "messages_truncated", "thread_updated", "queue_updated", "runtime_updated", "pause_required",
}  # fmt: skip
"""The events that RE01 names."""

AGAIN = "QUEUED_COMMAND_KIND_REGENERATE"
"""What waits without a preview."""


async def test_a_draft_is_told_with_what_it_would_take_of_the_window(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services:
        limits = settings_pb2.RunSettings(model="m", context_limit=20_000)
        await services.client.create_run(services.project, "r", limits)
        async with Watcher(services) as watcher:
            await command(services, set_draft=pb.SetDraft(text="Half a sent"))
            await watcher.until(lambda event: event.draft_updated.text == "Half a sent")
            await command(services, set_draft=pb.SetDraft())
            await watcher.until(
                lambda event: kind(event) == "draft_updated" and not event.draft_updated.HasField("text")
            )
            assert not watcher.told("draft_updated")[-1].HasField("usage")
            assert (await snapshot(services)).draft_usage is None
            text = "Half a sentence, and more."
            await command(services, set_draft=pb.SetDraft(text=text))
            usage = (await watcher.until(lambda event: event.draft_updated.text == text)).draft_updated.usage
        assert (usage.tokens, usage.window_tokens) == (count_tokens(text), 20_000)
        assert (await snapshot(services)).draft_usage == usage
        await services.restart("executor")
        assert (await snapshot(services)).draft_usage == usage


async def test_a_draft_with_odd_numbers_is_told_all_the_same():
    """As an earlier release kept them after what a document had said."""
    for kept, told in ((-5, 0), (7, 7), (10**15, 2**32 - 1)):
        usage = draft_usage(Entry("draft://main", attributes_json=f'{{"tokens": {kept}, "window_tokens": {kept}}}'))
        assert (usage.tokens, usage.window_tokens) == (told, told)


async def through_everything(services, watcher: Watcher) -> None:
    """A run that sees every kind of event. Who reads late is told of several changes by one event, so each waits for the one before."""

    async def queued(*previews: str) -> None:
        await watcher.until(
            lambda event: waiting(event.queue_updated) == list(previews) and kind(event) == "queue_updated"
        )

    services.script(f"{SET}{GO_ON}", DONE, DONE, f"<sh>exit 3</sh>{DONE}")
    await say(services, "One.", ASKING, until="paused")
    await command(services, set_draft=pb.SetDraft(text="Half a sent"))
    await watcher.until(lambda event: event.draft_updated.text == "Half a sent")
    await command(services, user_message=user_message("Two.", settings=ACT))
    await queued("Two.")
    late = await command(services, "late", user_message=user_message("Three.", settings=ACT))
    await queued("Two.", "Three.")
    await command(services, regenerate=pb.Regenerate())
    await queued("Two.", "Three.", AGAIN)
    await services.client.cancel_command(services.project, "r", loop=late.loop.sequence)
    await queued("Two.", AGAIN)
    patch = settings_pb2.RunSettingsPatch(temperature=0.5)
    await command(services, set_params=pb.SetParams(patch=patch))
    await watcher.until(lambda event: kind(event) == "thread_updated")
    await command(services, set_params=pb.SetParams(patch=patch))
    await command(services, set_draft=pb.SetDraft(text="Half a sent"))
    await command(services, approve_tools=pb.ApproveTools(calls=[PROPOSAL]))
    # A later loop repeats the edit, which fits no more.
    await until_state(services, "completed", "error")
    await services.client.wait_loop(services.project, "r", 4)
    await watcher.until(lambda event: kind(event) == "message_added" and event.message_added.entry.path == "prompt://1")
    await command(services, remove_message=pb.RemoveMessage(message_id="prompt://1"))
    await watcher.until(lambda event: kind(event) == "message_removed")
    revision = (await services.client.get_run(services.project, "r")).run.revision
    await command(services, truncate_messages=pb.TruncateMessages(from_index=3, expected_revision=revision))
    await watcher.until(lambda event: kind(event) == "messages_truncated")
    await command(services, set_draft=pb.SetDraft())
    await watcher.until(lambda event: kind(event) == "draft_updated" and not event.draft_updated.HasField("text"))


def waiting(told: session_event_pb2.QueueUpdated) -> list[str]:
    return [one.preview or pb.QueuedCommandKind.Name(one.kind) for one in told.commands]


async def test_each_kind_of_event_comes_once_for_each_change(services) -> None:
    # RE01, RE04, RS09
    await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
    async with Watcher(services) as watcher:
        await watcher.until(lambda event: kind(event) == "snapshot")
        await through_everything(services, watcher)
    assert {kind(event) for event in watcher.events} >= KINDS
    state = watcher.events[0].snapshot.state
    for event in watcher.events:
        if kind(event) == "runtime_updated":
            state = event.runtime_updated.state
        elif kind(event) == "run_state":
            assert event.run_state.run.state == state
    drafts = [told.text if told.HasField("text") else None for told in watcher.told("draft_updated")]
    assert drafts == ["Half a sent", None]
    [thread] = watcher.told("thread_updated")
    assert (thread.settings.temperature, thread.settings.model) == (0.5, "m")
    queues = [waiting(told) for told in watcher.told("queue_updated")]
    filled = ["Two.", "Three.", AGAIN]
    filling = queues.index(filled)
    assert queues[filling - 2 : filling + 2] == [filled[:1], filled[:2], filled, ["Two.", AGAIN]]
    assert all(one != other for one, other in itertools.pairwise(queues))
    assert queues[-1] == []
    [truncated] = watcher.told("messages_truncated")
    assert truncated.from_index == 3
    view = watcher.view()
    assert not set(truncated.paths) & set(view.entries)
    assert "prompt://1" in [told.path for told in watcher.told("message_removed")]
    assert not any("draft://" in path or "command://" in path for path in view.entries)
    assert view == await snapshot(services)


async def test_a_pause_names_its_reasons_and_ends_with_its_state(services) -> None:
    # RE06, RS09
    await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
    services.script(f"{SET}{GO_ON}", f"<sh>make  it</sh>{DONE}")
    async with Watcher(services) as watcher:
        await watcher.until(lambda event: kind(event) == "snapshot")
        await say(services, "One.", ASKING, until="paused")
        await watcher.until(lambda event: kind(event) == "pause_required")
        shown, paused = await snapshot(services), watcher.view()
        await command(services, approve_tools=pb.ApproveTools(calls=[PROPOSAL]))
        await watcher.until(lambda event: len(watcher.told("pause_required")) == 2)
        again = watcher.view()
    [first], [second] = [told.reasons for told in watcher.told("pause_required")]
    asked = session_event_pb2.PauseReason.TYPE_CONFIRMATION
    assert (first.type, first.tool, first.command, first.path) == (asked, "set", "a.txt", PROPOSAL)
    assert (second.tool, second.command) == ("sh", "make it")
    files, command_line = session_event_pb2.PauseReason.RULE_FILES, session_event_pb2.PauseReason.RULE_COMMAND
    assert (first.rule, second.rule) == (files, command_line)
    assert shown.pause_reasons == paused.pause_reasons == [first]
    assert again.pause_reasons == [second]
    left = [event for event in watcher.events if kind(event) in ("runtime_updated", "pause_required")]
    states = [named(event.runtime_updated.state) if kind(event) == "runtime_updated" else "why" for event in left]
    assert all(states[place - 1] == "paused" for place, state in enumerate(states) if state == "why")


@pytest.mark.parametrize("commands", ["", "<sh>true</sh>", '<ask_user question="Which?"/>'])
async def test_the_end_of_a_stream_is_told_before_its_message_and_that_before_the_state(services, commands) -> None:
    # RE05: whatever the reply calls, and however many writes that takes
    services.script(f"Let me see. {commands}{DONE}", DONE)
    await services.until(await services.act(), 200, 202)
    names = [kind(event) for event in services.events]
    finished = names.index("stream_finished")
    reply = next(i for i, event in enumerate(services.events) if event.message_added.entry.path == "assistant://1")
    state = names.index("runtime_updated", finished)
    assert finished < reply < state
    assert services.events[reply].message_added.entry.body.startswith("Let me see.")


async def test_a_long_message_is_whole_and_comes_before_the_state(services) -> None:
    # RE05; C50
    text = "Ein längerer Satz. " * 40_000
    (services.root / "m.txt").write_text(f"=== reply chunk_chars=65536 delay_ms=0 ===\n{text}\n{DONE}\n")
    prompt = "Lies das. " * 60_000
    await services.until(await services.act(prompt))
    names = [kind(event) for event in services.events]
    reply = next(i for i, event in enumerate(services.events) if event.message_added.entry.path == "assistant://1")
    pieces = [event for event in services.events[reply:] if event.output_appended.path == "assistant://1"]
    assert services.events[reply + 1 : reply + 1 + len(pieces)] == pieces != []
    assert names.index("stream_finished") < reply < len(names) - 1 - names[::-1].index("runtime_updated")
    assert all(event.ByteSize() < STOCK_MESSAGE_BYTES_MAX for event in services.events)
    assert len(pieces) > 1
    view, shown = services.view(), await snapshot(services)
    for one in (view, shown):
        assert one.entries["assistant://1"].body.startswith(text.strip())
        assert one.entries["prompt://1"].body == prompt
    assert view == shown


async def test_folding_any_prefix_of_a_real_run_gives_a_snapshot_taken_there(services) -> None:
    # RE08: snapshots that the hub gave while it went on, and those that its state gives at every event
    await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
    given: dict[int, RunView] = {}

    async def look() -> None:
        view = await snapshot(services)
        assert view.cursor is not None
        given[view.cursor.seq] = view

    async def look_again() -> None:
        while True:
            await look()

    class Looking(Watcher):
        async def until(self, condition):
            await super().until(condition)
            await look()

    async with Looking(services) as watcher:
        await watcher.until(lambda event: kind(event) == "snapshot")
        looking = asyncio.create_task(look_again())
        await through_everything(services, watcher)
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    state, follower = RunFold(), RunView()
    compared = 0
    for event in watcher.events:
        state.view.apply(event)
        follower.apply(event)
        if kind(event) == "snapshot" and not event.snapshot.last:
            continue
        taken = RunView().apply_all(state.snapshot(event.cursor, is_raw=True))
        assert taken == follower
        if shown := given.get(event.cursor.seq):
            assert shown == follower
            compared += 1
    assert compared > 3


async def test_a_watcher_that_stalls_is_resynchronised_in_its_stream(tmp_path, monkeypatch) -> None:
    # RE03: it reads nothing while more comes than connections and the tail hold, and then goes on with the same call
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, tail_events=16) as services:
        services.script(DONE)
        await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
        peer = Peer("executor", services.addresses["executor"], SECRET, 10.0)
        stub = executor_service_pb2_grpc.ExecutorServiceStub(peer.channel)
        request = executor_service_pb2.WatchRunRequest(project=services.project, run="r")
        view, seen = RunView(), []
        async with peer.stream(stub.WatchRun, request, None) as stream:
            view.apply(await anext(stream))
            for number in range(400):
                shown = event_pb2.Rendering(id=str(number), text="x" * 16_000)
                await services.client.notify(services.project, "r", shown)
            await services.until(await services.act())
            latest = await snapshot(services)
            async with asyncio.timeout(60):
                while view.cursor.seq < latest.cursor.seq:
                    event = await anext(stream)
                    view.apply(event)
                    seen.append(event)
        await peer.close()
    assert view == latest
    names = [kind(event) for event in seen if kind(event) != "heartbeat"]
    again = names.index("snapshot")
    assert 0 < again < 390
    numbers = [event.cursor.seq for event in seen if kind(event) != "heartbeat"]
    assert numbers[:again] == list(range(1, again + 1))
    assert numbers[again:] == list(range(numbers[again], numbers[again] + len(numbers) - again))
