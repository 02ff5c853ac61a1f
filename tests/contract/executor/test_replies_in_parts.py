"""Replies as people read them, in watches, snapshots and lists: prose and calls, and the model's own text on request."""

from __future__ import annotations

import asyncio
import contextlib
import json

import pytest
from turnwright.types.v1 import message_pb2, session_command_pb2, settings_pb2

from contract.executor.replicas import eventually, two_executors
from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from contract.executor.watcher import kind
from turnwright_client import RunView

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
SET = '<set path="known://n">\nNote & note.\n</set>'
REPLY = f"I note it.\n\n{SET}\n\nThat is all I do."
PROSE = "I note it.\n\n\n\nThat is all I do."
TAGS = ("<set", "</set", "<update", "</update")


class Reader:
    """A client that prints a conversation, by what any language's stub has."""

    def __init__(self) -> None:
        self.events = []
        self.text, self.calls = "", []

    def read(self, event) -> None:
        self.events.append(event)
        if kind(event) == "stream_started":
            self.text, self.calls = "", []
        for delta in event.stream_delta.deltas:
            match delta.WhichOneof("change"):
                case "append_content":
                    self.text += delta.append_content
                case "begin_call":
                    assert delta.begin_call.index == len(self.calls)
                    self.calls.append([delta.begin_call.name, "", False])
                case "grow_call":
                    self.calls[delta.grow_call.index][1] += delta.grow_call.arguments
                case "end_call":
                    self.calls[delta.end_call.index][2] = True
                case "take_back":
                    self.text = self.text[: len(self.text) - delta.take_back.chars]
                    del self.calls[delta.take_back.calls :]


async def read(services, client, after=None, *, raw=False, until="completed") -> Reader:
    """Everything up to the end of the run's loop."""
    reader = Reader()
    async with contextlib.aclosing(client.watch(services.project, "r", after, raw_replies=raw)) as events:
        async for event in events:
            reader.read(event)
            if kind(event) == "run_state" and event.run_state.loop.end_time.seconds:
                return reader
    raise AssertionError("the watch ended")


def bodies(events) -> list[str]:
    return [
        event.message_added.entry.body
        for event in events
        if kind(event) == "message_added" and event.message_added.entry.scheme == "assistant"
    ]


def first_reply(reader: Reader) -> Reader:
    """What was told up to the end of the first reply."""
    of_first = Reader()
    for event in reader.events:
        of_first.read(event)
        if kind(event) == "message_added" and event.message_added.entry.path == "assistant://1":
            return of_first
    raise AssertionError("there is none")


async def test_a_watch_has_prose_and_calls_or_the_text_of_the_model_with_the_same_numbers(services) -> None:
    services.script(REPLY, DONE)
    queued = await services.act()
    shown, raw = await asyncio.gather(
        read(services, services.client, queued.cursor), read(services, services.client, queued.cursor, raw=True)
    )
    # The instructions of the runtime name tags.
    told = [str(event) for event in shown.events if event.message_added.entry.scheme != "instructions"]
    assert not [one for one in told if any(tag in one for tag in TAGS)]
    assert first_reply(shown).text == PROSE
    [[name, arguments, has_ended]] = first_reply(shown).calls
    assert (name, json.loads(arguments), has_ended) == (
        "set", {"path": "known://n", "body": "\nNote & note.\n"}, True,
    )  # fmt: skip
    assert first_reply(raw).text == REPLY
    assert first_reply(raw).calls == []
    assert bodies(shown.events) == [PROSE, ""]
    assert bodies(raw.events) == [REPLY, DONE]
    numbers = [[event.cursor.seq for event in one.events if kind(event) != "heartbeat"] for one in (shown, raw)]
    assert numbers[0] == numbers[1]
    # GetEntry has what the model wrote.
    assert (await services.entry("assistant://1")).body == REPLY


async def test_a_watch_resumes_in_another_form_and_a_snapshot_has_that_of_its_watch(services) -> None:
    services.script(REPLY, DONE)
    queued = await services.act()
    shown = await read(services, services.client, queued.cursor)
    begun = next(event.cursor for event in shown.events if kind(event) == "stream_started")
    assert first_reply(await read(services, services.client, begun, raw=True)).text == REPLY
    for raw, text in ((False, PROSE), (True, REPLY)):
        view = RunView()
        async with contextlib.aclosing(services.client.watch(services.project, "r", raw_replies=raw)) as events:
            async for event in events:
                view.apply(event)
                if event.snapshot.last:
                    break
        entry = view.entries["assistant://1"]
        assert (entry.body, entry.body_size_bytes) == (text, len(text))


