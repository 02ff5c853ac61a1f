"""Cases of chats from another agent, carried out by the services: approvals, results of clients, branches. RC07, RC08."""

from __future__ import annotations

import contextlib
import json

import pytest
import pytest_asyncio
from turnwright.types.v1 import plan_pb2, rule_pb2, run_message_pb2, settings_pb2
from turnwright.types.v1 import session_command_pb2 as pb

from cases import load_cases
from contract.executor.proposing import DONE, GO_ON
from contract.executor.sessions import ACT, RESTING, named, say, until_state
from contract.executor.test_native_calls import NATIVE, calling
from services import running
from sse_server import SseServer
from turnwright_client.sessions import user_message
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio

PATH = json.dumps({"type": "object", "properties": {"path": {"type": "string"}}})
TOOL = settings_pb2.ToolDescription(name="open_file", description="Opens a file in the editor.", parameters=PATH)


FINISHED = ("update", {"status": "200", "body": "Done."})
TOOLS = ("sh", "set", "mv", "get", "open_file")
"""The tools of the commands that the cases are about."""


def cases(file: str, *kinds: str) -> list[dict]:
    return [case for case in load_cases(f"refact/{file}.jsonl") if case["id"].startswith(kinds)]


async def state(services, run: str) -> str:
    return named((await services.client.get_run(services.project, run)).run.state)


async def records(services, run: str) -> list:
    """The records of the commands that the cases are about, in their order."""
    found = [entry async for entry in services.client.list_entries(services.project, run, "log://**")]
    return sorted((entry for entry in found if entry.path.split("/")[3] in TOOLS), key=lambda entry: entry.position)


async def answered(services, run: str, path: str, **command) -> None:
    """Answer a call that waits, and wait until another one waits or the loop has ended."""
    await services.client.submit(services.project, run, **command)
    async with contextlib.aclosing(services.client.watch(services.project, run)) as events:
        async for _ in events:
            left = await waiting(services, run)
            if (left and path not in left) or await state(services, run) in RESTING:
                return


async def waiting(services, run: str) -> list[str]:
    return list((await services.client.get_run(services.project, run)).proposals)


# ---- Which commands are asked about

EDITING = {"patch", "apply_patch", "text_edit", "create_textdoc", "update_textdoc", "replace_textdoc",
           "update_textdoc_regex", "update_textdoc_by_lines", "update_textdoc_anchored", "undo_textdoc"}  # fmt: skip
ASKED_ABOUT = {"set", "mv", "rm", "sh"}
"""Our tools whose effects wait for a decision."""
FLAGS = {
    "auto_approve_editing_tools": ["set", "rm", "mv", "cp"],
    "auto_approve_dangerous_commands": ["sh"],
}
"""Flags of threads, as approvals for the run."""
NO_COUNTERPART = {"ask_questions": "a question is asked, whoever approves effects"}


def our_tool(name: str, result: str = "") -> str:
    """Our tool that is like one of the cases, by what it does and whether it asks."""
    if name in ("shell", "sh"):
        return "sh"
    if name == "mv":
        return "mv"
    return "set" if name in EDITING or result == "CONFIRMATION" else "get"


COMMANDS = {
    "sh": "<sh>echo one</sh>",
    "set": '<set path="{run}.txt">one</set>',
    "mv": '<mv path="b.txt" to="c.txt"/>',
    "get": '<get path="a.txt"/>',
}


def denied(tool: str) -> rule_pb2.Rule:
    return rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_DENY, tool=tool)


async def outcome(services, run: str, tool: str, rules: list[rule_pb2.Rule], *, yolo: bool, mode: int) -> str:
    """What becomes of a command: auto, ask or deny."""
    (services.files / "b.txt").write_text("b")
    services.script(COMMANDS[tool].replace("{run}", run) + GO_ON, DONE)
    await services.client.create_run(services.project, run, settings_pb2.RunSettings(model="m"))
    for rule in rules:
        await services.client.set_rule(services.project, rule, run)
    loop = settings_pb2.LoopSettings(model="m", yolo=yolo, mode=mode)
    answer = await services.client.submit(services.project, run, user_message=user_message("Do it.", settings=loop))
    came_to = await until_state(services, "paused", "idle", "completed", "error", cursor=answer.event_cursor, run=run)
    if came_to == "paused":
        return "ask"
    [record] = await records(services, run)
    return "auto" if record.status == 200 else "deny"


