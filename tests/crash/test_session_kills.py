"""An executor is killed at steps of its work while a chat gets commands, each of which is repeated under its id.

Whatever was answered happened once, and what waited is carried out in its place. Rows RS08, RC10, RC11; ADR 40.
"""

import asyncio
import contextlib
import json
from datetime import timedelta

import pytest
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright.types.v1 import session_pb2, settings_pb2
from turnwright_values.types import SessionState

from contract.store.harness import SECRET
from crash.conftest import SQLITE_OR_SOAK
from crash.stack import ENDURING, Stack, insisted
from turnwright_client import Client, RunView
from turnwright_client.sessions import user_message

POINTS = (
    "before begin 1",
    "amid generate 1",
    "after write 1",
    "before end 1",
    "after end 1",
    "after end 2",
    "after release 1",
)
REPLIES = (
    '<set path="known://n">1</set><update status="102">On.</update>',
    '<update status="200">All is done.</update>',
)


@pytest.fixture(scope="module", params=SQLITE_OR_SOAK)
def stack(request, tmp_path_factory):
    """What these tests need is a stack, not one of their own."""
    databases = request.getfixturevalue("postgres") if request.param == "postgresql" else None
    url = databases.take() if databases else ""
    made = Stack(tmp_path_factory.mktemp("stack"), url)
    asyncio.run(made.start())
    yield made
    made.close()
    if databases:
        databases.give_back(url)


def commands() -> list[tuple[str, dict]]:
    settings = settings_pb2.LoopSettings(model="chat", yolo=True, mode=settings_pb2.MODE_ACT)
    return [
        ("one", {"user_message": user_message("One.", settings=settings)}),
        ("two", {"user_message": user_message("Two.")}),
        ("again", {"regenerate": pb.Regenerate()}),
        ("draft", {"set_draft": pb.SetDraft(text="Later.")}),
    ]


async def submitted(stack, client, run: str) -> list[bool]:
    """Give the run its commands; whether each was accepted before."""
    return [
        (
            await insisted(lambda name=name, kind=kind: client.submit(stack.project, run, f"{run} {name}", **kind))
        ).duplicate
        for name, kind in commands()
    ]


async def until_completed(stack, client, run: str) -> list[str]:
    """The states that are told until the last loop has ended."""
    states = []
    async with asyncio.timeout(60), contextlib.aclosing(client.watch(stack.project, run)) as events:
        async for event in events:
            state = event.runtime_updated.state or (event.snapshot.state if event.snapshot.last else 0)
            if state:
                states.append(SessionState(state).name.lower())
            if states and states[-1] == "completed":
                return states
    raise AssertionError("the watch ended")


@pytest.mark.asyncio
@pytest.mark.parametrize("point", POINTS)
async def test_commands_happen_once_wherever_the_executor_is_killed(stack, point):
    run, life = point.replace(" ", "-"), stack.lives["executor0"]
    await stack.add_model("chat", *REPLIES)
    life.kill()
    life.start(point)
    async with Client.connect(stack.at("executor0"), SECRET, policy=ENDURING) as client:
        await insisted(client.discover)
        dying = asyncio.ensure_future(life.ended(60))
        giving = asyncio.ensure_future(submitted(stack, client, run))
        assert await dying
        life.start()
        await giving
        assert await submitted(stack, client, run) == [True] * 4
        states = await until_completed(stack, client, run)
        assert "idle" not in states
        found = await insisted(lambda: client.get_run(stack.project, run))
        messages = [message async for message in client.list_messages(stack.project, run)]
        draft = await client.get_entry(stack.project, run, "draft://main")
        assert await client.list_commands(stack.project, run) == []
    loops = [(loop.prompt, loop.status) for loop in reversed(found.loops)]
    assert loops == [("One.", 200), ("Two.", 200), ("Two.", 200)]
    prompts = [one.message.parts[0].text for one in messages if one.path.startswith("prompt://")]
    assert prompts == ["One.", "Two."]
    assert draft.body == "Later."


