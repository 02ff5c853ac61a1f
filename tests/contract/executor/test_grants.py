"""Grants that are taken away while a run works: the next effect asks. Row RC02; decision C62."""

from __future__ import annotations

import asyncio
import hashlib

import pytest
from turnwright.rules.v1 import rule_service_pb2, rule_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.types.v1 import command_record_pb2, rule_pb2, settings_pb2
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright_values.types import DecisionKind, FileEdit, FileEffect, Permission, State

from contract.executor.proposing import DONE, Another
from contract.executor.sessions import say, state_of, until_state
from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from contract.executor.test_recovery import left
from services import running
from turnwright_client.sessions import user_message
from turnwright_core.decisions import Decision
from turnwright_executor.domain.effects import CallEffect, EffectClass

services = SHARED_SERVICES

WAITS = "<sh>touch began; until test -e go; do sleep 0.02; done</sh>"
"""Runs until a test lets it go on."""

ON, OFF = settings_pb2.RunSettingsPatch(yolo=True), settings_pb2.RunSettingsPatch(yolo=False)
NO_RULES = settings_pb2.RunSettingsPatch()
"""In place of a change: the rules of the run are deleted."""
HOLDERS = {
    "the run": (ON, {}, OFF),
    "the message": (None, {"yolo": True}, OFF),
    "both": (ON, {"yolo": True}, OFF),
    "a rule": (["sh", "set"], {}, NO_RULES),
    "a rule for sh": (["sh"], {}, OFF),
}
"""Who has the grant: what is set of the run before, what the task asks for, and what takes it away."""

ALL = ("the run", "the message", "both", "a rule")

EFFECTS = {
    "a shell command": ("<sh>echo 1 >> ran.txt</sh>", "log://turn_1/sh/echo_1_%3E%3E_ran.txt"),
    "a file": ('<set path="ran.txt">1\n</set>', "log://turn_1/set/ran.txt"),
}


async def begun(services) -> None:
    for _ in range(600):
        if (services.files / "began").exists():
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the command never began")


def ran(services) -> bool:
    return (services.files / "ran.txt").exists()


async def start(services, holder: str, *replies: str):
    given, asked, _ = HOLDERS[holder]
    where = (services.project, "r")
    services.script(*replies)
    await services.client.create_run(*where, settings_pb2.RunSettings(model="m"))
    for tool in given if isinstance(given, list) else ():
        allowed = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW, tool=tool)
        await services.client.set_rule(services.project, allowed, "r")
    if given and not isinstance(given, list):
        await services.client.configure_run(*where, given)
    settings = settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, **asked)
    answer = await services.client.submit(*where, user_message=user_message("Do it.", settings=settings))
    await begun(services)
    return answer


@ON_A_SHARED_STACK
@pytest.mark.parametrize("door", ["set_params", "ConfigureRun"])
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("holder", ALL)
async def test_the_next_effect_of_a_running_loop_asks_once_the_grant_is_taken_away(services, holder, effect, door):
    command, path = EFFECTS[effect]
    answer = await start(services, holder, WAITS + command, DONE)
    patch, where = HOLDERS[holder][2], (services.project, "r")
    if patch is NO_RULES:
        for rule in await services.client.list_rules(*where):
            await services.client.delete_rule(services.project, rule.id, "r")
    elif door == "set_params":
        await services.client.submit(*where, set_params=pb.SetParams(patch=patch))
    else:
        await services.client.configure_run(*where, patch)
    (services.files / "go").touch()
    await until_state(services, "paused", cursor=answer.event_cursor)
    assert not ran(services)
    await services.client.resolve(*where, path, accept=True)
    await until_state(services, "completed", cursor=answer.event_cursor)
    assert ran(services)


MARKS = {
    "the run": command_record_pb2.PERMISSION_RUN,
    "the message": command_record_pb2.PERMISSION_LOOP,
    "a rule": command_record_pb2.PERMISSION_RULE,
    "somebody": command_record_pb2.PERMISSION_DECISION,
}


