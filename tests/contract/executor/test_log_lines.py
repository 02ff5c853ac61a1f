"""The canonical lines of logs: one for each rpc and each turn, with the ids that somebody would search by."""

from __future__ import annotations

import asyncio

import grpc
import pytest
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.types.v1 import model_pb2, settings_pb2

from log_lines import logged
from services import SECRET, running, token_for
from turnwright_client import Client
from turnwright_core.errors import TurnwrightError
from turnwright_kit import guarded_call

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
GET_RUN = "turnwright.runs.v1.RunService/GetRun"
ANN = token_for("ann")
NAMES = ("method", "code", "principal", "run", "reason")


async def seen(services, level: str, call, token: str = ANN, *, method: str = "") -> list[dict]:
    """The lines of the executor's calls while somebody makes one, with that of the method, which may come after its answer."""
    with logged(level) as lines:
        async with Client.connect(services.addresses["executor"], token) as ann:
            await call(ann)
        async with asyncio.timeout(60):
            while method and not any(line["method"].endswith(f"/{method}") for line in _calls_in(lines)):
                await asyncio.sleep(0.01)
                lines.read()
    assert not [line for line in lines if SECRET in str(line) or ANN in str(line)]
    return _calls_in(lines)


def _calls_in(lines: list[dict]) -> list[dict]:
    """Without the calls that the executor makes at the store, for somebody or for itself."""
    ended = [line for line in lines if line["event"] == "rpc_ended" and "by" not in line]
    return [line for line in ended if ".executor." in line["method"] or line.get("principal") == "ann"]


async def finds_none(services, ann: Client, run: str = "nowhere") -> None:
    with pytest.raises(TurnwrightError):
        await ann.get_run(services.project, run)


async def test_a_call_that_fails_has_one_line_with_who_called_and_why_it_failed(services) -> None:
    (line,) = await seen(services, "info", lambda ann: finds_none(services, ann), method="GetRun")

    assert [line[name] for name in NAMES] == [GET_RUN, "NOT_FOUND", "ann", "nowhere", "RUN_NOT_FOUND"]
    assert 0 < line["seconds"] < 60


async def test_an_id_that_nobody_has_checked_is_cut(services) -> None:
    (line,) = await seen(services, "info", lambda ann: finds_none(services, ann, "x" * 100_000), method="GetRun")

    assert line["run"] == "x" * guarded_call.ID_CHARS_MAX


async def test_a_call_that_went_well_has_its_line_where_all_are_asked_for(services) -> None:
    async def asks(ann: Client) -> None:
        await ann.discover()

    (line,) = await seen(services, "debug", asks, method="Discover")
    assert (line["code"], line["principal"], line["level"], "run" in line) == ("OK", "ann", "debug", False)
    assert await seen(services, "info", asks) == []


async def test_a_call_that_changes_something_has_its_line(services) -> None:
    settings = settings_pb2.RunSettings(model="m")
    lines = await seen(
        services, "info", lambda ann: ann.create_run(services.project, "r", settings, "once"), method="CreateRun"
    )
    told = [(line["principal"], line["project"], line["run"], line["request_id"], line["code"]) for line in lines]
    assert told[-1] == ("ann", services.project, "r", "once", "OK")


async def test_what_an_executor_has_refused_is_listed_beside_what_its_store_has(services) -> None:
    async with Client.connect(services.addresses["executor"], ANN) as ann:
        for _ in range(2):
            with pytest.raises(TurnwrightError):
                await ann.set_model(model_pb2.Model(alias="x", vendor_model="scripted/x"))
    found = [(row.principal, row.method, row.count) for row in await services.client.list_audit("", refused=True)]
    assert ("ann", "SetModel", 2) in found


async def test_a_slow_call_has_its_line(services) -> None:
    services.script(DONE)
    await services.until(await services.act())

    async def sleeps(client: Client) -> None:
        await client.call_tool(services.project, "r", "sh", {"command": f"sleep {guarded_call.SLOW_S}"})

    (line,) = await seen(services, "info", sleeps, SECRET, method="CallTool")
    assert (line["code"], line["run"], line["level"]) == ("OK", "r", "info")
    assert line["seconds"] >= guarded_call.SLOW_S


