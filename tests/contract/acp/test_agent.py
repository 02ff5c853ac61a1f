"""The agent of an editor, before real services (AG01, AG04-AG10, AP35-AP41)."""

import asyncio

import pytest

from contract.acp.editors import PLANS, editing
from services import running

INVALID_REQUEST, NO_METHOD, INVALID_PARAMS, NOT_FOUND = -32600, -32601, -32602, -32002
DONE = '<update status="200">Done.</update>'


pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def _model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "1000000")


async def test_a_prompt_is_answered_behind_all_of_its_updates(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        (services.files / "a.txt").write_text("hello\n")
        services.script('I look.\n<get path="a.txt"/>' + DONE)
        session = await editor.new()
        assert await editor.prompt(session) == {"stopReason": "end_turn"}
        kinds = [one["sessionUpdate"] for one in editor.updates(session)]
        assert kinds.index("tool_call") < kinds.index("tool_call_update")
        assert editor.order[-1]["result"] == {"stopReason": "end_turn"}
        call = editor.updates(session, "tool_call")[0]
        assert (call["kind"], call["status"], call["title"]) == ("read", "pending", "get a.txt")
        assert call["locations"] == [{"path": str(services.files / "a.txt")}]
        assert editor.updates(session, "tool_call_update")[-1]["status"] == "completed"
        # Nothing of a session comes before its id is known.
        opened = next(place for place, one in enumerate(editor.order) if "sessionId" in one.get("result", {}))
        assert all("method" not in one for one in editor.order[:opened])


async def test_the_text_that_ends_a_task_is_said_once_also_to_who_loads_it(tmp_path):
    async with running(tmp_path) as services:
        services.script('<think>Hm.</think><update status="102">Going on.</update>', f"It is one.{DONE}")
        async with editing(services) as editor:
            session = await editor.new()
            await editor.prompt(session)
            assert editor.said(session) == "It is one.\n\nDone."
        async with editing(services) as editor:
            await editor.call("session/load", sessionId=session, cwd=str(services.files), mcpServers=[])
            assert editor.said(session) == "It is one.\n\nDone."


@pytest.mark.parametrize(
    ("option", "text", "tool_status"),
    [("allow_once", "new\n", "completed"), ("reject_once", "old\n", "failed")],
)
async def test_a_proposal_is_a_permission(tmp_path, option, text, tool_status):
    async with running(tmp_path) as services, editing(services) as editor:
        (services.files / "a.txt").write_text("old\n")
        services.script('<set path="a.txt">new\n</set>' + DONE, DONE)
        editor.decide = lambda request: option
        session = await editor.new()
        await editor.prompt(session)
        assert (services.files / "a.txt").read_text() == text
        (asked,) = editor.asked
        assert {one["kind"] for one in asked["params"]["options"]} == {
            "allow_once",
            "allow_always",
            "reject_once",
            "reject_always",
        }
        assert asked["params"]["toolCall"]["content"][0]["newText"] == "new\n"
        assert editor.updates(session, "tool_call_update")[-1]["status"] == tool_status


async def test_a_permission_for_the_session_is_asked_for_once(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        services.script('<set path="src/a.txt">1\n</set>' + DONE)
        editor.decide = lambda request: "allow_always"
        session = await editor.new()
        await editor.prompt(session)
        services.script('<set path="src/b.txt">2\n</set>' + DONE)
        await editor.prompt(session)
        assert (services.files / "src" / "b.txt").read_text() == "2\n"
        (asked,) = editor.asked
        names = {one["kind"]: one["name"] for one in asked["params"]["options"]}
        assert names["allow_always"] == "Always allow `src/**` in this session"
        assert names["reject_always"] == "Always reject `src/**` in this session"
        services.script(f"<sh>echo 1 > x</sh>{DONE}", DONE)
        editor.decide = lambda request: "reject_once"
        await editor.prompt(session)
        assert {one["kind"] for one in editor.asked[1]["params"]["options"]} == {"allow_once", "reject_once"}


async def test_a_cancel_answers_the_prompt(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        services.script('<set path="a.txt">1\n</set>' + DONE)
        asked = asyncio.Event()
        editor.decide = lambda request: asked.set()
        session = await editor.new()
        await editor.tell("session/cancel", sessionId=session)
        prompt = await editor.begin("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": "x"}]})
        await asked.wait()
        assert await editor.refused("session/prompt", sessionId=session, prompt=[{"type": "text", "text": "y"}]) < 0
        await editor.tell("session/cancel", sessionId=session)
        assert (await prompt)["result"] == {"stopReason": "cancelled"}
        assert not (services.files / "a.txt").exists()


