"""Approval rules: who has which, and what they say in the transaction of an effect."""

import asyncio

import pytest
from sqlalchemy import text
from turnwright.types.v1 import command_record_pb2, rule_pb2, settings_pb2
from turnwright.types.v1.rule_pb2 import (
    RULE_LEVEL_DEPLOYMENT,
    RULE_LEVEL_PROJECT,
    RULE_LEVEL_RUN,
    RULE_VERDICT_ALLOW,
    RULE_VERDICT_ASK,
    RULE_VERDICT_DENY,
)
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier

from contract.store.counting import connected
from contract.store.harness import PROPOSED, Run, as_tier, new_run, next_turn, set_, working_run
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.rules import RULES_MAX
from turnwright_core.wire.entries import write_to_pb

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

ALLOW, ASK, DENY = RULE_VERDICT_ALLOW, RULE_VERDICT_ASK, RULE_VERDICT_DENY


async def set_rule(client, project, verdict, target="", run="", tool="sh", **more):
    rule = rule_pb2.Rule(verdict=verdict, tool=tool, target=target, **more)
    return (await client.call("SetRule", project=project, run=run, rule=rule)).rule


async def rules_of(client, project, run=""):
    found = (await client.call("ListRules", project=project, run=run)).set.rules
    return [(rule.level, rule.verdict, rule.target) for rule in found]


async def test_rules_are_listed_by_level_in_their_order_and_one_for_the_same_is_replaced(client, project) -> None:
    for alias in ("r1", "r2"):
        await new_run(client, project, alias)
    first = await set_rule(client, project, ALLOW, "git *")
    await set_rule(client, project, DENY, "git push *")
    await set_rule(client, project, ASK, "ls", run="r1")
    await set_rule(client, project, ALLOW, "cat *", run="r2")
    assert first.id
    assert (first.by, first.level, first.lifts) == ("operator", RULE_LEVEL_PROJECT, RULE_LEVEL_DEPLOYMENT)
    assert first.HasField("create_time")
    own = [(RULE_LEVEL_PROJECT, ALLOW, "git *"), (RULE_LEVEL_PROJECT, DENY, "git push *")]
    assert await rules_of(client, project) == own
    assert await rules_of(client, project, "r1") == [*own, (RULE_LEVEL_RUN, ASK, "ls")]
    await set_rule(client, project, DENY, "git *")
    await set_rule(client, project, DENY, "git *", principal="ann")
    assert await rules_of(client, project) == [own[1], *[(RULE_LEVEL_PROJECT, DENY, "git *")] * 2]
    last = await set_rule(client, project, ALLOW, "x")
    await client.call("DeleteRule", project=project, id=last.id)
    assert len(await rules_of(client, project)) == 3
    for where in ({}, {"run": "r1"}):
        with pytest.raises(TurnwrightError) as missing:
            await client.call("DeleteRule", project=project, id=last.id, **where)
        assert missing.value.reason is Reason.ENTRY_NOT_FOUND


@pytest.mark.parametrize(
    ("rule", "field"),
    [
        ({}, "rule.verdict"),
        ({"verdict": ALLOW, "tool": "sh", "target": "git push > x"}, "rule.target"),
        ({"verdict": ALLOW, "tool": "sh", "target": "$x"}, "rule.target"),
        ({"verdict": ALLOW, "tool": "set", "target": "../x"}, "rule.target"),
        ({"verdict": ALLOW, "target": "x" * 513}, "rule.target"),
        ({"verdict": ALLOW, "target": "a\0b"}, "rule.target"),
        ({"verdict": ALLOW, "tool": "x" * 129}, "rule.tool"),
        ({"verdict": ALLOW, "tool": "a\nb"}, "rule.tool"),
        ({"verdict": ALLOW, "principal": " "}, "rule.principal"),
        ({"verdict": DENY, "network": True}, "rule.network"),
    ],
)
async def test_a_rule_that_cannot_be_kept_is_refused_with_its_field(client, project, rule, field) -> None:
    with pytest.raises(TurnwrightError) as refused:
        await client.call("SetRule", project=project, rule=rule)
    assert (refused.value.metadata["field"], await rules_of(client, project)) == (field, [])


async def test_a_level_has_so_many_rules_at_most(own_client, own_project, own_db, tmp_path) -> None:
    first = await set_rule(own_client, own_project, ALLOW, "x0")
    with connected(own_db, tmp_path) as connection:
        columns = "project_id, run_id, verdict, tool, target, principal, mode, network, by, create_ms"
        copied = "SELECT project_id, run_id, verdict, tool, :target, principal, mode, network, by, create_ms"
        statement = f"INSERT INTO approval_rules ({columns}) {copied} FROM approval_rules WHERE id = :id"
        more = [{"target": f"x{n}", "id": first.id} for n in range(1, RULES_MAX)]
        connection.execute(text(statement), more)
    await set_rule(own_client, own_project, DENY, "x1")
    with pytest.raises(TurnwrightError) as full:
        await set_rule(own_client, own_project, ALLOW, "y")
    assert (full.value.reason, full.value.metadata["limit"]) == (Reason.LIMIT_EXCEEDED, str(RULES_MAX))


