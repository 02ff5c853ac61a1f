"""Private runs at an executor: what it answers by itself, and what it looks at before the store decides. ADR 66."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from turnwright.executor.v1 import control_pb2, event_pb2, executor_service_pb2, explain_pb2, watch_pb2
from turnwright.types.v1 import grant_pb2, settings_pb2

from services import running, token_for
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.peer import rpc_of

pytestmark = pytest.mark.asyncio

PATH = "log://turn_1/sh/touch_ran"
SERVICE = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]


async def reason_of(call) -> str:
    try:
        await call
    except TurnwrightError as error:
        return error.reason.name
    return "answered"


def calls_about(client, project: str, run: str):
    """Each call of a run that an executor does not only pass on; to be made one after the other."""
    at = {"project": project, "run": run}
    notice = event_pb2.Notice(text="Look here.")
    for name, request in (
        ("Notify", watch_pb2.NotifyRequest(**at, notice=notice)),
        ("ExplainPacket", explain_pb2.ExplainPacketRequest(**at, turn=1)),
        ("CallTool", control_pb2.CallToolRequest(**at, tool="get", attributes={"path": "a.txt"})),
    ):
        yield name, client._peer.call(rpc_of(client._peer.channel, SERVICE.methods_by_name[name]), request)
    yield "ResolveProposal", client.resolve(project, run, PATH, accept=True, answer="An answer.")
    yield "SubmitCommand", client.submit(project, run, approve_tools={"calls": [PATH], "answer": "An answer."})


async def watched(client, project: str, run: str) -> None:
    async with contextlib.aclosing(client.watch(project, run)) as events:
        await anext(events)


async def test_what_an_executor_tells_by_itself_is_for_those_alone_for_whom_the_run_is_there(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services:
        project = services.project
        services.script("<sh>touch ran</sh>")
        async with (
            Client.connect(services.addresses["executor"], token_for("alice")) as alice,
            Client.connect(services.addresses["executor"], token_for("bob")) as bob,
        ):
            asks = settings_pb2.LoopSettings(model="m")
            queued = await alice.act(
                project, "Go.", run="hers", settings=asks, run_settings=settings_pb2.RunSettings(private=True)
            )
            await services.until(queued, 202)
            found = {name: await reason_of(call) for name, call in calls_about(bob, project, "hers")}
            missing = {name: await reason_of(call) for name, call in calls_about(bob, project, "none")}
            assert found == missing == dict.fromkeys(found, "RUN_NOT_FOUND")
            assert await reason_of(watched(bob, project, "hers")) == "RUN_NOT_FOUND"
            refused = {name: await reason_of(call) for name, call in calls_about(alice, project, "hers")}
            assert Reason.RUN_NOT_FOUND.name not in refused.values()
            await watched(alice, project, "hers")
            assert [one.run async for one in bob.list_runs(project)] == []
            assert [one async for one in bob.list_proposals()] == []
            assert [one.run async for one in alice.list_proposals()] == ["hers"]


async def test_a_watch_of_anothers_private_run_ends_with_the_right_to_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services:
        project, operator = services.project, services.client
        for name in ("alice", "bob"):
            await operator.set_grant(project, f"user:{name}", grant_pb2.GRANT_ROLE_OWNER)
        async with (
            Client.connect(services.addresses["executor"], token_for("alice")) as alice,
            Client.connect(services.addresses["executor"], token_for("bob")) as bob,
            contextlib.AsyncExitStack() as held,
        ):
            await alice.create_run(project, "hers", settings_pb2.RunSettings(model="m", private=True))
            await alice.create_run(project, "ours", settings_pb2.RunSettings(model="m"))

            async def begun(client, run):
                events = await held.enter_async_context(contextlib.aclosing(client.watch(project, run)))
                await anext(events)
                return events

            his, hers, ours = await begun(bob, "hers"), await begun(alice, "hers"), await begun(bob, "ours")
            for name in ("alice", "bob"):
                # That of the one to whom it is private stays, whatever else she may do.
                role = grant_pb2.GRANT_ROLE_MEMBER if name == "alice" else grant_pb2.GRANT_ROLE_VIEWER
                await operator.set_grant(project, f"user:{name}", role)

            async def told(events, text: str) -> None:
                async for event in events:
                    if event.WhichOneof("event") == "notice":
                        assert event.notice.text == text
                        return

            async with asyncio.timeout(60):
                assert await reason_of(told(his, "nothing")) == "RUN_NOT_FOUND"
                for run in ("hers", "ours"):
                    await alice.notify(project, run, event_pb2.Notice(text="Look here."))
                await told(hers, "Look here.")
                await told(ours, "Look here.")