class Watched:
    """What a watcher folds over all its connections."""

    def __init__(self, stack, run: str) -> None:
        self.view = RunView()
        self.events = []
        self._stack = stack
        self._run = run

    async def follow(self, client, *, drops_after: int = 0, stalls_s: float = 0.0) -> None:
        """Watch for ever: drop each connection after some events and come back, or stall at some."""
        while True:
            after, seen = self.view.cursor, 0
            async with contextlib.aclosing(client.watch(self._stack.project, self._run, after)) as events:
                async for event in events:
                    self.view.apply(event)
                    self.events.append(event)
                    seen += 1
                    if stalls_s and seen % 5 == 0:
                        await asyncio.sleep(stalls_s)
                    if drops_after and seen >= drops_after and (not event.HasField("snapshot") or event.snapshot.last):
                        break


@pytest.mark.asyncio
async def test_what_is_due_happens_once_and_watchers_end_alike_whatever_is_killed(stack):
    # RE03, RE07: watchers connect, stall, drop and resume while the store and the executor are killed
    run = "due"
    await stack.add_model("chat", *REPLIES * 8)
    async with Client.connect(stack.at("executor0"), SECRET, policy=ENDURING) as client:
        await insisted(client.discover)
        where = (stack.project, run)
        settings = settings_pb2.RunSettings(model="chat", yolo=True)
        await client.create_run(*where, settings)
        await client.set_schedule(*where, "work", every=timedelta(seconds=1), prompt="Go on.")
        await client.set_schedule(*where, "beat", every=timedelta(seconds=1))
        process = await client.open_stream(*where, "sh", "make all", channels=[1])
        watched = [Watched(stack, run) for _ in range(3)]
        manners = ({}, {"drops_after": 4}, {"stalls_s": 0.05})
        following = [
            asyncio.create_task(one.follow(client, **manner)) for one, manner in zip(watched, manners, strict=True)
        ]
        for name in ("store0", "executor0", "store0"):
            fired = {one.schedule_id: one.fired for one in await insisted(lambda: client.list_schedules(*where))}
            stack.lives[name].kill()
            stack.lives[name].start()
            await _fired_since(client, where, fired["work"])
        await insisted(lambda: client.end_stream(*where, process.path, exit_code=0))
        listed = await insisted(lambda: client.list_schedules(*where))
        for one in listed:
            await insisted(lambda name=one.schedule_id: client.delete_schedule(*where, name, request_id=f"{name} ends"))
        entries = [entry async for entry in client.list_entries(*where, "event://**")]
        late = Watched(stack, run)
        following.append(asyncio.create_task(late.follow(client)))
        try:
            async with asyncio.timeout(60):
                while not (late.view.cursor and late.view.state == session_pb2.SESSION_STATE_COMPLETED):  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                while any(one.view != late.view for one in watched):  # noqa: ASYNC110 - they catch up when they can
                    await asyncio.sleep(0.05)
        finally:
            for task in following:
                task.cancel()
            await asyncio.gather(*following, return_exceptions=True)
    counted = [json.loads(entry.attributes_json)["event"] for entry in entries]
    # Times that nobody read in between are one event with their count.
    fired = [(one["payload"]["fired"], one["payload"]["count"]) for one in counted if one["subkind"] == "cron_fire"]
    numbers = sorted(number for last, count in fired for number in range(last - count + 1, last + 1))
    assert numbers == list(range(1, len(numbers) + 1))
    assert len(numbers) >= 3
    assert [one["subkind"] for one in counted].count("process_completed") == 1


async def _fired_since(client, where, before: int) -> None:
    """Until the schedule has come to another time, and been read."""
    async with asyncio.timeout(60):
        while True:
            listed = {one.schedule_id: one.fired for one in await insisted(lambda: client.list_schedules(*where))}
            if listed["work"] > before:
                return
            await asyncio.sleep(0.1)