async def test_the_project_and_the_run_of_a_rule_must_exist(client, project) -> None:
    for where, reason in (({"project": "other"}, Reason.PROJECT_NOT_FOUND), ({"run": "x"}, Reason.RUN_NOT_FOUND)):
        with pytest.raises(TurnwrightError) as unknown:
            await set_rule(client, **{"project": project, "verdict": ALLOW, **where})
        assert unknown.value.reason is reason


def mark(line, name="x", permission=command_record_pb2.PERMISSION_RULE):
    """The mark of a command line on which nobody has decided."""
    record = command_record_pb2.CommandRecord(tool="sh", ordinal=0)
    record.dispatched.effect.command.command = line
    record.dispatched.permission = permission
    if permission == command_record_pb2.PERMISSION_CALLER:
        record.call.principal = "ann"
    change = SetEntry("", "{}", state=State.RECORDED, record=record.SerializeToString())
    return write_to_pb(EntryWrite(f"log://turn_1/sh/{name}", change, Tier.SYSTEM, granted_tool="sh"))


async def test_the_mark_of_an_effect_is_held_against_the_rules_of_that_moment(client, project) -> None:
    run = await working_run(client, project, "r1")
    await run.begin()
    told = []
    for number, (change, line) in enumerate(
        [
            (None, "git log"),
            (("git *", ALLOW, "r1"), "git log"),
            (None, "git log > x"),
            (None, "ls"),
            (("git push *", ASK, ""), "git push"),
            (None, "git log"),
            (("git *", DENY, ""), "git log"),
        ]
    ):
        if change:
            await set_rule(client, project, change[1], change[0], run=change[2])
        try:
            await run.write(mark(line, str(number)))
            told.append("")
        except TurnwrightError as error:
            told.append(error.reason.name)
    refused = Reason.GRANT_WITHDRAWN.name
    # The author of the rule of the run may write rules of the project, too, so it lifts the ask.
    assert told == [refused, "", refused, refused, "", "", refused]


async def test_yolo_is_an_allow_that_every_deny_beats_and_that_lifts_what_its_person_may(client, project) -> None:
    run = await working_run(client, project, "r1")
    await client.call("ConfigureRun", **run.address, patch={"yolo": True})
    await run.begin()
    await set_rule(client, project, DENY, "rm *")
    await set_rule(client, project, ASK, "git *")
    for line in ("rm x", "echo $(rm x)"):
        with pytest.raises(TurnwrightError) as refused:
            await run.write(mark(line))
        assert refused.value.reason is Reason.GRANT_WITHDRAWN
    await run.write(mark("ls > x"), mark("git log", "y"))


async def test_what_a_client_calls_itself_is_refused_by_a_deny_alone(client, project) -> None:
    run = await working_run(client, project, "r1")
    await run.begin()
    called = command_record_pb2.PERMISSION_CALLER
    await set_rule(client, project, ASK)
    await run.write(mark("git log", "a", called))
    await set_rule(client, project, DENY, "git *", principal="ann")
    with pytest.raises(TurnwrightError) as denied:
        await run.write(mark("git log", "b", called))
    assert (denied.value.reason, denied.value.metadata["level"]) == (Reason.RULE_DENIED, "project")
    assert "deny sh: git *" in denied.value.message


async def test_nobody_accepts_what_a_rule_denies_as_proposed_or_edited(client, project) -> None:
    run = await working_run(client, project, "r1")
    record = command_record_pb2.CommandRecord(tool="sh", ordinal=0)
    record.proposed.effect.command.command = "ls"
    path = "log://turn_1/sh/ls"
    await run.write(set_(path, "", state=PROPOSED, record=record.SerializeToString(), writer=Tier.SYSTEM))
    await set_rule(client, project, DENY, "rm *")
    denied = {"accept": {"contents": [{"path": "", "content": "rm -rf ."}]}}
    with pytest.raises(TurnwrightError) as refused:
        await client.call("ResolveProposal", **run.address, path=path, **denied)
    assert refused.value.reason is Reason.RULE_DENIED
    rule = await set_rule(client, project, DENY, "ls *")
    with pytest.raises(TurnwrightError) as again:
        await client.call("ResolveProposal", **run.address, path=path, accept={})
    assert (again.value.reason, again.value.metadata["rule"]) == (Reason.RULE_DENIED, str(rule.id))
    await client.call("DeleteRule", project=project, id=rule.id)
    await client.call("ResolveProposal", **run.address, path=path, accept={})