async def test_a_repeatable_call_is_logged_with_its_request_id(services) -> None:
    services.script(DONE)
    settings = settings_pb2.LoopSettings(model="m")
    lines = await seen(
        services,
        "debug",
        lambda ann: ann.act(services.project, "The prompt.", run="r", settings=settings, request_id="once"),
        method="Act",
    )

    assert [line.get("request_id") for line in lines if line["method"].endswith("Act")] == ["once"]
    assert "The prompt." not in str(lines)


async def test_a_stranger_has_a_line_without_a_name(services) -> None:
    with logged("info") as lines:
        async with grpc.aio.insecure_channel(services.addresses["executor"]) as channel:
            with pytest.raises(grpc.aio.AioRpcError):
                await run_service_pb2_grpc.RunServiceStub(channel).GetRun(run_service_pb2.GetRunRequest(run="r"))
        async with asyncio.timeout(60):
            while not (ended := [line for line in lines if line["event"] == "rpc_ended"]):
                await asyncio.sleep(0.01)
                lines.read()

    (line,) = ended
    assert [line.get(name) for name in NAMES] == [GET_RUN, "UNAUTHENTICATED", None, None, "UNAUTHENTICATED"]


async def test_a_watch_that_its_reader_leaves_is_no_failure_and_never_slow(services) -> None:
    await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))

    async def watches(ann: Client) -> None:
        async for _ in ann.watch(services.project, "r"):
            await asyncio.sleep(guarded_call.SLOW_S)
            break

    lines = await seen(services, "debug", watches, method="WatchRun")
    ends = [(line["code"], line["level"]) for line in lines if line["method"].endswith("WatchRun")]
    assert ends == [("CANCELLED", "debug")]


async def after_a_loop(services) -> None:
    """The end of a loop is told before the line of its last turn is written, and the next loop begins after that."""
    await services.until(await services.act("Another prompt."))


async def test_each_turn_has_a_line_with_what_it_took_and_its_verdict(services) -> None:
    services.script('<think>So.</think><update status="102">Going on.</update>', DONE)
    with logged("info") as lines:
        await services.until(await services.act("The prompt."))
        await after_a_loop(services)

    turns = [line for line in lines if line["event"] == "turn_ended" and line["turn"] <= 2]
    assert [(line["run"], line["turn"], line["commands"], line["verdict"]) for line in turns] == [
        ("r", 1, 2, 102),
        ("r", 2, 1, 200),
    ]
    assert all(line["tokens"] > 0 and line["seconds"] >= 0 for line in turns)
    assert "The prompt." not in str(lines)


async def test_a_turn_that_is_aborted_has_its_line_too(services) -> None:
    (services.root / "m.txt").write_text("=== reply chunk_chars=1 delay_ms=60000 ===\nA long thought.\n")
    with logged("info") as lines:
        queued = await services.act()
        async with asyncio.timeout(60):
            async for event in services.client.watch(services.project, "r"):
                if event.WhichOneof("event") == "stream_delta":
                    break
        await services.client.abort(services.project, "r")
        await services.until(queued)
        services.script(DONE)
        await after_a_loop(services)

    (line,) = [line for line in lines if line["event"] == "turn_ended" and line["turn"] == 1]
    assert (line["run"], line["turn"], line["verdict"]) == ("r", 1, 499)


async def test_what_is_logged_in_a_turn_says_which(tmp_path, plugin) -> None:
    hooks = plugin(
        "odd_hooks",
        """
        from turnwright_executor.hooks.points import ENTRY_RECORDING

        def fails(payload):
            raise RuntimeError("no")

        def register(registry):
            registry.filter(ENTRY_RECORDING, fails)
        """,
    )
    async with running(tmp_path, hooks=hooks) as services:
        services.script(DONE)
        with logged("info") as lines:
            await services.until(await services.act())
    failures = [(line["run"], line["turn"]) for line in lines if line["event"] == "hook_failed"]
    assert failures[0] == ("r", 1)
