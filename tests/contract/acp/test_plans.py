"""Plans over the protocol (AP04-AP18, AP35-AP44)."""

import asyncio

import pytest
from turnwright.types.v1 import plan_pb2

from contract.acp.editors import PLANS, editing
from services import running
from turnwright_acp.plans import PlanUpdates

DONE = '<update status="200">Done.</update>'
NOTES = '# Früh 🌅\u2028 \\ "\n- [x] done\n- [ ] next'


@pytest.fixture(autouse=True)
def _model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "1000000")


def told(editor, session):
    return editor.updates(session, "plan", "plan_update", "plan_removed")


def file_plan(path):
    return plan_pb2.Plan(plan_id="f", kind=plan_pb2.PLAN_KIND_FILE, body=path)


@pytest.mark.asyncio
async def test_each_change_of_a_plan_is_one_update_and_its_removal_too(tmp_path):
    async with running(tmp_path) as services, editing(services, PLANS) as editor:
        session = await editor.new()
        at = (services.project, session.partition("/")[2])
        items = [
            plan_pb2.PlanItem(content="x", status=plan_pb2.PLAN_STATUS_BLOCKED, priority=plan_pb2.PLAN_PRIORITY_LOW)
        ]
        await services.client.set_plan(*at, plan_pb2.Plan(plan_id="i", kind=plan_pb2.PLAN_KIND_ITEMS, items=items))
        await editor.until(lambda: len(told(editor, session)) == 1)
        await services.client.set_plan(*at, plan_pb2.Plan(plan_id="n", body=NOTES))
        await editor.until(lambda: len(told(editor, session)) == 2)
        await services.client.update_plan(*at, "more", plan_id="n")
        await editor.until(lambda: len(told(editor, session)) == 3)
        await services.client.delete_plan(*at, plan_id="i")
        await editor.until(lambda: len(told(editor, session)) == 4)
        entry = {"content": "x", "priority": "low", "status": "pending", "_meta": {"status": "blocked"}}
        assert told(editor, session) == [
            {"sessionUpdate": "plan_update", "plan": {"type": "items", "planId": "i", "entries": [entry]}},
            {"sessionUpdate": "plan_update", "plan": {"type": "markdown", "planId": "n", "content": NOTES}},
            {
                "sessionUpdate": "plan_update",
                "plan": {"type": "markdown", "planId": "n", "content": NOTES + "\n\nmore"},
            },
            {"sessionUpdate": "plan_removed", "planId": "i"},
        ]
        # Loaded again: each once, as it is now, before the answer; what is gone is gone.
        before = len(told(editor, session))
        await editor.call("session/load", **editor.place(session))
        assert [one["plan"]["content"] for one in told(editor, session)[before:]] == [NOTES + "\n\nmore"]
        assert "result" in editor.order[-2]
        await editor.call("session/resume", **editor.place(session))
        assert len(told(editor, session)) == before + 1


@pytest.mark.asyncio
async def test_a_plan_in_a_file_follows_it(tmp_path):
    async with running(tmp_path) as services, editing(services, PLANS) as editor:
        (services.files / "plan.md").write_text("# One\n")
        services.script('<get path="plan.md"/>' + DONE)
        session = await editor.new()
        at = (services.project, session.partition("/")[2])
        await editor.prompt(session)
        await services.client.set_plan(*at, file_plan("plan.md"))
        await editor.until(lambda: told(editor, session))
        services.script('<set path="plan.md"># Two\n</set>' + DONE)
        await editor.prompt(session, "Again.")
        path = str(services.files / "plan.md")
        assert [one["plan"] for one in told(editor, session)] == [
            {"type": "markdown", "planId": "f", "content": text, "path": path} for text in ("# One\n", "# Two\n")
        ]


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret.md"])
def test_a_file_outside_the_project_is_no_file_of_a_plan(tmp_path, path):
    (update,) = PlanUpdates(tmp_path).put(file_plan(path), "")
    assert update["plan"] == {"type": "markdown", "planId": "f", "content": ""}


@pytest.mark.asyncio
async def test_a_plan_whose_file_is_not_there_is_empty_until_it_is(tmp_path):
    async with running(tmp_path) as services, editing(services, PLANS) as editor:
        services.script(DONE)
        session = await editor.new()
        at = (services.project, session.partition("/")[2])
        await services.client.set_plan(*at, file_plan("none.md"))
        await editor.until(lambda: told(editor, session))
        assert told(editor, session)[0]["plan"]["content"] == ""
        assert (await editor.prompt(session))["stopReason"] == "end_turn"


@pytest.mark.asyncio
async def test_the_one_list_comes_with_the_texts_that_it_cannot_show_each_once(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        session = await editor.new()
        at = (services.project, session.partition("/")[2])
        await services.client.set_plan(*at, plan_pb2.Plan(plan_id="n", body=NOTES))
        await editor.until(lambda: told(editor, session))
        assert editor.said(session) == NOTES
        assert [one["status"] for one in told(editor, session)[-1]["entries"]] == ["completed", "pending"]
        await services.client.delete_plan(*at, plan_id="n")
        await editor.until(lambda: len(told(editor, session)) == 2)
        assert told(editor, session)[-1] == {"sessionUpdate": "plan", "entries": []}


@pytest.mark.asyncio
async def test_plans_of_one_turn_come_before_its_answer_and_before_who_is_asked_about_them(tmp_path):
    async with running(tmp_path) as services, editing(services, PLANS) as editor:
        plans = "".join(f'<set_plan kind="markdown" plan_id="p{n}"># {n}</set_plan>' for n in range(5))
        services.script(plans + '<set path="a.txt">1\n</set>' + DONE)
        session = await editor.new()
        await editor.prompt(session)
        order = [
            one["params"]["update"]["plan"]["planId"]
            if one.get("params", {}).get("update", {}).get("sessionUpdate") == "plan_update"
            else one.get("method") or "answer"
            for one in editor.order
        ]
        asked, answered = order.index("session/request_permission"), len(order) - 1
        assert [order.index(f"p{n}") < asked < answered for n in range(5)] == [True] * 5
        assert order[answered] == "answer"


@pytest.mark.asyncio
async def test_both_forms_are_told_of_one_run_after_every_service_has_gone(tmp_path):
    async with running(tmp_path) as services, editing(services, PLANS) as one, editing(services) as other:
        session = await one.new()
        at = (services.project, session.partition("/")[2])
        await other.call("session/load", **other.place(session))
        await services.client.set_plan(*at, plan_pb2.Plan(plan_id="a", body="# A"))
        await asyncio.gather(*(editor.until(lambda e=editor: told(e, session)) for editor in (one, other)))
        for service in ("store", "executor"):
            await services.restart(service)
        await services.client.set_plan(*at, plan_pb2.Plan(plan_id="a", body="# B"))
        await asyncio.gather(*(editor.until(lambda e=editor: len(told(e, session)) == 2) for editor in (one, other)))
        # What they have is not told again (AP43).
        assert [update["plan"]["content"] for update in told(one, session)] == ["# A", "# B"]
        assert [update["entries"][0]["content"] for update in told(other, session)] == ["A", "B"]
        assert other.said(session) == "# A# B"