@ON_A_SHARED_STACK
@pytest.mark.parametrize("holder", MARKS)
async def test_the_mark_of_an_effect_names_who_allowed_it(services, holder):
    path, where = "log://turn_1/sh/touch_began%3B_until_test_-e_go%3B_do_sleep_0.02%3B_done", (services.project, "r")
    if holder in HOLDERS:
        await start(services, holder, WAITS, DONE)
    else:
        services.script(WAITS, DONE)
        await services.until(await services.act(yolo=False), 202)
        await services.client.resolve(*where, path, accept=True)
        await begun(services)
    marked = (await services.entry(path)).record.dispatched
    (services.files / "go").touch()
    assert marked.permission == MARKS[holder]


@ON_A_SHARED_STACK
async def test_a_grant_that_comes_in_the_middle_of_a_turn_holds_from_the_next_turn_on(services):
    reply, where = '<set path="{}.txt">1\n</set>', (services.project, "r")
    answer = await start(services, "a rule for sh", WAITS + reply.format("ran"), reply.format("more"), DONE)
    await services.client.configure_run(*where, ON)
    (services.files / "go").touch()
    await until_state(services, "paused", cursor=answer.event_cursor)
    await services.client.resolve(*where, "log://turn_1/set/ran.txt", accept=True)
    await until_state(services, "completed", cursor=answer.event_cursor)
    assert (services.files / "more.txt").exists()


@ON_A_SHARED_STACK
async def test_a_later_turn_of_a_loop_asks_too_and_so_does_the_loop_behind_it(services):
    answer = await start(
        services, "the message", WAITS, f"<sh>echo 1 >> ran.txt</sh>{DONE}", "<sh>echo 2 >> ran.txt</sh>"
    )
    waits = settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, yolo=True)
    await services.client.submit(services.project, "r", user_message=user_message("And then.", settings=waits))
    await services.client.configure_run(services.project, "r", OFF)
    (services.files / "go").touch()
    await until_state(services, "paused", cursor=answer.event_cursor)
    await services.client.resolve(services.project, "r", "log://turn_2/sh/echo_1_%3E%3E_ran.txt", accept=True)
    await services.client.wait_loop(services.project, "r", 1)
    await until_state(services, "paused")
    assert (services.files / "ran.txt").read_text() == "1\n"


@ON_A_SHARED_STACK
@pytest.mark.parametrize("patch", [OFF, None], ids=["turned off", "never the run's"])
async def test_what_one_message_may_the_next_one_may_not(services, patch):
    where = (services.project, "r")
    services.script(f"<sh>echo 1 >> ran.txt</sh>{DONE}", DONE)
    asks = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT, yolo=patch is None)
    if patch:
        await services.client.create_run(*where, settings_pb2.RunSettings(model="m", yolo=True))
    await say(services, "One.", asks, until="completed")
    if patch:
        await services.client.submit(*where, set_params=pb.SetParams(patch=patch))
    services.script(f"<sh>echo 2 >> ran.txt</sh>{DONE}", f"<sh>echo 2 >> ran.txt</sh>{DONE}")
    await say(services, "Two.", until="paused")
    assert await state_of(services) == {"paused"}
    assert (services.files / "ran.txt").read_text() == "1\n"


@pytest.mark.asyncio
@pytest.mark.parametrize("effect", EFFECTS)
@pytest.mark.parametrize("holder", ALL)
async def test_an_executor_that_takes_a_loop_over_has_no_grant_of_its_own(tmp_path, monkeypatch, holder, effect):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services:
        command, _ = EFFECTS[effect]
        await start(services, holder, f"<sh>touch began; sleep 600</sh>{command}", command + DONE, DONE)
        await services.stop("executor")
        store = Another(services)
        request = run_service_pb2.ConfigureRunRequest(**store.key, patch=HOLDERS[holder][2])
        runs = run_service_pb2_grpc.RunServiceStub(store.peer.channel)
        await store.peer.call(runs.ConfigureRun, request)
        rules = rule_service_pb2_grpc.RuleServiceStub(store.peer.channel)
        for rule in (await store.peer.call(rules.ListRules, rule_service_pb2.ListRulesRequest(**store.key))).set.rules:
            await store.peer.call(rules.DeleteRule, rule_service_pb2.DeleteRuleRequest(**store.key, id=rule.id))
        await services.start("executor")
        await until_state(services, "paused")
        await store.peer.close()
        assert not ran(services)


