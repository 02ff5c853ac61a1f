"""Agents: runs that a model starts for a part of its work, with a budget out of its own. Source: docs/adr/0083."""

from __future__ import annotations

import asyncio
import json
import os

import pytest
from turnwright.types.v1 import budget_pb2, model_pb2, rule_pb2, settings_pb2
from turnwright.webhooks.v1 import webhook_service_pb2

from contract.executor.shared_stack import ON_BOTH_DATABASES, SHARED_SERVICES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_BOTH_DATABASES
services = SHARED_SERVICES

DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
SAID = '<update status="200">It is said.</update>'
OPEN = (100, 102, 202)


def record(services, tool, turn=1, number=0):
    found = sorted(services.view().entries.values(), key=lambda one: one.position)
    return [one for one in found if one.path.startswith(f"log://turn_{turn}/{tool}/")][number]


async def run_of(services, run="r", **more):
    return await services.client.get_run(services.project, run, **more)


async def plays(services, name, *replies):
    """A model of this name that replies so in each run."""
    services.script(*replies, name=name)
    await services.client.set_model(model_pb2.Model(alias=name, vendor_model=f"scripted/{name}"))


async def until_ended(services, run):
    """The loop of an agent's run, once it has ended."""
    async for _ in services.client.watch(services.project, run):
        loop = (await run_of(services, run)).run.loop
        if loop.status not in OPEN:
            return loop
    raise AssertionError("the watch has ended")


def notices(services, change):
    found = [
        json.loads(one.attributes_json)["event"] for one in services.view().entries.values() if one.scheme == "event"
    ]
    return [one["payload"] for one in found if one["payload"].get("change") == change and "agent" in one["payload"]]


async def test_an_agent_does_its_part_and_its_answer_comes_back(services) -> None:
    services.script(f'<delegate name="part" model="helper">Say it.</delegate>{GO_ON}', DONE)
    await plays(services, "helper", f"<set_plan># How</set_plan>{SAID}")
    loop = await services.until(await services.act())
    assert loop.status == 200
    done = record(services, "delegate")
    assert (done.status, done.body) == (200, done.body)
    assert "The agent part has ended with 200" in done.body
    assert done.body.endswith("It is said.")
    agent = (await run_of(services, "r-part", turns_max=1)).run
    assert (agent.parent.run, agent.parent.name, agent.parent.depth) == ("r", "part", 1)
    assert (agent.status, agent.loop.prompt, agent.loop.settings.model) == (200, "Say it.", "helper")
    entry = await services.entry("agent://part")
    figures = json.loads(entry.attributes_json)
    assert (entry.body, figures["run"], figures["status"]) == ("It is said.", "r-part", 200)
    assert (await services.entry("agent://part/plan")).body == "# How"
    answer, own = await run_of(services), await run_of(services, "r-part")
    assert answer.spent.turns == 3
    assert answer.spent.tokens > own.spent.tokens > 0
    assert [one["agent"] for one in notices(services, "started")] == ["part"]
    assert [(one["agent"], one["status"]) for one in notices(services, "ended")] == [("part", 200)]
    assert [event for event in services.events if event.HasField("proposal_pending")] == []


async def test_several_in_one_reply_work_at_once_and_in_the_background(services) -> None:
    services.script(
        '<delegate name="a" model="helper">A.</delegate><delegate name="b" model="helper">B.</delegate>'
        f'<delegate name="c" model="slow" background="true">C.</delegate>{GO_ON}',
        f"<wait_agents/>{GO_ON}",
        DONE,
    )
    await plays(services, "slow", SAID)
    await plays(services, "helper", SAID)
    loop = await services.until(await services.act())
    assert loop.status == 200
    runs = [(await run_of(services, f"r-{name}")).run for name in "abc"]
    assert [run.status for run in runs] == [200] * 3
    # Both were started before either was waited for.
    assert runs[1].create_time.ToNanoseconds() < runs[0].loop.end_time.ToNanoseconds()
    assert [record(services, "delegate", number=number).status for number in range(3)] == [200] * 3
    assert "works as the run r-c" in record(services, "delegate", number=2).body
    waited = record(services, "wait_agents", turn=2)
    assert "The agent c has ended with 200" in waited.body
    assert "agent a" not in waited.body
    assert (await run_of(services)).spent.turns == 6


