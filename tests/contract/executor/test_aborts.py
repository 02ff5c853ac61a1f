"""An abort reaches what is under way at once, in every phase, through any executor and through the store itself."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import json
import os
import threading
import time
from pathlib import Path

import pytest
import pytest_asyncio
from turnwright.executor.v1 import event_pb2
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.types.v1 import entry_pb2, settings_pb2

from contract.executor.watcher import Watcher, snapshot
from living import is_alive
from services import SECRET, Services, running
from sse_server import Answer, SseServer, chat, delta, error, events
from turnwright_client import Client
from turnwright_core.errors import TurnwrightError
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.peer import Peer
from turnwright_kit.server import RunningServer

pytestmark = pytest.mark.asyncio

GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'
SH = f"<sh>sh slow.sh</sh>{GO_ON}"
RECORD, OUT = "log://turn_1/sh/sh_slow.sh", "sh://turn_1/sh_slow.sh_1"
FAILED = entry_pb2.STATE_FAILED


LEASE_S = 600
"""So long that no renewal tells an executor of an abort before a test is given up."""


async def until(condition, what: str):
    """What the condition answers, once it is anything."""
    deadline_s = time.monotonic() + 60
    while time.monotonic() < deadline_s:
        if answer := condition():
            return answer
        await asyncio.sleep(0.01)
    raise AssertionError(f"{what} did not come")


def started(services: Services) -> int:
    """The process of the command, once it runs."""
    file = services.files / "pid"
    return int(file.read_text()) if file.exists() and file.read_text().strip() else 0


async def act_slowly(services: Services, script: str = "echo begun; echo $$ > pid; sleep 600", **settings):
    """A loop whose command has begun; and its process."""
    (services.files / "slow.sh").write_text(script)
    services.script(SH, DONE)
    queued = await services.act(**settings)
    return queued, await until(lambda: started(services), "the command")


async def abort_at_store(services: Services) -> None:
    peer = Peer("store", services.addresses["store"], SECRET, 5.0)
    runs = run_service_pb2_grpc.RunServiceStub(peer.channel)
    await peer.call(runs.AbortRun, run_service_pb2.AbortRunRequest(project=services.project, run="r"))
    await peer.close()


@pytest_asyncio.fixture
async def services(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, lease_s=LEASE_S) as made:
        yield made


@contextlib.asynccontextmanager
async def another_executor(services: Services, name: str = "second", **settings):
    """A client of one more executor on the same store."""
    peers = {peer: services.addresses[peer] for peer in ("store", "provider", "assembler")}
    address = f"unix:{services.root}/{name}.sock"
    common = {"home": services.root / "home", "token": SECRET, "log_level": "error", "listen": address}
    wired = build_executor(
        ExecutorSettings(**common, **peers, **{"recover": False, "sh_sandbox": "limits", **settings}), SECRET
    )
    server = RunningServer(wired, address, SECRET, 1.0)
    await server.start()
    try:
        async with Client.connect(address, SECRET) as client:
            yield client
    finally:
        await server.stop()


# ---- A command that runs


@pytest.mark.parametrize("through", ["owner", "another", "store"])
async def test_an_abort_reaches_the_command_at_once(services, through) -> None:
    # RU039, RU111; C36
    queued, pid = await act_slowly(services)
    async with contextlib.AsyncExitStack() as stack:
        client = services.client
        if through == "another":
            client = await stack.enter_async_context(another_executor(services))
        if through == "store":
            await abort_at_store(services)
        else:
            await client.abort(services.project, "r")
        await until(lambda: not is_alive(pid), "the end of the command")
        loop = await services.until(queued)
    assert (loop.status, loop.reason) == (499, "aborted")
    entries = [await services.entry(path) for path in (RECORD, OUT)]
    assert [(entry.state, entry.outcome) for entry in entries] == [(FAILED, "stopped:499")] * 2
    assert entries[1].body == "begun\n"


async def test_a_command_that_ignores_the_request_is_killed_after_the_grace(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, lease_s=LEASE_S, sh_grace_s=0.5) as services:
        queued, pid = await act_slowly(services, "trap '' TERM; echo $$ > pid; while :; do sleep 0.05; done")
        asked_s = time.monotonic()
        await services.client.abort(services.project, "r")
        await until(lambda: not is_alive(pid), "the end of the command")
        assert time.monotonic() - asked_s > 0.4
        assert (await services.until(queued)).status == 499


async def test_what_an_aborted_command_says_last_is_kept(services) -> None:
    queued, _ = await act_slowly(services, "trap 'echo bye; exit' TERM; echo $$ > pid; while :; do sleep 0.05; done")
    await services.client.abort(services.project, "r")
    await services.until(queued)
    assert (await services.entry(OUT)).body == "bye\n"


async def test_an_abort_of_a_loop_that_has_ended_leaves_the_next_one_alone(services) -> None:
    first, _ = await act_slowly(services)
    await services.client.abort(services.project, "r", loop=first.sequence)
    assert (await services.until(first)).status == 499
    (services.files / "pid").unlink()
    second, _ = await act_slowly(services, "echo $$ > pid; while [ ! -e go ]; do sleep 0.05; done")
    assert (await services.client.abort(services.project, "r", loop=first.sequence)).run.loop.sequence == 2
    (services.files / "go").touch()
    assert (await services.until(second)).status == 200


async def test_the_queued_loop_starts_and_keeps_its_own_command(services) -> None:
    # RU111; C36: an abort that is heard of twice is one
    first, pid = await act_slowly(services)
    second = await services.act("The next task.")
    (services.files / "pid").unlink()
    (services.files / "slow.sh").write_text("echo $$ > pid; sleep 0.7; touch over")
    services.script(SH, DONE)
    async with another_executor(services) as client:
        await asyncio.gather(
            *(one.abort(services.project, "r", request_id="same") for one in (client, services.client))
        )
        assert (await services.until(first)).status == 499
        assert not is_alive(pid)
        await until(lambda: started(services), "the next command")
        await asyncio.gather(
            *(one.abort(services.project, "r", request_id="same") for one in (client, services.client))
        )
    assert (await services.until(second)).status == 200
    assert (services.files / "over").exists()


# ---- The other phases


async def phase_seen(services: Services, queued, phase) -> None:
    async with contextlib.aclosing(services.client.watch(queued.project, queued.run, queued.cursor)) as events:
        async for event in events:
            if event.run_progress.phase == phase or (phase is None and event.WhichOneof("event") == "stream_delta"):
                return


async def abort(services: Services, queued, through: str) -> None:
    """Abort the loop, and wait for its end."""
    async with asyncio.timeout(60):
        if through == "store":
            await abort_at_store(services)
        else:
            await services.client.abort(services.project, "r")
        loop = await services.until(queued)
    assert (loop.status, loop.reason) == (499, "aborted")


THROUGH = pytest.mark.parametrize("through", ["executor", "store"])


@contextlib.asynccontextmanager
async def with_vendor(root: Path, monkeypatch, *answers: Answer):
    """The services with a vendor that answers like this."""
    async with SseServer(answers) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_tiny", "openai/tiny")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(root, lease_s=LEASE_S) as made:
            yield made


@THROUGH
async def test_an_abort_while_the_model_has_not_answered_yet(tmp_path, monkeypatch, through) -> None:
    # RE01, RE08: nothing is stored of a reply that has only begun, and no watcher waits for more of it
    async with with_vendor(tmp_path, monkeypatch, Answer(silent=True, end="hang")) as services:
        queued = await services.act(model="tiny")
        async with Watcher(services, queued.cursor) as watcher:
            await watcher.until(lambda event: event.HasField("stream_started"))
            await abort(services, queued, through)
            await watcher.until(lambda event: event.run_state.loop.status == 499)
        broken = [(one.turn, one.reason) for one in watcher.told("stream_cancelled")]
        assert (broken, watcher.view().partial) == ([(1, "aborted:499")], None)
        assert (await snapshot(services)).partial is None


@THROUGH
async def test_an_abort_while_the_model_answers_keeps_what_it_wrote(services, through) -> None:
    words = " ".join(f"word{number}" for number in range(4000))
    (services.root / "m.txt").write_text(f"=== reply chunk_chars=8 delay_ms=50 ===\n{words}\n")
    queued = await services.act()
    await phase_seen(services, queued, None)
    await abort(services, queued, through)
    draft = await services.entry("assistant://1")
    assert (draft.status, draft.body.startswith("word0")) == (499, True)


@THROUGH
async def test_an_abort_takes_effect_before_another_delta_comes(tmp_path, monkeypatch, through) -> None:
    # RC06: the vendor says nothing more, and what it has said is kept
    half = Answer(chunks=events(delta(content="Half of "), delta(content="it."), done=False), end="hang")
    async with with_vendor(tmp_path, monkeypatch, half) as services:
        queued = await services.act(model="tiny")
        async with Watcher(services, queued.cursor) as watcher:
            await watcher.until(lambda event: "it." in str(event.stream_delta))
            await abort(services, queued, through)
        [turn] = (await services.client.get_run(services.project, "r", turns_max=1)).turns
        reply = await services.entry("assistant://1")
        assert (turn.result.finish, reply.body, reply.status) == ("aborted", "Half of it.", 499)
        assert json.loads(reply.attributes_json)["finish"] == "aborted"


@THROUGH
async def test_an_abort_gives_each_call_without_an_answer_a_cancelled_result(tmp_path, monkeypatch, through) -> None:
    # RC06
    calls = [
        {"index": number, "id": f"v{number}", "type": "function", "function": {"name": "sh", "arguments": command}}
        for number, command in enumerate(('{"command": "touch one"}', '{"command": "touch two"}'))
    ]
    async with with_vendor(tmp_path, monkeypatch, chat("Both.", tool_calls=calls)) as services:
        queued = await services.act(model="tiny", yolo=False, assembly=settings_pb2.ASSEMBLY_TRANSCRIPT)
        await services.until(queued, 202)
        await abort(services, queued, through)
        found = [one async for one in services.client.list_messages(services.project, "r")]
        results = [one.message for one in found if one.message.call_id]
        asked = [call.call_id for one in found for call in one.message.calls]
        assert [one.call_id for one in results] == asked
        assert len(asked) == 2
        assert all(one.failed for one in results)
        assert not [name for name in ("one", "two") if (services.files / name).exists()]


@THROUGH
async def test_an_abort_while_a_model_call_is_retried(tmp_path, monkeypatch, through) -> None:
    limited = error(429, "slow down", headers={"retry-after": "60"})
    async with with_vendor(tmp_path, monkeypatch, limited, chat(DONE)) as services:
        queued = await services.act(model="tiny")
        await phase_seen(services, queued, event_pb2.RunProgress.PHASE_RETRYING)
        await abort(services, queued, through)


@THROUGH
async def test_an_abort_while_a_proposal_waits_for_its_decision(tmp_path, monkeypatch, through) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    # At the store nobody holds a run that waits: who looks for work next settles it.
    async with running(tmp_path, work_poll_s=3600 if through == "executor" else 0.1) as services:
        services.script(f"<sh>touch ran</sh>{DONE}")
        queued = await services.act(yolo=False)
        await services.until(queued, 202)
        await abort(services, queued, through)
        assert await services.status("log://turn_1/sh/touch_ran") == 499
        assert not (services.files / "ran").exists()


# ---- What had ended by then

LATE = """
import asyncio