async def test_a_case_of_approvals_comes_to_what_it_expects(services):
    # RC07: `action/` is a policy, a mode and an approval of one command; `auto/` are flags of a thread
    found, expected = {}, {}
    for number, case in enumerate(cases("confirmation", "action/")):
        given, run = case["input"], f"action-{number}"
        tool, action = our_tool(given["tool_name"], given["tool_result"]), given["mode_action"]
        if tool == "sh" and (given["tool_result"], action, given["auto_approved"]) == ("PASS", None, False):
            # Ours asks about every command of a shell: no list says which are harmless.
            continue
        mode = settings_pb2.MODE_ASK if given["tool_result"] == "DENY" else settings_pb2.MODE_ACT
        rules = [denied(tool)] if action == "deny" else []
        expected[case["id"]] = case["expected"]
        found[case["id"]] = await outcome(services, run, tool, rules, yolo=given["auto_approved"], mode=mode)
    for number, case in enumerate(cases("confirmation", "auto/")):
        thread, name, run = case["input"]["thread"], case["input"]["tool_name"], f"auto-{number}"
        tool = our_tool(name)
        if name in NO_COUNTERPART or tool not in ASKED_ABOUT:
            continue
        approved = [each for flag, names in FLAGS.items() if thread.get(flag) for each in names]
        rules = [rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW, tool=one) for one in approved]
        yolo = bool(thread.get("autonomous_no_confirm"))
        expected[case["id"]] = "auto" if case["expected"] else "ask"
        found[case["id"]] = await outcome(services, run, tool, rules, yolo=yolo, mode=settings_pb2.MODE_ACT)
    assert found == expected
    assert len(found) > 8


async def test_a_batch_is_decided_call_by_call(services):
    # C28: what others of the batch get is nobody else's matter, and the model goes on
    for number, case in enumerate(cases("confirmation", "any_rejection", "all_accepted")):
        batch, decisions, run = case["input"]["batch"], case["input"]["decisions"], f"batch-{number}"
        free = set(case["input"].get("auto_approved", ()))
        calls = [f'<get path="a.txt" id="{name}"/>' if name in free else f"<sh>echo {name}</sh>" for name in batch]
        services.script("".join(calls) + GO_ON, DONE)
        asking = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT)
        await say(services, "Do it.", asking, until="paused", run=run)
        executed = await decide(services, run, [(name, decisions[name]) for name in batch if name not in free], "No.")
        assert executed == [name for name, accepted in decisions.items() if accepted]
        assert executed == case["expected"]["executed"]
        await services.client.wait_loop(services.project, run, 1)
        turns = (await services.client.get_run(services.project, run)).run.turn
        assert turns == 2, "the model reads what became of each call"
        found = await records(services, run)
        assert [entry.status for entry in found[: len(batch)] if "get" in entry.path] == [200] * len(free)


async def decide(services, run: str, decisions: list[tuple[str, bool]], reason: str = "") -> list[str]:
    """Decide on calls one after the other, as each begins to wait; those that were carried out."""
    executed = []
    for name, accepted in decisions:
        [path] = await waiting(services, run)
        command = (
            {"approve_tools": pb.ApproveTools(calls=[path])}
            if accepted
            else {"reject_tools": pb.RejectTools(calls=[path], reason=reason)}
        )
        await answered(services, run, path, **command)
        executed += [name] if accepted else []
    return executed


async def test_results_stand_in_the_order_of_the_calls(services):
    for number, case in enumerate(cases("confirmation", "result_order")):
        order = case["expected"]["message_order"]
        services.script("".join(f"<sh>echo {place}</sh>" for place in order) + GO_ON, DONE)
        await say(services, "Do it.", ACT, until="completed", run=f"order-{number}")
        found = await records(services, f"order-{number}")
        assert [entry.path.rpartition("/")[2][-1] for entry in found] == [str(place) for place in order]


async def test_a_denial_is_read_and_pauses_nothing(services):
    for number, case in enumerate(cases("confirmation", "policy_denial", "invalid_escalation")):
        assert not case["expected"].get("pause", False)
        run = f"denied-{number}"
        assert await outcome(services, run, "sh", [denied("sh")], yolo=False, mode=settings_pb2.MODE_ACT) == "deny"
        [record] = await records(services, run)
        assert record.body.startswith("Nobody was asked: a rule denies this (deny sh)")


# ---- Decisions and results of native calls that wait


@pytest_asyncio.fixture
async def vendor(tmp_path, monkeypatch):
    """The services, and a vendor whose answers a test adds."""
    async with SseServer() as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as made:
            yield made, server


async def native_loop(services, run: str, until: str, **settings) -> None:
    await services.client.create_run(services.project, run, NATIVE)
    asking = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT, **settings)
    await say(services, "Do it.", asking, until=until, run=run)


async def by_id(services, run: str, turn: int = 1) -> dict:
    """The records of native calls, by the vendor's ids."""
    found = [entry async for entry in services.client.list_entries(services.project, run, f"log://turn_{turn}/**")]
    return {entry.record.vendor_call_id: entry for entry in found if entry.record.vendor_call_id}


def calls_in(message: dict, name: str) -> list[tuple]:
    return [
        (name, {"path" if name == "open_file" else "command": one["id"]}, one["id"]) for one in message["tool_calls"]
    ]


