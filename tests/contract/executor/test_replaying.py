"""Stored verdicts given again: the rules decide as they did, whatever happened in the turn. Rows RU010, RU041."""

from __future__ import annotations

import pytest
from turnwright.types.v1 import budget_pb2, settings_pb2
from turnwright_values.types import State

from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from services import Services, running
from turnwright_cli.rules import read_turns
from turnwright_core.wire.entries import entry_from_pb
from turnwright_core.wire.runs import turn_from_pb
from turnwright_executor.clients.replaying import StoredTurns, replay, stored_turns
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.verdict import Limits, Rejection
from turnwright_executor.hooks import TURN_VERDICT, Hooks, Vote
from turnwright_executor.hooks.registry import new_registry

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'
SET = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>'
PROPOSAL = "log://turn_1/set/a.txt"
ANSWER = {"response_format": settings_pb2.ResponseFormat()}
UNKNOWN = '<tool_call>{"name": "fly", "arguments": {}}</tool_call>'
TRANSCRIPT = {"assembly": settings_pb2.ASSEMBLY_TRANSCRIPT}


async def stored(services: Services, run: str = "r", limits: Limits | None = None) -> StoredTurns:
    turns, entries = await read_turns(services.client, services.project, run)
    return stored_turns(RunAddress(services.project, run), turns, entries, limits or Limits())


async def again(found: StoredTurns) -> list[tuple[tuple[int, str], tuple[int, str]]]:
    """What was decided, and what the rules decide now."""
    replayed = await replay(Hooks(new_registry()), found.verdicts)
    return [((one.stored.status, one.stored.reason), (one.status, one.reason)) for one in replayed]


@pytest.mark.parametrize(
    ("replies", "settings"),
    [
        (['<get path="gone.txt"/>' + DONE, DONE], {}),
        (["Let me look. <get path='a.txt'/>", "It says old."], {}),
        (["", " ", ""], {}),
        (['<get path="a.txt"/>'] * 6, {}),
        ([f"{DONE}{GO_ON}", '<update status="422">No.</update>'], {}),
        (['<get path="a.txt"/>' * 100, "<sh>exit 3</sh>", DONE], {}),
        (["Not JSON.", '{"a": 1}'], ANSWER),
        (["Not JSON.", "Nor this."], ANSWER),
        ([UNKNOWN, UNKNOWN, '<get path="gone.txt"/>', DONE], TRANSCRIPT),
    ],
    ids=[
        *("refuted", "plain text", "empty", "cycles", "updates", "dropped and failed", "answer"),
        *("no answer", "failures in a transcript"),
    ],
)
async def test_the_rules_decide_as_they_did(services, replies, settings) -> None:
    services.script(*replies)
    loop = await services.until(await services.act(**settings))
    found = await stored(services)
    decided = await again(found)
    assert (len(decided), found.incomplete) == (loop.turns, 0)
    assert [was for was, _ in decided] == [now for _, now in decided]
    assert decided[-1][0][0] == loop.status


@pytest.mark.parametrize(("comment", "rejection"), [("", Rejection.SILENT), ("Not that.", Rejection.COMMENTED)])
async def test_a_rejection_is_seen_again(services, comment, rejection) -> None:
    services.script(f"{SET}{GO_ON}", DONE)
    queued = await services.act(yolo=False)
    await services.until(queued, 202)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=False, comment=comment)
    await services.until(queued)
    found = await stored(services)
    assert found.verdicts[0].facts.rejection is rejection
    assert all(was == now for was, now in await again(found))


async def test_a_budget_is_seen_again(services) -> None:
    services.script(GO_ON, GO_ON.replace("Going", "Still going"), DONE)
    queued = await services.act(budget=budget_pb2.Budget(turns_max=2))
    loop = await services.until(queued)
    found = await stored(services)
    assert (loop.status, loop.turns) == (499, 2)
    assert found.verdicts[-1].facts.exhausted == loop.reason
    assert loop.reason.startswith("budget_exhausted:turns: ")
    assert all(was == now for was, now in await again(found))


async def test_an_expiry_is_seen_again(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_PROPOSAL_EXPIRE_S", "0.4")
    async with running(tmp_path, work_poll_s=0.1) as services:
        (services.files / "a.txt").write_text("old\n")
        services.script(f"{SET}{GO_ON}", DONE)
        loop = await services.until(await services.act(yolo=False))
        found = await stored(services)
        assert (loop.reason, found.verdicts[0].facts.rejection) == ("expired", Rejection.EXPIRED)
        assert all(was == now for was, now in await again(found))


async def test_results_that_did_not_fit_are_seen_again(services) -> None:
    # RU142, RU153
    (services.files / "big.txt").write_text("fact\n" * 6000)
    services.script(f'<get path="big.txt"/>{GO_ON}', DONE)
    limits = settings_pb2.RunSettings(model="m", context_limit=9_000)
    wanted = settings_pb2.LoopSettings(model="m", yolo=True)
    await services.until(
        await services.client.act(services.project, "Do it.", run="r", settings=wanted, run_settings=limits)
    )
    found = await stored(services)
    assert [one.facts.errors for one in found.verdicts] == [1, 0]
    assert all(was == now for was, now in await again(found))


async def test_turns_whose_records_are_gone_are_counted_and_left_out(services) -> None:
    services.script(f'<get path="a.txt"/>{GO_ON}', DONE)
    await services.until(await services.act())
    turns = (await services.client.get_run(services.project, "r", 10)).turns
    entries = [entry for entry in services.view().timeline() if entry.path != "log://turn_1/get/a.txt"]
    address = RunAddress(services.project, "r")
    found = stored_turns(address, map(turn_from_pb, turns), map(entry_from_pb, entries), Limits())
    assert ([one.facts.at.turn for one in found.verdicts], found.incomplete) == ([2], 1)


async def test_turns_that_had_no_verdict_are_left_out_and_count_as_turns(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, reply_bytes_max=65_536) as services:
        services.script(GO_ON, "x" * 70_000)
        loop = await services.until(await services.act())
        found = await stored(services)
    assert (loop.status, loop.turns) == (500, 2)
    assert [(one.facts.at.turn, one.facts.loop_turn) for one in found.verdicts] == [(1, 1)]


async def test_a_voter_sees_the_turns_as_they_were_and_changes_nothing(services) -> None:
    services.script('<get path="gone.txt"/>' + DONE, DONE)
    await services.until(await services.act())
    before = await services.client.get_run(services.project, "r", 10)
    seen = []

    def vote(vote, facts):
        seen.append(([(record.tool, record.state) for record in facts.records], facts.loop_turn, len(facts.recent)))
        return Vote(False, 422, "no") if facts.failures else vote

    registry = new_registry()
    registry.of("p").filter(TURN_VERDICT, vote, 80)
    replayed = await replay(Hooks(registry), (await stored(services)).verdicts)
    assert [(one.differs, one.status, one.reason) for one in replayed] == [(True, 422, "no"), (False, 200, "update")]
    assert seen == [
        ([("get", State.FAILED), ("update", State.RESOLVED)], 1, 0),
        ([("update", State.RESOLVED)], 2, 1),
    ]
    assert await services.client.get_run(services.project, "r", 10) == before