async def test_what_an_agent_may_spend_comes_out_of_what_is_left(services) -> None:
    services.script(
        f'<delegate name="a" model="helper" turns="3">A.</delegate>{GO_ON}',
        f'<delegate name="b" model="helper" turns="99">B.</delegate>{GO_ON}',
        f'<delegate name="c" model="helper">C.</delegate>{GO_ON}',
        DONE,
    )
    await plays(services, "helper", GO_ON, SAID)
    budget = budget_pb2.Budget(turns_max=14, tokens_max=10_000_000)
    loop = await services.until(await services.act(budget=budget))
    assert loop.status == 200
    first, third = [(await run_of(services, f"r-{name}")).run.loop.settings.budget for name in "ac"]
    # Half of the tokens that were left; the turns are those that were asked for.
    assert (first.turns_max, 4_900_000 < first.tokens_max < 5_000_000) == (3, True)
    refused = record(services, "delegate", turn=2)
    assert (refused.status, refused.outcome) == (429, "limit:429")
    assert "10 turns are left" in refused.body
    # 14, without the three turns of this run and two of the first agent: half of what is left.
    assert third.turns_max == 4
    answer = await run_of(services)
    parts = [await run_of(services, name) for name in ("r-a", "r-c")]
    own = [turn.result.usage.total_tokens for turn in (await run_of(services, turns_max=9)).turns]
    assert answer.spent.turns == 4 + 2 + 2
    assert answer.spent.tokens == sum(own) + sum(part.spent.tokens for part in parts)


async def test_half_of_the_largest_budget_is_a_budget(services) -> None:
    services.script(f'<delegate name="a" model="helper">A.</delegate>{GO_ON}', DONE)
    await plays(services, "helper", SAID)
    await services.until(await services.act(budget=budget_pb2.Budget(cost_usd_max=1e308)))
    assert (await run_of(services, "r-a")).run.loop.settings.budget.cost_usd_max == pytest.approx(5e307)


async def test_an_agent_that_exhausts_its_budget_ends_and_the_run_goes_on(services) -> None:
    services.script(f'<delegate name="a" model="helper" turns="1">A.</delegate>{GO_ON}', DONE)
    await plays(services, "helper", GO_ON, SAID)
    loop = await services.until(await services.act())
    assert loop.status == 200
    done = record(services, "delegate")
    assert (done.status, done.outcome) == (499, "agent:499")
    assert "budget_exhausted:turns" in done.body


@pytest.mark.parametrize(
    ("command", "says"),
    [
        ("<delegate/>", "needs its task"),
        ('<delegate mode="all">A.</delegate>', "ask or act"),
        ('<delegate model="none">A.</delegate>', "none"),
        ('<delegate tools="get fly">A.</delegate>', "no tool fly"),
        ('<delegate name="a b">A.</delegate>', "name"),
        ('<delegate budget_usd="much">A.</delegate>', "US dollars"),
        ('<delegate turns="-1">A.</delegate>', "above 0"),
        ("<wait_agents/>", "<delegate> starts one"),
        ('<wait_agents names="a"/>', "no agent a"),
    ],
)
async def test_a_wrong_command_fails_and_says_what_to_do(services, command, says) -> None:
    services.script(f"{command}{GO_ON}", DONE)
    await services.until(await services.act())
    done = record(services, "wait_agents" if "wait" in command else "delegate")
    assert 400 <= done.status < 500
    assert (done.outcome == "no_agents:404") is (command == "<wait_agents/>")
    assert says in done.body


async def test_an_agent_has_no_more_rights_than_who_started_it(services) -> None:
    services.script(
        f'<delegate name="a" model="helper" mode="act">A.</delegate>{GO_ON}',
        f'<delegate name="b" model="helper" tools="get">B.</delegate>{GO_ON}',
        DONE,
    )
    await plays(services, "helper", f"<sh>true</sh>{GO_ON}", SAID)
    await services.until(await services.ask(no_web=True))
    assert "may only read" in record(services, "delegate").body
    loop = (await run_of(services, "r-b", turns_max=9)).turns[0]
    assert loop.request.tools == ["get", "think", "update"]
    settings = (await run_of(services, "r-b")).run.loop.settings
    assert (settings.mode, settings.no_web, settings.yolo) == (settings_pb2.MODE_ASK, True, False)