async def test_an_owner_gets_the_rules_with_its_claim_and_where_they_have_changed(client, project) -> None:
    run = await new_run(client, project, "r1")
    await run.enqueue()
    assert not (await run.claim()).HasField("rules")
    await set_rule(client, project, ALLOW, "git *")
    opened = await run.begin()
    assert [rule.target for rule in opened.rules.rules] == ["git *"]
    version = opened.rules.version
    assert (await run.claim()).rules.version == version

    async def after(known):
        number = (await run.get()).turn
        return await client.call(
            "EndTurn", **run.address, epoch=run.epoch, turn=number, result={}, next=next_turn(), rules_version=known
        )

    assert not (await after(version)).HasField("rules")
    rule = await set_rule(client, project, DENY, "rm *", run="r1")
    assert [rule.target for rule in (await after(version)).rules.rules] == ["git *", "rm *"]
    await client.call("DeleteRule", **run.address, id=rule.id)
    assert [rule.target for rule in (await after(version)).rules.rules] == ["git *"]


async def test_a_fork_begins_without_the_rules_of_its_run_and_a_removed_run_leaves_none(client, project) -> None:
    run = await new_run(client, project, "r1")
    await set_rule(client, project, ALLOW, "git *", run="r1")
    await client.call("ForkRun", project=project, run="r1", new_run="r2")
    assert await rules_of(client, project, "r2") == []
    await client.call("DeleteRun", **run.address)
    await new_run(client, project, "r1")
    assert await rules_of(client, project, "r1") == []


async def test_rules_that_are_set_at_once_are_all_kept(client, project) -> None:
    await asyncio.gather(*(set_rule(client, project, ALLOW, f"a{n}") for n in range(8)))
    assert sorted(target for _, _, target in await rules_of(client, project)) == [f"a{n}" for n in range(8)]


VIEWER, MEMBER, OWNER = 1, 2, 3


async def test_who_may_run_commands_writes_rules_of_runs_and_an_owner_those_of_the_project(client, project) -> None:
    await client.call("DeleteGrant", project=project, subject="*")
    await new_run(client, project, "r1")
    told = {}
    for name, role in (("nobody", 0), ("viewer", VIEWER), ("member", MEMBER), ("owner", OWNER)):
        if role:
            await client.call("SetGrant", project=project, grant={"subject": f"user:{name}", "role": role})
        theirs = as_tier(client.peer.address, Tier.CLIENT, name)
        for run in ("r1", ""):
            try:
                rule = await set_rule(theirs, project, ALLOW, "git *", run=run, principal=name)
                told[name, run] = (rule.by, rule.lifts)
                await theirs.call("DeleteRule", project=project, run=run, id=rule.id)
            except TurnwrightError as error:
                told[name, run] = error.reason
        await theirs.close()
    assert told == {
        ("nobody", "r1"): Reason.PROJECT_NOT_FOUND,
        ("nobody", ""): Reason.PROJECT_NOT_FOUND,
        ("viewer", "r1"): Reason.RIGHT_MISSING,
        ("viewer", ""): Reason.RIGHT_MISSING,
        ("member", "r1"): ("member", RULE_LEVEL_RUN),
        ("member", ""): Reason.RIGHT_MISSING,
        ("owner", "r1"): ("owner", RULE_LEVEL_PROJECT),
        ("owner", ""): ("owner", RULE_LEVEL_PROJECT),
    }


async def test_an_ask_is_lifted_by_who_may_write_rules_there_as_long_as_he_may(client, project) -> None:
    await client.call("DeleteGrant", project=project, subject="*")
    await client.call("SetGrant", project=project, grant={"subject": "user:ann", "role": OWNER})
    ann = as_tier(client.peer.address, Tier.CLIENT, "ann")
    run = await new_run(client, project, "r1")
    await set_rule(client, project, ASK, "git *")
    theirs = Run(ann, project, "r1")
    await theirs.enqueue(yolo=True)
    claimed = await run.claim()
    assert (claimed.rules.principal, claimed.rules.lifts) == ("ann", RULE_LEVEL_PROJECT)
    await run.begin()
    await run.write(mark("git log", "a"))
    await client.call("SetGrant", project=project, grant={"subject": "user:ann", "role": MEMBER})
    with pytest.raises(TurnwrightError) as refused:
        await run.write(mark("git log", "b"))
    assert refused.value.reason is Reason.GRANT_WITHDRAWN
    await run.write(mark("ls", "c"))
    await set_rule(client, project, DENY, "ls", principal="ann")
    await set_rule(client, project, DENY, "cat x", principal="bob")
    await run.write(mark("cat x", "d"))
    with pytest.raises(TurnwrightError):
        await run.write(mark("ls", "e"))
    await ann.close()


