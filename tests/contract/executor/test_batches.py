"""Several events in one message of a watch: for those who ask, and the same events."""

from __future__ import annotations

import asyncio

import pytest
from turnwright.executor.v1 import event_pb2, executor_service_pb2_grpc
from turnwright.executor.v1.executor_service_pb2 import WatchRunRequest, WatchRunResponse
from turnwright.types.v1.cursor_pb2 import EventCursor

from contract.executor.replicas import begun, two_executors
from services import SECRET
from turnwright_client.client import loop_in
from turnwright_core.limits import CHUNK_BYTES
from turnwright_core.runs import LOOP_ENDED
from turnwright_core.wire.run_view import events_of
from turnwright_executor.watching.events import in_batches
from turnwright_kit.peer import Peer

SLOW = "=== reply chunk_chars=8 delay_ms=30 ===\n"
TURNS = [
    f'{SLOW}A thought before <set path="known://{name}">{name}</set><get path="a.txt"/><update status="102">On.</update>\n'
    for name in "ab"
]
DONE = f'{SLOW}<update status="200">Done.</update>\n'


async def messages(address, services, after, *, batched):
    """What a watch says of a run up to its end."""
    peer = Peer("executor", address, SECRET, 10)
    watch = executor_service_pb2_grpc.ExecutorServiceStub(peer.channel).WatchRun
    request = WatchRunRequest(project=services.project, run="r", after=after, batched=batched)
    heard = []
    async with peer.stream(watch, request, 20) as stream:
        async for message in stream:
            heard.append(message)
            if any(loop and loop.status in LOOP_ENDED for loop in map(loop_in, events_of(message))):
                break
    await peer.close()
    return heard


@pytest.mark.asyncio
@pytest.mark.parametrize("at", ["the owner", "another executor"])
async def test_who_asks_for_batches_hears_the_same_events_in_fewer_messages(tmp_path, monkeypatch, at):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with two_executors(tmp_path) as (services, other, _seen):
        (services.root / "m.txt").write_text("".join([*TURNS, DONE]))
        queued = await services.act()
        await begun(services, other)
        address = services.client.address if at == "the owner" else other.address
        single, batched = await asyncio.gather(
            messages(address, services, queued.cursor, batched=False),
            messages(address, services, queued.cursor, batched=True),
        )
    batches = [message for message in batched if message.HasField("batch")]
    assert [each for message in batched for each in events_of(message)] == single
    assert not any(message.HasField("batch") for message in single)
    assert len(batched) < len(single)
    assert all(len(one.batch.events) > 1 for one in batches)
    assert all((one.cursor, one.time) == (one.batch.events[-1].cursor, one.batch.events[-1].time) for one in batches)


def event(seq: int, chars: int) -> WatchRunResponse:
    return WatchRunResponse(cursor=EventCursor(seq=seq), notice=event_pb2.Notice(text="x" * chars))


def test_a_batch_is_cut_at_the_size_of_a_chunk() -> None:
    third = CHUNK_BYTES // 3
    told = [event(1, third), event(2, third), event(3, third), event(4, 2 * CHUNK_BYTES), event(5, 1), event(6, 1)]
    made = list(in_batches(told))
    assert [[each.cursor.seq for each in events_of(message)] for message in made] == [[1, 2], [3], [4], [5, 6]]
    assert [each for message in made for each in events_of(message)] == told
    assert list(in_batches([])) == []
