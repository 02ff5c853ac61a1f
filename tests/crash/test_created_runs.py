"""A service is killed around a call that makes a run: the task is there once and is worked on, a document whole or not at all."""

import asyncio
import json
import sqlite3
from contextlib import closing

import pytest
from turnwright.types.v1 import session_command_pb2, settings_pb2

from contract.store.harness import SECRET
from crash.stack import ENDURING, Stack, insisted, until_ended
from turnwright_client import Client
from turnwright_core.errors import TurnwrightError

pytestmark = pytest.mark.asyncio

REPLY = '<update status="200">All is done.</update>'


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    made = Stack(tmp_path_factory.mktemp("stack"), "", purge_after_s=0.1, purge_every_s=0.1)
    asyncio.run(made.start())
    yield made
    made.close()


async def test_a_task_whose_executor_is_killed_is_there_once(stack):
    await stack.add_model("m", REPLY, REPLY)
    executor = stack.lives["executor0"]
    settings = settings_pb2.LoopSettings(model="m", yolo=True)
    for point in ("before create 1", "after create 1"):
        run = point.replace(" ", "-")
        executor.kill()
        executor.start(point)
        async with Client.connect(stack.at("executor0"), SECRET, policy=ENDURING) as client:
            await insisted(client.discover)
            dying = asyncio.ensure_future(executor.ended(60))
            given = asyncio.ensure_future(
                insisted(
                    lambda run=run: client.act(stack.project, "Do it.", run=run, settings=settings, request_id=run)
                )
            )
            assert await dying
            executor.start()
            loop = await until_ended(client, await given)
            found = await insisted(lambda run=run: client.get_run(stack.project, run))
        assert (loop.status, loop.turns) == (200, 1)
        assert [(one.sequence, one.status) for one in found.loops] == [(1, 200)]
    assert stack.complaints() == {}


BODY = "".join(f"{number:x}\n" for number in range(40_000))
ENTRIES = 8


def text():
    """A document that is written in several transactions, most of them before its last entry has come."""
    entries = [
        {
            "path": f"known://{number}",
            "body": BODY,
            "body_size_bytes": len(BODY),
            "attributes_json": "{}",
            "visibility": "VISIBILITY_VISIBLE",
            "state": "STATE_RESOLVED",
            "writer": "TIER_MODEL",
            "position": number,
            "write_count": 1,
            "revision": number,
        }
        for number in range(1, ENTRIES + 1)
    ]
    document = {"schema_version": 1, "run": {"run": "copy"}, "entries": [{"entry": one} for one in entries]}
    return json.dumps({**document, "complete": True}).encode()


def asked(stack, statement):
    with closing(sqlite3.connect(stack.root / "home" / "turnwright.db", timeout=60)) as connection, connection:
        return connection.execute(statement).fetchall()


def versions(stack):
    return asked(stack, "SELECT count(*) FROM versions")[0][0]


async def import_and_kill(stack, client, name, **fields):
    """Kill a service while a document comes in of which something is written."""
    whole, before, is_killed = text(), versions(stack), asyncio.Event()
    last = len(whole) - len(BODY) // 2

    async def parts():
        for begin in range(0, last, 500_000):
            yield whole[begin : min(begin + 500_000, last)]
        await is_killed.wait()
        yield whole[last:]

    sent = asyncio.ensure_future(client.import_run(stack.project, parts(), **fields))
    while versions(stack) == before and not sent.done():  # noqa: ASYNC110 - another process writes them
        await asyncio.sleep(0.05)
    stack.lives[name].kill()
    is_killed.set()
    with pytest.raises(TurnwrightError):
        await sent
    stack.lives[name].start()
    await insisted(client.discover)


async def whole_again(stack, client, **fields):
    async def part():
        for begin in range(0, len(whole), 500_000):
            yield whole[begin : begin + 500_000]

    whole = text()
    return await insisted(lambda: client.import_run(stack.project, part(), **fields))


async def listed(client, project):
    return {run.run async for run in client.list_runs(project)}


async def test_a_document_is_there_whole_or_not_at_all_and_can_be_sent_again(stack):
    # RT01, RC08
    async with Client.connect(stack.at("executor0"), SECRET, policy=ENDURING) as client:
        shown = await insisted(lambda: listed(client, stack.project))
        for name in ("store0", "executor0"):
            await import_and_kill(stack, client, name, run=name, request_id=name)
            assert await insisted(lambda: listed(client, stack.project)) == shown
            made = await whole_again(stack, client, run=name, request_id=name)
            entries = [one async for one in client.list_entries(stack.project, name)]
            assert (made.run.run, made.skipped, len(entries)) == (name, 0, ENTRIES)
            shown.add(name)
        await import_and_kill(stack, client, "store0", staged=True)
        assert await insisted(lambda: listed(client, stack.project)) == shown
        made = await whole_again(stack, client, staged=True)
        back = session_command_pb2.RestoreFromTrajectory(staged_id=made.staged_id)
        answer = await client.submit(stack.project, "store0", restore_from_trajectory=back)
        assert answer.rewound.entries_opened == ENTRIES
    # As if the time had passed of the staged document, and of what the broken imports have left.
    assert asked(stack, "SELECT count(*) FROM runs WHERE removed_ms > 0") != [(0,)]
    asked(stack, "UPDATE runs SET removed_ms = 1 WHERE removed_ms > 0")
    while asked(stack, "SELECT count(*) FROM runs WHERE removed_ms > 0") != [(0,)]:  # noqa: ASYNC110 - the same
        await asyncio.sleep(0.05)
