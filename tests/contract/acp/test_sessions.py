"""Sessions over their life: what waits when they are opened, two editors on one run (AG06-AG10)."""

import base64
from contextlib import aclosing
from dataclasses import replace
from datetime import datetime

import pytest
from turnwright.types.v1 import settings_pb2

from contract.acp.editors import PLANS, editing
from services import running
from turnwright_client.client import loop_in
from turnwright_core.limits import IMAGE_BYTES_MAX

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
INVALID_PARAMS, INTERNAL, NOT_FOUND, AUTH_REQUIRED = -32602, -32603, -32002, -32000
PNG = b"\x89PNG\r\n\x1a\n" + bytes(40)


pytestmark = pytest.mark.asyncio


@pytest.fixture(autouse=True)
def _model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "1000000")


def nobody(request):
    """Leaves a permission undecided."""


async def waiting(editor, session, text="Do it."):
    """A prompt whose permission nobody has decided."""
    editor.decide = nobody
    prompt = await editor.begin_prompt(session, text)
    await editor.until(lambda: editor.asked)
    return prompt


async def test_what_waits_is_asked_again_when_the_session_is_loaded(tmp_path):
    async with running(tmp_path) as services:
        services.script('<set path="a.txt">new\n</set>' + DONE)
        async with editing(services) as editor:
            session = await editor.new()
            await waiting(editor, session)
        async with editing(services) as editor:
            await editor.call("session/load", **editor.place(session))
            assert [one["status"] for one in editor.updates(session, "tool_call")] == ["pending"]
            await editor.until(
                lambda: [one for one in editor.updates(session, "tool_call_update") if one.get("status") == "completed"]
            )
            assert [one["method"] for one in editor.asked] == ["session/request_permission"]
            loaded = next(place for place, one in enumerate(editor.order) if one.get("id") == 2 and "result" in one)
            assert editor.order.index(editor.asked[0]) > loaded
        assert (services.files / "a.txt").read_text() == "new\n"


async def test_a_tool_of_an_editor_that_is_gone_is_executed_by_the_one_that_loads(tmp_path):
    async with running(tmp_path) as services:
        services.script('<editor_read path="a.txt"/>' + GO_ON, DONE)
        async with editing(services, {"fs": {"readTextFile": True}}) as editor:
            editor.answers = {"fs/read_text_file": nobody}
            session = await editor.new()
            await editor.begin_prompt(session)
            await editor.until(lambda: editor.asked)
        async with editing(services) as editor:
            # Without the tool it can do nothing about the call, which waits.
            await editor.call("session/load", **editor.place(session))
        async with editing(services, {"fs": {"readTextFile": True}}) as editor:
            editor.answers = {"fs/read_text_file": lambda given: {"content": "not saved"}}
            await editor.call("session/load", **editor.place(session))
            ended = await editor.until(
                lambda: [one for one in editor.updates(session, "tool_call_update") if "rawOutput" in one]
            )
            assert ended[0]["rawOutput"]["text"] == "not saved"


