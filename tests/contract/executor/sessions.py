"""What the tests of chats share: saying something, and waiting until a run is at a state."""

from __future__ import annotations

import contextlib

from turnwright.types.v1 import settings_pb2
from turnwright_values.types import SessionState

from turnwright_client.sessions import user_message

ACT = settings_pb2.LoopSettings(model="m", yolo=True, mode=settings_pb2.MODE_ACT)
ASKING = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT)
RESTING = ("idle", "completed", "error")


def named(state) -> str:
    return SessionState(state).name.lower()


async def until_state(services, *states: str, cursor=None, run: str = "r") -> str:
    """Watch from the cursor on until the run is at one of the states; the events are kept."""
    async with contextlib.aclosing(services.client.watch(services.project, run, cursor)) as events:
        async for event in events:
            services.events.append(event)
            if event.HasField("runtime_updated") and named(event.runtime_updated.state) in states:
                return named(event.runtime_updated.state)
            if event.HasField("snapshot") and event.snapshot.last and named(event.snapshot.state) in states:
                return named(event.snapshot.state)
    raise AssertionError("the watch ended")


async def say(services, text: str, settings=None, *, until: str = "", run: str = "r", **kind):
    """Send a message, or another command, and wait for what it comes to."""
    kind = kind or {"user_message": user_message(text, settings=settings)}
    answer = await services.client.submit(services.project, run, **kind)
    await until_state(services, *((until,) if until else RESTING), cursor=answer.event_cursor, run=run)
    return answer


async def state_of(services, run: str = "r") -> set[str]:
    """What GetRun, ListRuns and a new watch tell."""
    one = (await services.client.get_run(services.project, run)).run.state
    listed = [each.state async for each in services.client.list_runs(services.project) if each.run == run]
    async with contextlib.aclosing(services.client.watch(services.project, run)) as events:
        async for event in events:
            if event.HasField("snapshot") and event.snapshot.last:
                return {named(one), *map(named, listed), named(event.snapshot.state)}
    raise AssertionError("the watch ended")


def told(services) -> list[str]:
    """The states that were told, in order."""
    return [named(event.runtime_updated.state) for event in services.events if event.HasField("runtime_updated")]