async def test_a_case_of_decisions_comes_to_what_it_expects(vendor):
    # RC07, RS06, C28
    services, server = vendor
    for number, case in enumerate(cases("session", "decide/")):
        [message] = case["input"]["init"]["messages"]
        given, expected, run = case["input"]["decisions"], case["expected"], f"decide-{number}"
        ids = [call["id"] for call in message["tool_calls"]]
        server.add(calling(*calls_in(message, "sh")), calling(FINISHED))
        await native_loop(services, run, "paused")
        before = await records(services, run)
        for one in given:
            call = (await by_id(services, run)).get(one["tool_call_id"])
            kind = "approve_tools" if one["accepted"] else "reject_tools"
            make = pb.ApproveTools if one["accepted"] else pb.RejectTools
            if call is None:
                with pytest.raises(TurnwrightError) as refused:
                    await services.client.submit(services.project, run, **{kind: make(calls=["call_1_9"])})
                assert refused.value.reason is Reason.ENTRY_NOT_FOUND
                assert await records(services, run) == before
                continue
            await answered(services, run, call.path, **{kind: make(calls=[call.record.call_id])})
        entries = await by_id(services, run)
        denied = [call for call in ids if entries[call].outcome == "rejected:403"]
        decided = {one["tool_call_id"] for one in given}
        assert [call for call in ids if call in decided and call not in denied] == expected["accepted"], case["id"]
        assert denied == expected.get("denied", [])
        left = [call for call in ids if entries[call].path in await waiting(services, run)]
        assert left == expected.get("left", [])
        assert (await state(services, run) == "paused") is bool(left)
        server.requests.clear()
        server._answers.clear()


async def test_a_case_of_results_of_clients_comes_to_what_it_expects(vendor):
    # RS06: the run goes on once every call of the latest reply has its result
    services, server = vendor
    for number, case in enumerate(cases("session", "ide_result")):
        run = f"ide-{number}"
        replies = [message for message in case["input"]["init"]["messages"] if message.get("tool_calls")]
        server.add(*(calling(*calls_in(reply, "open_file")) for reply in replies), calling(FINISHED))
        await native_loop(services, run, "waiting_ide", client_tools=[TOOL])
        for _ in replies[:-1]:
            [path] = await waiting(services, run)
            await answered(services, run, path, ide_tool_result=pb.IdeToolResult(call=path, content="old result"))
        completed = []
        for call, content, failed in (step["ide_result"] for step in case["input"]["steps"]):
            [path] = await waiting(services, run)
            named_call = (await by_id(services, run, len(replies)))[call]
            result = pb.IdeToolResult(call=named_call.record.call_id, content=content, failed=failed)
            if path == named_call.path:
                await answered(services, run, path, ide_tool_result=result)
            else:
                # A result for a call that does not wait yet is refused, and the one before it still waits.
                with pytest.raises(TurnwrightError):
                    await services.client.submit(services.project, run, ide_tool_result=result)
            completed.append(not await waiting(services, run))
        assert completed == case["expected"]["completed"], case["id"]
        server._answers.clear()


# ---- Branches and what comes back

KINDS = {
    "user": run_message_pb2.MESSAGE_KIND_PROMPT,
    "assistant": run_message_pb2.MESSAGE_KIND_REPLY,
    "tool": run_message_pb2.MESSAGE_KIND_RESULT,
    "event": run_message_pb2.MESSAGE_KIND_EVENT,
    "plan": run_message_pb2.MESSAGE_KIND_PLAN,
    "plan_delta": run_message_pb2.MESSAGE_KIND_PLAN,
}
"""Kinds of our messages, by roles and kinds of events in the cases; others have no message here."""


async def test_a_branch_and_a_restored_run_have_every_message(services):
    # RC08; where a case drops a message by its role, ours keeps it: a branch is a fork
    services.script(f'<get path="a.txt"/>{GO_ON}', f"<sh>exit 1</sh>{DONE}", DONE)
    await say(services, "One.", ACT)
    await services.client.set_plan(services.project, "r", plan_pb2.Plan(body="Then this."))
    await say(services, "Two.", ACT)
    project, client = services.project, services.client
    before = [message async for message in client.list_messages(project, "r")]
    branch = pb.BranchFromChat(source="r", up_to_message_id=before[-1].path)
    await client.submit(project, "b", branch_from_chat=branch)
    branched = [message async for message in client.list_messages(project, "b")]
    turn = (await client.get_run(project, "r")).run.turn
    revision = (await client.get_run(project, "r")).run.revision
    await client.submit(project, "r", truncate_messages=pb.TruncateMessages(from_index=0, expected_revision=revision))
    await client.submit(project, "r", rewind_to_turn=pb.RewindToTurn(turn=turn))
    restored = [message async for message in client.list_messages(project, "r")]
    there = {message.kind for message in before}
    for case in cases("restore_branch", "role_", "event_"):
        message = case["input"]["message"]
        kind = KINDS.get((message.get("event") or {}).get("subkind", message["role"]))
        if kind is None:
            continue
        assert kind in there, case["id"]
        assert kind in {one.kind for one in branched} or not case["expected"]["branch"]
        assert kind in {one.kind for one in restored} or not case["expected"]["restore"]
    assert [(one.path, one.message) for one in branched] == [(one.path, one.message) for one in before]
    assert {one.path for one in before if one.turn} <= {one.path for one in restored}