async def test_of_two_editors_one_decides_and_the_other_is_told(tmp_path):
    async with running(tmp_path) as services, editing(services) as one, editing(services, PLANS) as other:
        services.script('<set_plan kind="markdown" plan_id="p"># Plan</set_plan><set path="a.txt">new\n</set>' + DONE)
        session = await one.new()
        other.decide = nobody
        await other.call("session/resume", **other.place(session))
        prompt = await waiting(one, session)
        await other.until(lambda: other.asked)
        await one.peer.send(
            {"id": one.asked[0]["id"], "result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}
        )
        await prompt
        await other.until(lambda: other.told("$/cancel_request"))
        assert other.told("$/cancel_request") == [{"requestId": other.asked[0]["id"]}]
        # Each has the plans in its own form, before it is asked (AP03, AP05, AP44), and the prompt of the other one.
        for editor, kind in ((one, "plan"), (other, "plan_update")):
            found = [position for position, message in enumerate(editor.order) if message in editor.asked]
            told = [
                position
                for position, message in enumerate(editor.order)
                if message.get("params", {}).get("update", {}).get("sessionUpdate") == kind
            ]
            assert told
            assert max(told) < found[0]
        assert (one.said(session, "user_message_chunk"), other.said(session, "user_message_chunk")) == ("", "Do it.")


async def test_a_prompt_in_the_queue_is_taken_back_without_the_task_of_the_other_editor(tmp_path):
    async with running(tmp_path) as services, editing(services) as one, editing(services) as other:
        services.script('<set path="a.txt">new\n</set>' + DONE)
        session = await one.new()
        other.decide = nobody
        await other.call("session/resume", **other.place(session))
        first = await waiting(one, session)
        second = await other.begin_prompt(session, "And this.")
        await other.tell("session/cancel", sessionId=session)
        assert (await second)["result"] == {"stopReason": "cancelled"}
        assert not first.done()
        await one.peer.send(
            {"id": one.asked[0]["id"], "result": {"outcome": {"outcome": "selected", "optionId": "allow_once"}}}
        )
        assert (await first)["result"] == {"stopReason": "end_turn"}
        assert (services.files / "a.txt").exists()


async def test_a_prompt_that_nobody_has_claimed_is_cancelled(tmp_path):
    async with running(tmp_path, loops_max=1) as services, editing(services) as editor:
        services.script("<sh>while [ ! -e go ]; do sleep 0.05; done</sh>" + DONE)
        busy = await editor.new()
        first = await editor.begin_prompt(busy)
        await editor.until(lambda: editor.asked)
        session = await editor.new()
        prompt = await editor.begin_prompt(session)
        run = session.partition("/")[2]
        async with aclosing(services.client.watch(services.project, run)) as events:
            assert await anext(loop async for event in events if (loop := loop_in(event)))
        await editor.tell("session/cancel", sessionId=session)
        assert (await prompt)["result"] == {"stopReason": "cancelled"}
        assert (await services.client.wait_loop(services.project, run, 1)).status == 499
        assert not first.done()


async def test_a_prompt_that_services_do_not_take_is_cancelled_and_never_given(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        services.script(DONE)
        session = await editor.new()
        await services.stop("executor")
        prompt = await editor.begin_prompt(session)
        await editor.tell("session/cancel", sessionId=session)
        assert (await prompt)["result"] == {"stopReason": "cancelled"}
        await services.start("executor")
        assert await editor.prompt(session, "Go on.") == {"stopReason": "end_turn"}
        run = (await services.client.get_run(services.project, session.partition("/")[2])).run
        assert (run.loop.sequence, run.loop.prompt) == (1, "Go on.")


@pytest.mark.parametrize("how", ["$/cancel_request", "session/cancel", "session/close"])
async def test_however_a_prompt_is_cancelled_it_answers_so_and_nothing_follows(tmp_path, how):
    async with running(tmp_path) as services, editing(services, PLANS) as editor:
        services.script(
            '<set_plan kind="markdown" plan_id="p"># Plan</set_plan><set path="a.txt">new\n</set>' + DONE, DONE
        )
        session = await editor.new()
        prompt = await waiting(editor, session)
        if how == "$/cancel_request":
            await editor.tell(how, requestId=len(editor.methods))
        elif how == "session/cancel":
            await editor.tell(how, sessionId=session)
        else:
            await editor.call(how, sessionId=session)
        answer = await prompt
        assert answer["result"]["stopReason"] == "cancelled"
        run = session.partition("/")[2]
        assert (await services.client.wait_loop(services.project, run, 1)).status == 499
        if how != "session/close":
            behind = editor.order[editor.order.index(answer) + 1 :]
            # Its plans are as they were, and the next prompt is answered.
            editor.decide = lambda request: "reject_once"
            assert (await editor.prompt(session, "Go on."))["stopReason"] == "end_turn"
            assert [one for one in behind if one.get("method") == "session/update"] == []
            assert len(editor.updates(session, "plan_update")) == 1


async def test_a_question_ends_the_prompt_and_the_next_one_answers_it(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        services.script('<ask_user question="Red or blue?" options="red|blue"/>' + GO_ON, "It is red." + DONE)
        session = await editor.new()
        assert await editor.prompt(session) == {"stopReason": "end_turn"}
        assert "Red or blue?" in editor.said(session)
        assert await editor.prompt(session, "red") == {"stopReason": "end_turn"}
        assert editor.said(session).endswith("It is red.\n\nDone.")
        run = (await services.client.get_run(services.project, session.partition("/")[2])).run
        assert (run.loop.sequence, run.loop.status) == (1, 200)


async def test_images_reach_the_model_as_they_are(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        services.script(DONE)
        session = await editor.new()
        image = {"type": "image", "mimeType": "image/png", "data": base64.b64encode(PNG).decode()}
        text = {"type": "text", "text": "What is this?"}
        assert await editor.call("session/prompt", sessionId=session, prompt=[text, image]) == {
            "stopReason": "end_turn"
        }
        kept = await services.client.get_entry(services.project, session.partition("/")[2], "image://loop_1/1")
        assert base64.b64decode(kept.body) == PNG
        for data in ("not base64", "", base64.b64encode(bytes(IMAGE_BYTES_MAX + 1)).decode()):
            bad = {**image, "data": data}
            assert await editor.refused("session/prompt", sessionId=session, prompt=[text, bad]) == INVALID_PARAMS
        song = {"type": "audio", "mimeType": "audio/wav", "data": ""}
        assert await editor.refused("session/prompt", sessionId=session, prompt=[text, song]) == INVALID_PARAMS


async def test_files_of_a_prompt_are_named_or_brought_along(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        services.script(DONE)
        session = await editor.new()
        inside, text = (services.files / "src" / "a b.py").as_uri(), "a ``` b"
        prompt = [
            {"type": "text", "text": "Look at"},
            {"type": "resource_link", "uri": inside, "name": "a b.py"},
            {"type": "resource", "resource": {"uri": inside, "text": text}},
        ]
        await editor.call("session/prompt", sessionId=session, prompt=prompt)
        asked = (await services.client.get_run(services.project, session.partition("/")[2])).run.loop.prompt
        assert asked == "Look at\n\n@src/a b.py\n\nsrc/a b.py:\n````\na ``` b\n````"


async def test_a_change_is_shown_with_the_text_before_and_after(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        old = "".join(f"line {number}\n" for number in range(40))
        (services.files / "a.txt").write_text(old)
        services.script('<set path="a.txt">new\n</set><set path="b.txt">made\n</set>' + DONE)
        session = await editor.new()
        await editor.prompt(session)
        at = str(services.files)
        changed = {"type": "diff", "path": f"{at}/a.txt", "oldText": old, "newText": "new\n"}
        made = {"type": "diff", "path": f"{at}/b.txt", "newText": "made\n"}
        assert [one["params"]["toolCall"]["content"] for one in editor.asked] == [[changed], [made]]
        shown = [one["content"] for one in editor.updates(session, "tool_call_update") if "content" in one]
        # First as what is proposed, and with the result in the end.
        assert [one[0] for one in shown] == [changed, changed, made, made]
        assert [len(one) for one in shown] == [1, 2, 1, 2]
        await editor.call("session/load", **editor.place(session))
        calls = editor.updates(session, "tool_call")[-2:]
        assert [one["content"][0] for one in calls] == [changed, made]


async def test_the_output_of_a_command_is_shown_while_it_runs(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        services.script("<sh>echo begun; while [ ! -e go ]; do sleep 0.05; done; echo ended</sh>" + DONE)
        session = await editor.new()
        prompt = await editor.begin_prompt(session)

        def output():
            shown = [one["content"] for one in editor.updates(session, "tool_call_update") if one.get("content")]
            return shown[-1][-1]["content"]["text"] if shown else ""

        await editor.until(lambda: "begun" in output())
        assert not prompt.done()
        (services.files / "go").touch()
        await prompt
        assert output() == "begun\nended\n"
        call = editor.updates(session, "tool_call")[0]
        assert (call["kind"], call["rawInput"]["command"][:10]) == ("execute", "echo begun")


async def test_the_editor_runs_commands_in_its_terminal(tmp_path):
    async with running(tmp_path) as services, editing(services, {"terminal": True}) as editor:
        editor.answers = {
            "terminal/create": lambda given: {"terminalId": given["args"][1]},
            "terminal/wait_for_exit": lambda given: {"exitCode": 3},
            "terminal/output": lambda given: {"output": "no such thing", "truncated": False},
            "terminal/release": lambda given: {},
        }
        services.script('<editor_run command="make"/>' + GO_ON, DONE)
        session = await editor.new()
        await editor.prompt(session)
        assert [one["method"] for one in editor.asked] == [
            "session/request_permission", "terminal/create", "terminal/wait_for_exit", "terminal/output", "terminal/release",
        ]  # fmt: skip
        shown = editor.updates(session, "tool_call_update")
        assert [{"type": "terminal", "terminalId": "make"}] in [one.get("content") for one in shown]
        assert "exit=3\nno such thing" in shown[-1]["rawOutput"]["text"]


@pytest.mark.parametrize("path", ["/etc/passwd", "../secret", "link/secret", ""])
async def test_the_editor_is_asked_for_files_of_the_project_only(tmp_path, path):
    files = {"readTextFile": True}
    async with running(tmp_path) as services, editing(services, {"fs": files}) as editor:
        (services.files / "link").symlink_to(tmp_path)
        services.script(f'<editor_read path="{path}"/>' + GO_ON, DONE)
        session = await editor.new()
        await editor.prompt(session)
        assert editor.asked == []


async def test_the_settings_that_somebody_else_changes_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_n", "scripted/n")
    async with running(tmp_path) as services, editing(services) as one, editing(services) as other:
        session = await one.new()
        await other.call("session/resume", **other.place(session))
        await one.call("session/set_mode", sessionId=session, modeId="yolo")
        answer = await one.call("session/set_config_option", sessionId=session, configId="model", value="n")
        assert answer["configOptions"][0]["currentValue"] == "n"
        await other.until(lambda: other.updates(session, "config_option_update"))
        assert [one["currentModeId"] for one in other.updates(session, "current_mode_update")] == ["yolo"]
        assert other.updates(session, "config_option_update")[-1]["configOptions"][0]["currentValue"] == "n"
        assert one.updates(session, "current_mode_update", "config_option_update") == []
        for option in ({"configId": "model", "value": "none"}, {"configId": "taste", "value": "x"}):
            assert await one.refused("session/set_config_option", sessionId=session, **option) < 0


async def test_sessions_are_listed_forked_and_deleted(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        services.script("One." + DONE)
        session = await editor.new()
        await editor.prompt(session, "First task")
        services.script("Two." + DONE)
        forked = (await editor.call("session/fork", **editor.place(session)))["sessionId"]
        listed = {one["sessionId"]: one for one in (await editor.call("session/list"))["sessions"]}
        assert set(listed) == {session, forked}
        assert (listed[session]["title"], listed[session]["cwd"]) == ("First task", str(services.files))
        assert (await editor.call("session/list", cwd=str(tmp_path)))["sessions"] == []
        assert await editor.refused("session/list", cursor="x") == INVALID_PARAMS
        await editor.prompt(forked, "Second task")
        assert "Two." in editor.said(forked)
        await editor.call("session/delete", sessionId=session)
        assert [one["sessionId"] for one in (await editor.call("session/list"))["sessions"]] == [forked]
        assert await editor.refused("session/prompt", sessionId=session, prompt=[]) == NOT_FOUND


@pytest.mark.parametrize(("capabilities", "kinds"), [({}, {"stopReason"}), (PLANS, {"stopReason", "usage"})])
async def test_what_a_session_has_used_is_told(tmp_path, capabilities, kinds):
    async with running(tmp_path) as services, editing(services, capabilities) as editor:
        services.script(DONE)
        session = await editor.new()
        answer = await editor.prompt(session)
        (told,) = editor.updates(session, "usage_update")
        assert 0 < told["used"] < told["size"]
        assert set(answer) == kinds
        if "usage" in kinds:
            used = answer["usage"]
            assert used["inputTokens"] + used["outputTokens"] == used["totalTokens"] == told["used"]


async def test_the_title_of_a_session_is_told_when_it_changes(tmp_path):
    async with running(tmp_path) as services, editing(services) as one, editing(services) as other:
        services.script(DONE, DONE)
        session = await one.new()
        await other.call("session/resume", **other.place(session))
        for text in ("First\n task", "Second task"):
            await one.prompt(session, text)
        await other.until(lambda: "Second task" in other.said(session, "user_message_chunk"))
        for editor in (one, other):
            (told,) = editor.updates(session, "session_info_update")
            assert told["title"] == "First task"
            assert datetime.fromisoformat(told["updatedAt"])
        patch = settings_pb2.RunSettingsPatch(title="Named")
        await services.client.configure_run(services.project, session.partition("/")[2], patch)
        for editor in (one, other):
            await editor.until(lambda editor=editor: len(editor.updates(session, "session_info_update")) == 2)
            assert editor.updates(session, "session_info_update")[1]["title"] == "Named"


async def test_the_title_that_a_model_writes_is_told_once_it_is_written(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_cheap", "scripted/cheap")
    async with running(tmp_path, title_model="cheap") as services, editing(services) as editor:
        services.script(DONE)
        services.script("By a model", name="cheap")
        session = await editor.new()
        await editor.prompt(session)
        await editor.until(lambda: len(editor.updates(session, "session_info_update")) > 1)
        assert [one["title"] for one in editor.updates(session, "session_info_update")] == ["Do it.", "By a model"]


async def test_who_needs_a_token_is_told_how_to_give_one(tmp_path):
    async with (
        running(tmp_path) as services,
        services.client.connect(services.addresses["executor"], "another secret") as stranger,
        editing(replace(services, client=stranger), is_remote=True) as editor,
    ):
        said = editor.order[0]["result"]["authMethods"]
        assert [one["id"] for one in said] == ["token"]
        assert await editor.refused("authenticate", methodId="token") == AUTH_REQUIRED
        assert await editor.refused("authenticate", methodId="magic") == INVALID_PARAMS
        assert await editor.refused("session/new", cwd=str(services.files), mcpServers=[]) == AUTH_REQUIRED


async def test_a_prompt_may_be_a_command(tmp_path):
    async with running(tmp_path) as services, editing(services) as editor:
        (services.files / "a.txt").write_text("old\n")
        services.script('One.<set path="a.txt">new\n</set>' + DONE)
        session = await editor.new()
        await editor.prompt(session)
        offered = editor.updates(session, "available_commands_update")[-1]["availableCommands"]
        assert [one["name"] for one in offered] == ["undo", "retry"]
        assert await editor.prompt(session, "/undo") == {"stopReason": "end_turn"}
        assert (services.files / "a.txt").read_text() == "old\n"
        assert "Undid turn 1" in editor.said(session)
        services.script("Two." + DONE)
        assert await editor.prompt(session, "/retry") == {"stopReason": "end_turn"}
        assert editor.said(session).endswith("Two.\n\nDone.")
