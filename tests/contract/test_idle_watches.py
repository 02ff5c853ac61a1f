"""Watches that have nothing to tell: they end as soon as what they were allowed by is gone. Architecture 10; ADR 66.

Heartbeats come so seldom here that none comes before a test is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import time

import jwt
import pytest
import pytest_asyncio
from google.protobuf.message_factory import GetMessageClass
from turnwright.types.v1 import access_pb2, grant_pb2, settings_pb2

from contract.test_two_teams import AT_EXECUTORS, AT_STORES
from services import running, token_for
from turnwright_core.errors import TurnwrightError
from turnwright_kit.access import access_of
from turnwright_kit.peer import Peer, rpc_of

pytestmark = pytest.mark.asyncio(loop_scope="module")

VIEWER = grant_pb2.GRANT_ROLE_VIEWER
NEVER_S = 3600.0
GUARD_S = 30.0


def watches(methods):
    return [
        method
        for method in methods
        if method.name.startswith("Watch") and access_of(method).right != access_pb2.RIGHT_SERVICE
    ]


WATCHES = [("executor", method) for method in watches(AT_EXECUTORS)] + [
    ("store", method) for method in watches(AT_STORES)
]
EACH = pytest.mark.parametrize(
    ("audience", "method"), WATCHES, ids=[f"{audience}-{method.name}" for audience, method in WATCHES]
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def services(tmp_path_factory):
    root = tmp_path_factory.mktemp("watches")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
        store = {"heartbeat_s": NEVER_S}
        async with running(root, store_settings=store, event_heartbeat_s=NEVER_S) as made:
            await made.client.delete_grant(made.project, "*")
            await made.client.create_run(made.project, run="r", settings=settings_pb2.RunSettings(model="m"))
            yield made


@contextlib.asynccontextmanager
async def watching(services, audience, method, token, *, waits=True):
    """A watch that has told something, unless nobody waits; its task gives the reason that it ends with."""
    peer = Peer(audience, services.addresses[audience], token, 10.0)
    request = GetMessageClass(method.input_type)(project=services.project)
    if "run" in method.input_type.fields_by_name:
        request.run = "r"
    began = asyncio.Event()

    async def follow() -> str:
        try:
            async with peer.stream(rpc_of(peer.channel, method), request, None) as messages:
                async for _ in messages:
                    began.set()
        except TurnwrightError as error:
            return error.metadata.get("cause", error.reason.name)
        return "ended"

    task = asyncio.create_task(follow())
    try:
        if waits:
            async with asyncio.timeout(GUARD_S):
                await began.wait()
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await peer.close()


async def reason_of(task: asyncio.Task[str]) -> str:
    async with asyncio.timeout(GUARD_S):
        return await task


@EACH
async def test_a_watch_ends_when_its_grant_is_taken_away(services, audience, method):
    await services.client.set_grant(services.project, "user:bob", VIEWER)
    async with watching(services, audience, method, token_for("bob", audience=audience)) as watch:
        # A change that concerns others ends nothing.
        await services.client.set_grant(services.project, "user:carol", VIEWER)
        await services.client.delete_grant(services.project, "user:carol")
        assert not watch.done()
        await services.client.delete_grant(services.project, "user:bob")
        assert await reason_of(watch) == "PROJECT_NOT_FOUND"


@pytest.mark.parametrize(("audience", "name"), [("executor", "WatchRun"), ("store", "WatchChanges")])
async def test_a_watch_ends_when_its_grant_does(services, audience, name):
    method = next(method for at, method in WATCHES if (at, method.name) == (audience, name))
    until_ms = time.time_ns() // 1_000_000 + 3000
    await services.client.set_grant(services.project, "user:bob", VIEWER, until_ms=until_ms)
    async with watching(services, audience, method, token_for("bob", audience=audience), waits=False) as watch:
        assert await reason_of(watch) == "PROJECT_NOT_FOUND"
        assert time.time_ns() // 1_000_000 >= until_ms
    await services.client.delete_grant(services.project, "user:bob")


@EACH
async def test_a_watch_ends_when_its_token_is_revoked(services, audience, method):
    await services.client.set_grant(services.project, "user:bob", VIEWER)
    token = token_for("bob", audience=audience)
    async with watching(services, audience, method, token) as watch:
        await services.client.revoke_token(jwt.decode(token, options={"verify_signature": False})["jti"])
        assert await reason_of(watch) == "revoked"
    await services.client.delete_grant(services.project, "user:bob")


async def test_there_are_watches_at_both(services):
    assert {audience for audience, _ in WATCHES} == {"executor", "store"}
    assert {"WatchRun", "WatchRuns", "WatchPlans", "WatchProposals", "WatchChanges"} <= {
        method.name for _, method in WATCHES
    }