from turnwright_executor.hooks import TURN_VERDICT

BEGUN = asyncio.Event()


def register(registry):
    registry.filter(TURN_VERDICT, late)


async def late(verdict, facts):
    BEGUN.set()
    await asyncio.Event().wait()
"""


@pytest.mark.parametrize("ends", ["an abort", "a restart"])
async def test_a_command_that_ended_before_its_turn_was_stopped_has_ended(tmp_path, monkeypatch, plugin, ends) -> None:
    # architecture 11: nothing that happened is told as if it had not
    async with running(tmp_path, lease_s=LEASE_S, hooks=plugin("late", LATE)) as services:
        services.script(f'<set path="known://a">1</set><sh>echo out</sh>{GO_ON}', DONE)
        queued = await services.act()
        await asyncio.wait_for(importlib.import_module("late").BEGUN.wait(), 60)
        if ends == "a restart":
            await services.restart("executor")
        await services.client.abort(services.project, "r")
        assert (await services.until(queued)).status == 499
        paths = ("log://turn_1/set/known%3A/a", "known://a", "log://turn_1/sh/echo_out", "sh://turn_1/echo_out_1")
        assert [await services.status(path) for path in paths] == [200] * 4


@pytest.mark.parametrize("is_decided", [False, True], ids=["waits for a decision", "waits for its turn to run"])
async def test_an_abort_does_not_wait_until_other_runs_end(tmp_path, monkeypatch, is_decided) -> None:
    # RU111; C36: an executor that has as many loops at work as it may still settles those that shall end
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, loops_max=1) as services:
        services.script(f"<sh>touch ran</sh>{DONE}")
        waiting = await services.act(run="waiting", yolo=False)
        await services.until(waiting, 202)
        queued, _ = await act_slowly(services, "echo $$ > pid; until [ -e go ]; do sleep 0.02; done")
        if is_decided:
            await services.client.resolve(services.project, "waiting", "log://turn_1/sh/touch_ran", accept=True)
        await services.client.abort(services.project, "waiting")
        async with asyncio.timeout(60):
            assert (await services.until(waiting)).status == 499
        assert not (services.files / "ran").exists()
        (services.files / "go").touch()
        assert (await services.until(queued)).status == 200


async def test_a_file_that_is_being_written_is_written_and_its_record_says_so(services, monkeypatch) -> None:
    # RU111; architecture 6, 11
    real, begun, go = os.fsync, threading.Event(), threading.Event()

    def held(descriptor):
        if Path(f"/proc/self/fd/{descriptor}").readlink().is_relative_to(services.files) and not begun.is_set():
            begun.set()
            go.wait(60)
        real(descriptor)

    services.script(f'<set path="a.txt">new\n</set>{GO_ON}', DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    monkeypatch.setattr(os, "fsync", held)
    await services.client.resolve(services.project, "r", "log://turn_1/set/a.txt", accept=True)
    await until(begun.is_set, "the write")
    await services.client.abort(services.project, "r")
    go.set()
    assert (await services.until(queued)).status == 499
    assert (services.files / "a.txt").read_text() == "new\n"
    assert await services.status("log://turn_1/set/a.txt") == 200


# ---- An executor that dies


async def test_the_output_of_an_executor_that_is_gone_ends_at_499(services) -> None:
    """Its owner stops in the middle of a command; who takes the run over finds a command that nobody runs."""
    async with another_executor(services, "owner", recover=False, lease_s=3) as client:
        (services.files / "slow.sh").write_text("echo begun; echo $$ > pid; sleep 600")
        services.script(SH, DONE)
        own = Services(services.root, client, services.addresses, services.project)
        queued = await own.act()
        pid = await until(lambda: started(services), "the command")
        await until_stored(services, OUT, "begun\n")
    await until(lambda: not is_alive(pid), "the end of the command")
    loop = await services.until(queued)
    assert loop.status == 200
    entry, record = await services.entry(OUT), await services.entry(RECORD)
    assert (entry.state, entry.body) == (entry_pb2.STATE_CANCELLED, "begun\n")
    assert (record.status, record.outcome) == (500, "indeterminate:500")


async def until_stored(services: Services, path: str, body: str) -> None:
    for _ in range(3000):
        with contextlib.suppress(TurnwrightError):
            if (await services.entry(path)).body == body:
                return
        await asyncio.sleep(0.02)
    raise AssertionError(f"{path} did not come")


# ---- What the aborted turn took


@pytest.mark.parametrize("restarts", [0, 1, 2])
async def test_an_aborted_turn_is_charged_its_model_call_once_whoever_made_it(services, restarts) -> None:
    # RU111; budgets: what was spent is what the reply's note says
    (services.files / "a.txt").write_text("old\n")
    services.script('<set path="a.txt">new</set><update status="102">On.</update>', DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    for _ in range(restarts):
        await services.restart("executor")
    await services.client.abort(services.project, "r")
    assert (await services.until(queued)).status == 499
    answer = await services.client.get_run(services.project, "r", turns_max=1)
    [result] = [turn.result for turn in answer.turns]
    note = json.loads((await services.entry("assistant://1")).attributes_json)["call"]
    assert (result.finish, result.usage.total_tokens) == ("aborted", note["usage"]["total_tokens"])
    assert result.usage.total_tokens > 0
    assert (result.packet_digest, result.packet_tokens) == (note["packet_digest"], note["packet_tokens"])
    assert (answer.spent.tokens, answer.spent.lost_tokens) == (result.usage.total_tokens, 0)
