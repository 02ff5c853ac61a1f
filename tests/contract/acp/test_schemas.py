"""Whole sessions by the published schemas of the protocol (AP14, AP15, AP34). Every other transcript is held to them too."""

import pytest

from contract.acp.editors import PLANS, editing
from contract.acp.schemas import FOLDER, IS_THERE, check_transcript
from needs import needs
from services import running

ITEMS = [{"content": str(n), "priority": p, "status": s} for n, (p, s) in enumerate(
    [("high", "pending"), ("medium", "in_progress"), ("low", "completed"), ("low", "cancelled"), ("high", "blocked")]
)]  # fmt: skip
REPLY = (
    f'I plan.<set_plan kind="items" plan_id="i">{ITEMS!s}</set_plan>'.replace("'", '"')
    + '<set_plan kind="markdown" plan_id="n"># Ünïcode\n- [x] it</set_plan>'
    + '<set path="a.txt">new\n</set><get path="none.txt"/><sh>echo out; exit 3</sh><update status="102">On.</update>'
)
DONE = '<rm path="a.txt"/><update status="200">Done.</update>'

pytestmark = [
    pytest.mark.asyncio,
    needs("the schemas of ACP", "they are with its SDK: `make node_modules/.installed`", there=IS_THERE),
]


@pytest.fixture(autouse=True)
def _model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "1000000")


@pytest.mark.parametrize(("capabilities", "kinds"), [({}, {"plan"}), (PLANS, {"plan_update", "plan_removed"})])
async def test_a_whole_session_is_valid(tmp_path, capabilities, kinds):
    async with running(tmp_path) as services, editing(services, capabilities) as editor:
        services.script(REPLY, DONE)
        session = await editor.new()
        assert (await editor.prompt(session))["stopReason"] == "end_turn"
        for mode in ("ask", "yolo", "act"):
            await editor.call("session/set_mode", sessionId=session, modeId=mode)
        await editor.call("session/set_config_option", sessionId=session, configId="reasoning", value="high")
        await services.client.delete_plan(services.project, session.partition("/")[2], plan_id="n")
        await editor.until(lambda: len(editor.updates(session, *kinds)) >= 3)
        await editor.call("session/load", **editor.place(session))
        await editor.call("session/list")
        await editor.call("session/close", sessionId=session)
        assert {one["sessionUpdate"] for one in editor.updates(session, "plan", "plan_update", "plan_removed")} == kinds
        tools = {one["title"].split()[0] for one in editor.updates(session, "tool_call")}
        assert tools == {"set", "get", "sh", "rm"}


def update(**fields):
    return [{"jsonrpc": "2.0", "method": "session/update", "params": {"sessionId": "s", "update": fields}}]


@pytest.mark.parametrize(
    ("fields", "has_plans"),
    [
        ({"sessionUpdate": "plan", "entries": [{"content": "x", "priority": "urgent", "status": "pending"}]}, False),
        ({"sessionUpdate": "plan", "entries": [], "title": "x"}, False),
        ({"sessionUpdate": "plan_removed", "planId": "p"}, False),
        ({"sessionUpdate": "plan_removed", "id": "p"}, True),
        ({"sessionUpdate": "tool_call", "toolCallId": "c"}, True),
    ],
)
async def test_what_is_not_valid_is_found(fields, has_plans):
    with pytest.raises(AssertionError):
        check_transcript(update(**fields), {}, has_plans=has_plans)
    assert FOLDER.is_dir()