async def test_a_session_is_loaded_with_what_was_said_and_resumed_without(tmp_path):
    async with running(tmp_path) as services:
        services.script("The answer is 4." + DONE)
        async with editing(services) as editor:
            session = await editor.new()
            await editor.prompt(session, "What is 2 + 2?")
        place = {"sessionId": session, "cwd": str(services.files), "mcpServers": []}
        async with editing(services) as editor:
            await editor.call("session/load", **place)
            assert editor.said(session, "user_message_chunk") == "What is 2 + 2?"
            assert "The answer is 4." in editor.said(session)
            assert [one["sessionId"] for one in (await editor.call("session/list"))["sessions"]] == [session]
        async with editing(services) as editor:
            await editor.call("session/resume", **place)
            await editor.until(lambda: editor.updates(session))
            # What it can be told comes behind the answer, and nothing of what was said.
            assert [one.get("result") is not None for one in editor.order] == [True, True, False]
            assert [one["sessionUpdate"] for one in editor.updates(session)] == ["available_commands_update"]


async def test_what_is_wrong_is_said(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        place = {"cwd": str(services.files), "mcpServers": []}
        assert await editor.refused("session/new", cwd="rel", mcpServers=[]) == INVALID_PARAMS
        assert await editor.refused("session/new", cwd=str(services.files)) == INVALID_PARAMS
        assert await editor.refused("session/new", mcpServers=[], _meta={"cwd": "/etc"}) == INVALID_PARAMS
        assert await editor.refused("session/prompt", sessionId="none/none", prompt=[]) == NOT_FOUND
        assert await editor.refused("session/load", sessionId="none/none", **place) == NOT_FOUND
        assert await editor.refused("session/dance") == NO_METHOD
        session = await editor.new()
        assert await editor.refused("session/set_mode", sessionId=session, modeId="fly") == INVALID_PARAMS
        assert await editor.refused("session/prompt", sessionId=session, prompt=[{"type": "song"}]) == INVALID_PARAMS


async def test_a_mode_holds_from_the_next_prompt_and_can_be_taken_back(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        services.script('<set path="a.txt">1\n</set>' + DONE)
        session = await editor.new()
        await editor.call("session/set_mode", sessionId=session, modeId="yolo")
        await editor.prompt(session)
        assert ((services.files / "a.txt").read_text(), editor.asked) == ("1\n", [])
        await editor.call("session/set_mode", sessionId=session, modeId="act")
        editor.decide = lambda request: "reject_once"
        services.script('<set path="b.txt">2\n</set>' + DONE, DONE)
        await editor.prompt(session)
        assert len(editor.asked) == 1
        assert not (services.files / "b.txt").exists()


PLAN = '<set_plan kind="items">[{"content": "one", "priority": "high", "status": "pending"}]</set_plan>'


@pytest.mark.parametrize(("capabilities", "kind"), [(PLANS, "plan_update"), ({}, "plan")])
async def test_each_editor_gets_plans_in_its_own_form(tmp_path, capabilities, kind):
    async with running(tmp_path) as services:
        services.script(PLAN + DONE)
        async with editing(services, capabilities) as editor:
            session = await editor.new()
            await editor.prompt(session)
            sent = editor.updates(session, "plan", "plan_update", "plan_removed")
            assert {one["sessionUpdate"] for one in sent} == {kind}
            entries = sent[-1]["plan"]["entries"] if kind == "plan_update" else sent[-1]["entries"]
            assert entries == [{"content": "one", "priority": "high", "status": "pending"}]
        other, theirs = ({}, "plan") if kind == "plan_update" else (PLANS, "plan_update")
        async with editing(services, other) as editor:
            await editor.call("session/load", sessionId=session, cwd=str(services.files), mcpServers=[])
            assert [one["sessionUpdate"] for one in editor.updates(session, "plan", "plan_update")] == [theirs]


async def test_the_editor_executes_its_own_tools(tmp_path):
    files = {"readTextFile": True, "writeTextFile": True}
    async with running(tmp_path) as services, editing(services, {"fs": files}) as editor:
        buffers = {str(services.files / "a.txt"): "not saved\n"}
        editor.answers = {
            "fs/read_text_file": lambda given: {"content": buffers[given["path"]]},
            "fs/write_text_file": lambda given: buffers.__setitem__(given["path"], given["content"]) or {},
        }
        services.script(
            '<editor_read path="a.txt"/>' + '<update status="102">Reading.</update>',
            '<editor_write path="a.txt" content="written"/>' + '<update status="102">Writing.</update>',
            DONE,
        )
        session = await editor.new()
        assert await editor.prompt(session) == {"stopReason": "end_turn"}
        assert buffers == {str(services.files / "a.txt"): "written"}
        assert [one["method"] for one in editor.asked] == [
            "fs/read_text_file",
            "session/request_permission",
            "fs/write_text_file",
        ]
