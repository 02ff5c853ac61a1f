"""Summaries that are none: too long, or left by a release that took them; and who is told of them. Rows RL08, RS11."""

from __future__ import annotations

import json

import pytest
from turnwright.types.v1 import run_message_pb2, session_pb2, settings_pb2, turn_pb2

from contract.executor.test_transcripts import TRANSCRIPT, turns_of
from contract.executor.watcher import Watcher, kind, snapshot
from services import running
from sse_server import Answer, SseServer, never
from strict_vendors import STRICT, Reply

pytestmark = pytest.mark.asyncio


def limit_of(body: dict) -> int | None:
    """The output limit that a request names, in any wire."""
    inner = {**body, **body.get("generationConfig", {}), **body.get("options", {})}
    names = ("max_tokens", "max_completion_tokens", "max_output_tokens", "maxOutputTokens", "num_predict")
    return next((inner[name] for name in names if name in inner), None)


@pytest.mark.parametrize("length", [5, 6000])
async def test_a_summary_that_is_longer_than_what_it_replaces_counts_as_none(tmp_path, monkeypatch, length):
    def script(number: int) -> Reply:
        asked = json.dumps(vendor.bodies[number]["messages"][-1])
        if "about to be shortened" in asked:
            return Reply("SUMMARY " * length)
        steps.append(number)
        return Reply("fine") if len(steps) % 4 == 0 else Reply("step", [("get", {"path": f"b{len(steps) % 4}.txt"})])

    steps: list[int] = []
    vendor = STRICT["chat"](script)
    async with SseServer([vendor] * 60) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            for number in range(4):
                (services.files / f"b{number}.txt").write_text(f"content of {number} line\n" * 250)
            limits = settings_pb2.RunSettings(model="m", context_limit=9000, calls=settings_pb2.CALL_STYLE_NATIVE)
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT, summaries=True)
            loops = []
            for number in range(4):
                queued = await services.client.act(
                    services.project, f"task {number} " + "go " * 100, run="r", settings=settings, run_settings=limits
                )
                loops.append(await services.until(queued))
            turns = sorted(await turns_of(services), key=lambda turn: turn.number)
            told = [one async for one in services.client.list_messages(services.project, "r")]
    assert [(loop.status, loop.reason) for loop in loops] == [(200, "text")] * 4
    asked = [turn for turn in turns if turn.request.kind == turn_pb2.REQUEST_KIND_COMPACTION]
    assert asked
    taken = [one for one in told if one.kind == run_message_pb2.MESSAGE_KIND_SUMMARY]
    is_short = length < 100
    assert len(taken) == (len(asked) if is_short else 0)
    others = [body for body in vendor.bodies if "about to be shortened" not in json.dumps(body["messages"][-1])]
    assert any("SUMMARY" in json.dumps(body) for body in others) is is_short
    requests = [body for body in vendor.bodies if body not in others]
    assert {limit_of(body) for body in requests} == {9000 // 8}
    assert {limit_of(body) for body in others} == {None}


async def test_watchers_are_told_that_the_history_is_being_compressed(tmp_path, monkeypatch):
    """While a summary is asked for, in a snapshot too, and after another executor has taken over; then no more."""
    asked: list[int] = []

    def script(number: int) -> Reply | Answer:
        if "about to be shortened" in json.dumps(vendor.bodies[number]["messages"][-1]):
            asked.append(number)
            return never()
        return Reply("step", [("get", {"path": f"b{number % 4}.txt"})])

    vendor = STRICT["chat"](script)
    compression = session_pb2.HistoryCompression
    async with SseServer([vendor] * 60) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            for number in range(4):
                (services.files / f"b{number}.txt").write_text(f"content of {number} line\n" * 250)
            limits = settings_pb2.RunSettings(model="m", context_limit=9000, calls=settings_pb2.CALL_STYLE_NATIVE)
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT, summaries=True)
            await services.client.create_run(services.project, "r", limits)
            async with Watcher(services) as watcher:
                queued = await services.client.act(services.project, "Go.", run="r", settings=settings)
                told = await watcher.until(lambda event: phase_of(event) == compression.PHASE_WRITING)
                turn = told.runtime_updated.compression.turn
                view = await snapshot(services)
                assert view.compression == told.runtime_updated.compression
                assert (view.compression.reason, view.compression.turn) == (compression.REASON_WINDOW, turn)
                await services.restart("executor")
                async with Watcher(services) as later:
                    await later.until(lambda event: phase_of(event) == compression.PHASE_WRITING)
                    assert (await snapshot(services)).compression.turn == turn
                    await services.client.abort(services.project, "r")
                    await services.until(queued)
                    await later.until(lambda event: event.run_state.run.status == 499)
                    # The one that follows all other events of the end says what the run is doing then.
                    assert not later.told("runtime_updated")[-1].HasField("compression")
                    assert (later.view().compression, (await snapshot(services)).compression) == (None, None)
    assert len(asked) == 2


def phase_of(event) -> int:
    """The phase in which an event says that the compression of the history is."""
    told = event.snapshot if kind(event) == "snapshot" else event.runtime_updated
    return told.compression.phase
