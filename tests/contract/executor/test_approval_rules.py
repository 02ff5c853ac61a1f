"""What runs do by approval rules. ADR 67."""

import pytest
from turnwright.types.v1 import command_record_pb2, rule_pb2, session_command_pb2, settings_pb2
from turnwright.types.v1.rule_pb2 import RULE_VERDICT_ALLOW, RULE_VERDICT_ASK, RULE_VERDICT_DENY

from contract.executor.proposing import DONE
from contract.executor.sessions import say
from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

ALLOW, ASK, DENY = RULE_VERDICT_ALLOW, RULE_VERDICT_ASK, RULE_VERDICT_DENY
ACTS = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT)
YOLO = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT, yolo=True)


async def rule(services, verdict, target, run="", tool="sh"):
    made = rule_pb2.Rule(verdict=verdict, tool=tool, target=target)
    return await services.client.set_rule(services.project, made, run)


async def records(services):
    found = services.client.list_entries(services.project, "r", "log://**/sh/*")
    return [entry async for entry in found]


async def test_what_a_rule_allows_nobody_is_asked_about_and_its_record_names_the_rule(services):
    made = await rule(services, ALLOW, "echo *")
    services.script(f"<sh>echo one; echo two</sh><sh>echo one > x.txt</sh>{DONE}")
    await say(services, "Do it.", ACTS, until="paused")
    first, second = await records(services)
    assert (first.status, second.status) == (200, 202)
    decided = first.record.rule
    assert (decided.id, decided.target, decided.by) == (made.id, "echo *", "operator")
    assert not second.record.HasField("rule")
    assert not (services.files / "x.txt").exists()


async def test_what_a_rule_denies_the_model_reads_also_with_yolo(services):
    await rule(services, DENY, "touch *")
    services.script(
        f"<sh>touch no.txt</sh>{DONE}", f"<sh>echo $(touch no.txt)</sh>{DONE}", f"<sh>echo > yes.txt</sh>{DONE}"
    )
    await say(services, "Do it.", YOLO, until="completed")
    denied = [entry for entry in await records(services) if entry.outcome]
    assert {(entry.outcome, entry.record.rule.verdict) for entry in denied} == {("rejected:403", DENY)}
    assert len(denied) >= 2
    assert denied[0].body == "Nobody was asked: a rule denies this (deny sh: touch *). Do without it."
    assert not (services.files / "no.txt").exists()


async def test_a_rule_of_the_run_that_asks_is_named_in_the_proposal_and_holds_with_yolo(services):
    await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
    made = await rule(services, ASK, "git *", "r")
    services.script(f"<sh>git status</sh>{DONE}")
    await say(services, "Do it.", YOLO, until="paused")
    [entry] = await records(services)
    assert (entry.status, entry.record.rule.id) == (202, made.id)


async def test_a_client_does_not_call_what_a_rule_denies(services):
    await rule(services, DENY, "touch *")
    await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
    record = await services.client.call_tool(services.project, "r", "sh", {}, "touch no.txt")
    assert (record.outcome, record.body.partition(" (")[0]) == ("rejected:403", "A rule of the project denies this")
    assert not (services.files / "no.txt").exists()
    allowed = await services.client.call_tool(services.project, "r", "sh", {}, "echo yes")
    assert (allowed.status, allowed.record.settled.decision.kind) == (200, 0)


async def test_always_is_refused_for_a_line_that_no_rule_allows_and_decides_nothing(services):
    services.script(f"<sh>echo 1 > x.txt</sh>{DONE}")
    await say(services, "Do it.", ACTS, until="paused")
    [path] = services.view().proposals
    scope = session_command_pb2.DECISION_SCOPE_RUN
    always = session_command_pb2.ApproveTools(calls=[path], scope=scope)
    with pytest.raises(TurnwrightError) as refused:
        await services.client.submit(services.project, "r", approve_tools=always)
    assert (refused.value.reason, refused.value.metadata["field"]) == (Reason.INVALID_FIELD, "scope")
    assert (await services.entry(path)).record.WhichOneof("stage") == "proposed"
    assert not await services.client.list_rules(services.project, "r")
    never = session_command_pb2.RejectTools(calls=[path], scope=scope, reason="No.")
    await services.client.submit(services.project, "r", reject_tools=never)
    assert (await services.entry(path)).record.settled.decision.kind == command_record_pb2.DECISION_KIND_REJECTED