async def test_yolo_is_the_agents_only_where_a_rule_for_this_tool_allows_it(services) -> None:
    services.script(
        f'<delegate name="a" model="helper" background="true">A.</delegate>{GO_ON}',
        f'<delegate name="b" model="helper">B.</delegate>{GO_ON}',
        f'<delegate name="c" model="helper">C.</delegate>{GO_ON}',
        DONE,
    )
    await plays(services, "helper", SAID)
    queued = await services.act(yolo=True)
    await services.until(queued)
    yolo = [(await run_of(services, f"r-{name}")).run.loop.settings.yolo for name in "abc"]
    assert yolo == [False] * 3
    await services.client.set_rule(services.project, rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW))
    await plays(services, "wide", f'<delegate name="w" model="helper">A.</delegate>{GO_ON}', DONE)
    await services.until(await services.act(run="u", model="wide", yolo=True))
    assert not (await run_of(services, "u-w")).run.loop.settings.yolo
    rule = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW, tool="delegate")
    await services.client.set_rule(services.project, rule)
    await plays(services, "again", f'<delegate name="d" model="helper">A.</delegate>{GO_ON}', DONE)
    await services.until(await services.act(run="s", model="again", yolo=True))
    await services.until(await services.act(run="t", model="again", yolo=False))
    assert (await run_of(services, "s-d")).run.loop.settings.yolo
    assert not (await run_of(services, "t-d")).run.loop.settings.yolo


async def test_yolo_that_is_taken_away_is_taken_from_the_agents_too(services) -> None:
    rule = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_ALLOW, tool="delegate")
    await services.client.set_rule(services.project, rule)
    services.script(f'<delegate name="a" model="one">A.</delegate>{GO_ON}', DONE)
    await plays(services, "one", f'<delegate name="b" model="two">B.</delegate>{GO_ON}', SAID)
    held = "<sh>echo > began; read line < go</sh>"
    await plays(services, "two", f"{held}{GO_ON}", f'<set path="b.txt">b</set>{GO_ON}', SAID)
    for name in ("began", "go"):
        os.mkfifo(services.files / name)
    queued = await services.act(yolo=True)
    await asyncio.to_thread((services.files / "began").read_text)
    await services.client.configure_run(services.project, "r", settings_pb2.RunSettingsPatch(yolo=False))
    await asyncio.to_thread((services.files / "go").write_text, "\n")
    waiting = await proposed(services)
    assert (waiting.run, waiting.proposal.path) == ("r-a-b", "log://turn_2/set/b.txt")
    assert not (services.files / "b.txt").exists()
    await services.client.resolve(services.project, waiting.run, waiting.proposal.path, accept=True)
    assert (await services.until(queued)).status == 200


async def proposed(services):
    """What waits for a decision next in the run or its agents."""
    async for _ in services.client.watch(services.project, "r"):
        waiting = [one async for one in services.client.list_proposals(services.project, run="r")]
        if waiting:
            return waiting[0]
        assert (await run_of(services)).run.status in OPEN
    raise AssertionError("the watch has ended")


async def test_a_rule_can_deny_agents(services) -> None:
    rule = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_DENY, tool="delegate")
    await services.client.set_rule(services.project, rule)
    services.script(f"<delegate>A.</delegate>{GO_ON}", DONE)
    await services.until(await services.act(yolo=True))
    assert record(services, "delegate").outcome == "rejected:403"


async def test_an_agents_proposal_reaches_who_watches_and_is_decided_there(services) -> None:
    services.script(f'<delegate name="a" model="helper">A.</delegate>{GO_ON}', DONE)
    await plays(services, "helper", f'<set path="new.txt">new</set>{GO_ON}', SAID)
    queued = await services.act(yolo=True)
    told = await proposed(services)
    assert (told.run, told.proposal.path) == ("r-a", "log://turn_1/set/new.txt")
    with pytest.raises(TurnwrightError) as refused:
        await services.client.resolve(services.project, "r", "log://turn_1/delegate/1", accept=True)
    assert refused.value.reason is Reason.NOT_PROPOSED
    await services.client.resolve(services.project, told.run, told.proposal.path, accept=True)
    assert (await services.until(queued)).status == 200
    assert [(one["run"], one["path"]) for one in notices(services, "proposal")] == [("r-a", told.proposal.path)]
    assert (services.files / "new.txt").read_text() == "new"