async def test_a_snapshot_in_the_middle_of_a_reply_goes_on_in_its_form(services) -> None:
    (services.root / "m.txt").write_text(f"=== reply chunk_chars=1 delay_ms=30 ===\n{REPLY}\n")
    await services.act()
    view, partial = RunView(), None
    async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
        async for event in events:
            view.apply(event)
            if view.partial and view.partial.reply.message().calls:
                partial = view.partial.reply.message()
                break
    assert partial is not None
    # Another one comes, and begins with a snapshot.
    late = RunView()
    async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
        async for event in events:
            late.apply(event)
            if kind(event) == "stream_finished":
                break
    assert late.partial is not None
    message = late.partial.reply.message()
    assert (message.text, [call.name for call in message.calls]) == (PROSE, ["set"])
    assert json.loads(message.calls[0].arguments)["path"] == "known://n"


async def test_what_turns_out_to_be_a_thought_is_taken_back(services) -> None:
    (services.root / "m.txt").write_text(
        f"=== reply chunk_chars=8 delay_ms=0 ===\nI could write {SET} here.\n</think>\nNo. {DONE}\n"
    )
    queued = await services.act()
    shown = first_reply(await read(services, services.client, queued.cursor))
    assert any(delta.HasField("take_back") for event in shown.events for delta in event.stream_delta.deltas)
    assert (shown.text, [name for name, *_ in shown.calls]) == ("No.", ["update"])


async def test_native_calls_begin_grow_and_end(services) -> None:
    arguments = json.dumps({"path": "known://n", "body": "Note."})
    services.script(f"I note it.\n=== call name=set id=v ===\n{arguments}", DONE)
    native = settings_pb2.RunSettings(model="m", calls=settings_pb2.CALL_STYLE_NATIVE)
    settings = settings_pb2.LoopSettings(model="m", yolo=True)
    queued = await services.client.act(services.project, "Do it.", run="r", settings=settings, run_settings=native)
    shown = first_reply(await read(services, services.client, queued.cursor))
    assert (shown.text, shown.calls) == ("I note it.", [["set", arguments, True]])
    assert not any(delta.HasField("set_tool_calls") for event in shown.events for delta in event.stream_delta.deltas)


async def test_native_calls_of_a_loop_with_tags_come_behind_the_commands_of_the_text(services) -> None:
    arguments = json.dumps({"path": "known://m"})
    services.script(f"{REPLY}\n=== call name=get id=v ===\n{arguments}", DONE)
    queued = await services.act()
    shown = first_reply(await read(services, services.client, queued.cursor))
    found = [one async for one in services.client.list_messages(services.project, "r")]
    reply = next(one for one in found if one.path == "assistant://1").message
    assert [shown.text, "".join(part.text for part in reply.parts)] == [PROSE, PROSE]
    assert [(name, ended) for name, _, ended in shown.calls] == [("set", True), ("get", True)]
    assert shown.calls[1][1] == arguments
    assert [(call.index, call.name) for call in reply.calls] == [(0, "set"), (1, "get")]
    assert [json.loads(call.arguments)["path"] for call in reply.calls] == ["known://n", "known://m"]


async def test_a_list_of_messages_splits_a_reply_as_a_native_one(services) -> None:
    services.script(REPLY, DONE)
    await services.until(await services.act())
    found = [one async for one in services.client.list_messages(services.project, "r")]
    reply = next(one for one in found if one.path == "assistant://1").message
    assert [part.text for part in reply.parts] == [PROSE]
    [call] = reply.calls
    assert (call.name, json.loads(call.arguments)) == ("set", {"path": "known://n", "body": "\nNote & note.\n"})
    [result] = [one for one in found if one.message.call_id == call.call_id]
    assert (result.message.role, result.message.tool) == (message_pb2.ROLE_TOOL, "set")
    assert result.path == call.call_id


async def test_a_reply_that_somebody_changes_is_as_they_wrote_it(services) -> None:
    services.script(REPLY, DONE)
    await services.until(await services.act())
    edited = 'As I said: <get path="a"/>'
    rewritten = session_command_pb2.UpdateMessage(message_id="assistant://1", content=edited)
    await services.client.submit(services.project, "r", update_message=rewritten)
    found = [one async for one in services.client.list_messages(services.project, "r")]
    reply = next(one for one in found if one.path == "assistant://1").message
    assert "".join(part.text for part in reply.parts) == edited


@pytest.mark.parametrize("raw", [False, True])
async def test_a_relay_has_the_form_of_its_watchers(tmp_path, monkeypatch, raw) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with two_executors(tmp_path) as (services, other, seen):
        services.script(REPLY, DONE)
        queued = await services.act()
        there = await read(services, other, queued.cursor, raw=raw)

        async def has_ended():
            return (await other.get_run(services.project, "r")).run.loop.end_time.seconds

        await eventually(has_ended)
        assert seen.of("WatchRun")
    assert first_reply(there).text == (REPLY if raw else PROSE)