# ---- An effect that was marked under a grant, and whose owner ended: C62, C63

ALICE = Decision(DecisionKind.ACCEPTED, "", "alice", 1)
GRANTS = [permission for permission in Permission if permission.is_grant]


async def left_behind(it, files, withdraw=True, **more):
    """What a marked change of these files comes to, after its owner has ended and the grant was taken away."""
    edits = [FileEdit(name, hashlib.sha256(b"old\n").hexdigest(), "new\n", "") for name in files]
    for name, text in files.items():
        (it.services.files / name).write_text(text)
    await it.reply()
    path = await it.record(
        "set", {"path": next(iter(files))}, "new\n", target="a", key="0" * 16, is_dispatched=True,
        **{"effect": FileEffect(tuple(edits)), "effect_class": EffectClass.IDEMPOTENT, **more},
    )  # fmt: skip
    await it.record("update", {"status": "200"}, "Done.", ordinal=1)
    if withdraw:
        await it.services.client.configure_run(it.services.project, "r", OFF)
    loop = await it.gone()
    return path, loop.status, [(it.services.files / name).read_text() for name in files]


@pytest.mark.asyncio
@pytest.mark.parametrize("permission", GRANTS)
async def test_a_change_that_a_grant_had_allowed_asks_after_a_crash_once_the_grant_is_gone(
    tmp_path, monkeypatch, permission
):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with left(tmp_path) as it:
        path, status, texts = await left_behind(it, {"a.txt": "old\n"}, permission=permission)
        assert (status, texts, await it.state(path)) == (202, ["old\n"], (State.PROPOSED, ""))
        await it.services.client.resolve(it.services.project, "r", path, accept=True)
        await it.services.client.wait_loop(it.services.project, "r", 1)
        assert ((it.services.files / "a.txt").read_text(), await it.state(path)) == ("new\n", (State.RESOLVED, ""))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("more", "withdraw"),
    [
        ({"permission": Permission.DECISION, "decision": ALICE}, True),
        ({"decision": ALICE}, True),
        ({"permission": Permission.NOT_NEEDED}, True),
        ({"permission": Permission.LOOP}, False),
        ({"permission": Permission.RUN}, False),
    ],
    ids=["a decision", "a decision of an earlier release", "nobody's", "the grant holds", "another grant holds"],
)
async def test_a_change_is_carried_out_after_a_crash_where_what_allowed_it_holds(tmp_path, monkeypatch, more, withdraw):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with left(tmp_path) as it:
        path, status, texts = await left_behind(it, {"a.txt": "old\n"}, withdraw, **more)
        assert (status, texts, await it.state(path)) == (200, ["new\n"], (State.RESOLVED, ""))


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("files", "more", "outcome"),
    [
        ({"a.txt": "new\n"}, {}, ""),
        ({"a.txt": "new\n", "b.txt": "old\n"}, {}, "stopped:499"),
        ({"a.txt": "somebody's\n"}, {}, "stopped:499"),
        ({"a.txt": "old\n"}, {"effect": CallEffect({"n": 1})}, "indeterminate:500"),
    ],
    ids=["done", "in part", "of somebody", "not known"],
)
async def test_what_was_begun_before_a_crash_is_told_and_not_asked_although_the_grant_is_gone(
    tmp_path, monkeypatch, files, more, outcome
):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with left(tmp_path) as it:
        path, status, texts = await left_behind(it, files, permission=Permission.LOOP, **more)
        state = State.FAILED if outcome else State.RESOLVED
        assert (status, texts, await it.state(path)) == (200, list(files.values()), (state, outcome))