async def test_an_abort_ends_the_agents_too(services) -> None:
    services.script(f'<delegate name="a" model="helper">A.</delegate>{GO_ON}', DONE)
    await plays(services, "helper", f'<ask_user question="Which?">x;y</ask_user>{GO_ON}', SAID)
    queued = await services.act()
    await proposed(services)
    await services.client.abort(services.project, "r")
    assert (await services.until(queued)).status == 499
    assert (await until_ended(services, "r-a")).status == 499
    done = record(services, "delegate")
    assert done.status == 499
    assert "they are stopped" in done.body


async def test_agents_that_nobody_waits_for_end_with_the_loop(services) -> None:
    services.script(f'<delegate name="a" model="helper" background="true">A.</delegate>{DONE}')
    await plays(services, "helper", f'<ask_user question="Which?">x;y</ask_user>{GO_ON}', SAID)
    assert (await services.until(await services.act())).status == 200
    assert (await until_ended(services, "r-a")).status == 499


async def test_agents_are_bounded_in_depth_and_number(services) -> None:
    services.script(f'<delegate name="a" model="one">A.</delegate>{GO_ON}', DONE)
    await plays(services, "one", f'<delegate name="b" model="two">B.</delegate>{GO_ON}', SAID)
    await plays(services, "two", f'<delegate name="c" model="two">C.</delegate>{GO_ON}', SAID)
    assert (await services.until(await services.act())).status == 200
    deepest = await run_of(services, "r-a-b", turns_max=9)
    assert deepest.run.parent.depth == 2
    assert "delegate" not in deepest.turns[0].request.tools
    assert (await run_of(services)).spent.turns == 2 + 2 + 2


async def test_agents_go_with_the_run_that_started_them(services) -> None:
    services.script(f'<delegate name="a" model="helper">A.</delegate>{GO_ON}', DONE)
    await plays(services, "helper", SAID)
    await services.until(await services.act())
    await services.client.rename_run(services.project, "r", "other")
    assert (await run_of(services, "r-a")).run.parent.run == "other"
    await services.client.delete_run(services.project, "other")
    async with asyncio.timeout(60):
        while [run.run async for run in services.client.list_runs(services.project)]:  # noqa: ASYNC110 - the store does it some time later
            await asyncio.sleep(0.05)


async def test_a_fork_is_no_agent_and_has_the_answers(services) -> None:
    services.script(f'<delegate name="a" model="helper">A.</delegate>{GO_ON}', f'<wait_agents names="a"/>{GO_ON}', DONE)
    await plays(services, "helper", SAID)
    await services.until(await services.act())
    await services.client.fork_run(services.project, "r-a", new_run="again")
    assert not (await run_of(services, "again")).run.HasField("parent")
    await services.client.fork_run(services.project, "r", new_run="fork")
    assert (await services.entry("agent://a", run="fork")).body == "It is said."
    assert "has ended with 200" in record(services, "wait_agents", turn=2).body


async def test_a_command_of_a_client_starts_no_agent(services) -> None:
    services.script(DONE)
    await services.until(await services.act())
    called = await services.client.call_tool(services.project, "r", "delegate", body="Do it.")
    assert called.outcome == "permission:403"


async def test_a_webhook_is_not_told_that_a_run_waits_for_agents(services) -> None:
    hook = webhook_service_pb2.Webhook(
        name="ci", url="https://127.0.0.1:9/", events=[webhook_service_pb2.WEBHOOK_EVENT_LOOP_WAITING]
    )
    await services.client.set_webhook(services.project, hook)
    services.script(f'<delegate name="a" model="helper">A.</delegate>{GO_ON}', DONE)
    await plays(services, "helper", SAID)
    assert (await services.until(await services.act())).status == 200
    assert await services.client.list_deliveries(services.project) == []