async def decided(client, project, effects, run, **text):
    """What the rules say about each effect: the verdict and the target of the rule that decided."""
    answer = await client.call("TestRules", project=project, run=run, effects=effects, **text)
    return [(one.verdict, one.rule.target if one.HasField("rule") else None) for one in answer.decisions]


async def test_rules_are_tried_as_they_hold_or_as_they_are_proposed(client, project) -> None:
    await new_run(client, project, "r1")
    await set_rule(client, project, ALLOW, "git *")
    await set_rule(client, project, DENY, "git push *", mode=settings_pb2.MODE_ACT)
    await set_rule(client, project, ALLOW, "src/**", tool="set", principal="ann", run="r1")
    effects = [
        {"tool": "sh", "line": "git status"},
        {"tool": "sh", "line": "git status && git push --force"},
        {"tool": "sh", "line": "git push", "mode": settings_pb2.MODE_ASK},
        {"tool": "set", "place": "src/a.py", "principal": "ann"},
        {"tool": "set", "place": "src/a.py", "principal": "bob"},
        {"tool": "plugin"},
    ]
    held = [(ALLOW, "git *"), (DENY, "git push *"), (ALLOW, "git *"), (ASK, None), (ASK, None), (ASK, None)]
    assert await decided(client, project, effects, "") == held
    assert await decided(client, project, effects, "r1") == [*held[:3], (ALLOW, "src/**"), *held[4:]]
    proposed = '[[rule]]\nverdict = "deny"\ntool = "sh"\ntarget = "git status"\n'
    wanted = [(DENY, "git status"), (DENY, "git status"), *[(ASK, None)] * 4]
    assert await decided(client, project, effects, "", rules_text=proposed) == wanted
    assert await decided(client, project, effects, "", rules_text="") == [(ASK, None)] * 6
    assert await rules_of(client, project, "r1") == [
        (RULE_LEVEL_PROJECT, ALLOW, "git *"),
        (RULE_LEVEL_PROJECT, DENY, "git push *"),
        (RULE_LEVEL_RUN, ALLOW, "src/**"),
    ]


async def test_what_a_run_has_recorded_is_tried_by_the_path_of_its_record(client, project) -> None:
    run = await working_run(client, project, "r1")
    await set_rule(client, project, DENY, "git push *")
    await run.begin()
    for slug, line in (("a", "git push"), ("b", "git pull")):
        record = command_record_pb2.CommandRecord(tool="sh")
        record.command.body = line
        record.settled.SetInParent()
        change = SetEntry(line, state=State.RESOLVED, record=record.SerializeToString())
        await run.write(write_to_pb(EntryWrite(f"log://turn_1/sh/{slug}", change, Tier.SYSTEM, turn=1)))
    entries = [{"entry": f"log://turn_1/sh/{slug}"} for slug in "ab"]
    assert await decided(client, project, entries, "r1") == [(DENY, "git push *"), (ASK, None)]
    for path in ("log://turn_1/sh/c", "run://r1"):
        with pytest.raises(TurnwrightError) as missing:
            await decided(client, project, [{"entry": path}], "r1")
        assert missing.value.reason is Reason.ENTRY_NOT_FOUND


@pytest.mark.parametrize(
    ("fields", "reason", "field"),
    [
        ({"effects": []}, Reason.INVALID_FIELD, "effects"),
        ({"effects": [{"tool": "sh", "line": "a"}] * 201}, Reason.LIMIT_EXCEEDED, "effects"),
        ({"effects": [{"tool": "sh", "line": "a" * 16_385}]}, Reason.LIMIT_EXCEEDED, "effects.line"),
        ({"effects": [{"tool": "set", "place": "a" * 2049}]}, Reason.LIMIT_EXCEEDED, "effects.place"),
        ({"effects": [{"tool": "a" * 129}]}, Reason.LIMIT_EXCEEDED, "effects.tool"),
        ({"effects": [{"entry": "log://turn_1/sh/a"}]}, Reason.INVALID_FIELD, "effects.entry"),
        ({"effects": [{"tool": "sh"}], "rules_text": "x"}, Reason.INVALID_FIELD, "rules_text"),
        ({"effects": [{"tool": "sh"}], "rules_text": "#" * 262_145}, Reason.LIMIT_EXCEEDED, "rules_text"),
        ({"effects": [{"tool": "sh"}], "rules_text": "[[rule]]\nverdict = 'no'"}, Reason.INVALID_FIELD, "rules_text"),
    ],
)
async def test_what_cannot_be_tried_is_refused_by_name(client, project, fields, reason, field) -> None:
    with pytest.raises(TurnwrightError) as refused:
        await client.call("TestRules", project=project, **fields)
    error = refused.value
    assert (error.reason, error.metadata.get("field") or error.metadata.get("limit_name", field)) == (reason, field)
