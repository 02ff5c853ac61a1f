"""The cases of an agent's wire (AG01-AG07, AP36, AP38)."""

import json
import subprocess
import sys
from contextlib import nullcontext
from functools import partial

import pytest
from turnwright.types.v1 import plan_pb2
from turnwright.types.v1.settings_pb2 import RunSettings

from cases import params
from contract.acp.editors import Editor, editing
from log_lines import logged
from services import running
from turnwright_acp.agent import Agent
from unit.acp.lines import served

DONE = '<update status="200">Done.</update>'


@pytest.fixture(autouse=True)
def _model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "1000000")


def is_expected(answer, expect):
    if "error_or_stop" in expect:
        return "error" in answer or answer["result"]["stopReason"] in expect["error_or_stop"]
    if "error" in expect:
        return answer.get("error", {}).get("code") == expect["error"]
    wanted = expect.get("result", {})
    return wanted.items() <= answer["result"].items()


@pytest.mark.parametrize("case", params("acp/agent_wire.jsonl"))
@pytest.mark.asyncio
async def test_the_wire(case, tmp_path):
    expect, place = case["expect"], {"cwd": str(tmp_path / "project"), "mcpServers": []}
    async with running(tmp_path) as services:
        words = "word " * 200
        (services.root / "m.txt").write_text(f"=== reply chunk_chars=8 delay_ms=50 ===\n{words}{DONE}\n")
        async with served(Agent(lambda: nullcontext(services.client), "m").serve) as peer:
            editor, session = Editor(peer, services.files), ""
            # Its own requests have other ids than those of the case.
            editor.methods = dict.fromkeys(range(1, 101), "")
            for step in case["send"]:
                if step == "<new session>":
                    session = await editor.new()
                elif step == "<close stdin>":
                    peer.end()
                elif "raw" in step:
                    await peer.send(step["raw"].encode())
                else:
                    if "<saved>" in json.dumps(step) and not session:
                        run = await services.client.create_run(services.project, "saved", RunSettings(model="m"))
                        session = f"{services.project}/{run.run}"
                    text = json.dumps(step).replace("<new>", session).replace("<saved>", session)
                    await peer.send(text.replace('"/tmp"', json.dumps(place["cwd"])).encode())
                    if '"session/prompt"' in text and case["expect"].get("id") != step["id"]:
                        await editor.until(partial(editor.updates, session, "agent_message_chunk"))
            if "exit" in expect:
                await peer.task
                return
            if "id" in expect:
                answers = await editor.until(
                    lambda: [one for one in editor.order if "method" not in one and one.get("id") == expect["id"]]
                )
                assert is_expected(answers[0], expect), answers
                if expect.get("no_update_before_response"):
                    before = editor.order[: editor.order.index(answers[0])]
                    assert [one for one in before if "method" in one] == []
            # It lives, and has answered nothing that nobody asked.
            await editor.call("session/list")
            asked = {step["id"] for step in case["send"] if "id" in step} | set(editor.methods)
            assert {one["id"] for one in editor.order if "method" not in one} - {None} <= asked


@pytest.mark.asyncio
async def test_who_speaks_another_version_is_answered_ours_and_may_leave(tmp_path):
    async with running(tmp_path) as services, served(Agent(lambda: nullcontext(services.client)).serve) as peer:
        editor = Editor(peer, services.files)
        assert await editor.refused("session/list") == -32600
        for version in (2, 1, 0, 65_535):
            assert (await editor.call("initialize", protocolVersion=version))["protocolVersion"] == 1
        for version in ("1", None, -1, 70_000, 1.5):
            assert await editor.refused("initialize", protocolVersion=version) == -32602
        assert await editor.refused("session/dance") == -32601
        assert await editor.refused("logout") == -32601


@pytest.mark.asyncio
async def test_an_older_name_of_a_capability_is_not_one_and_is_logged_once(tmp_path):
    with logged() as log:
        async with running(tmp_path) as services, editing(services, {"planCapabilities": {}}) as editor:
            session = await editor.new()
            plan = plan_pb2.Plan(plan_id="p", body="# Plan")
            await services.client.set_plan(services.project, session.partition("/")[2], plan)
            await editor.until(lambda: editor.updates(session, "plan"))
            assert editor.updates(session, "plan_update") == []
    assert [line["name"] for line in log if line["event"] == "capability_ignored"] == ["planCapabilities"]


def test_nothing_of_the_libraries_of_others_is_what_runs():
    loaded = "import sys, turnwright_acp.agent; sys.exit(any(one in sys.modules for one in ('acp', 'pydantic')))"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0
