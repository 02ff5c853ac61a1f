"""Proposals: a pending record is decided once."""

import json

import pytest

from cases import params
from contract.store.harness import FAILED, PROPOSED, RECORDED, as_tier, set_
from turnwright_core.entries import State, Tier
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio

RECORD = "log://turn_1/sh/ls"


@pytest.fixture
def proposed():
    return set_(RECORD, "ls", '{"tool":"sh","ordinal":0}', state=PROPOSED)


async def resolve(client, run, decision=1, **fields):
    return await client.call("ResolveProposal", **run.address, **{"path": RECORD, "decision": decision} | fields)


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_an_accepted_record_goes_back_to_its_owner(server, run, proposed):
    """RU040: the decision, and who made it, stand in the attributes."""
    await run.begin()
    before = await run.write(proposed, run_status=202)
    alice = as_tier(server.address, Tier.CLIENT)
    answer = await resolve(alice, run, comment="go on")
    assert (answer.entry.state, answer.entry.body, answer.entry.outcome) == (RECORDED, "ls", "")
    decision = {"decision": "accept", "comment": "go on", "principal": "alice"}
    assert json.loads(answer.entry.attributes_json) == {"tool": "sh", "ordinal": 0, "decision": decision}
    assert answer.cursor == before.cursor
    assert answer.run.status == 202
    assert answer.entry == await run.entry(RECORD)
    await alice.close()


@pytest.mark.parametrize(("comment", "body"), [("", "Rejected."), ("use make", "use make")])
async def test_a_rejected_record_has_failed(client, run, proposed, comment, body):
    """C20, C26."""
    await run.begin()
    await run.write(proposed, run_status=202)
    entry = (await resolve(client, run, decision=2, comment=comment)).entry
    assert (entry.state, entry.outcome, entry.status, entry.body) == (FAILED, "rejected:403", 403, body)
    decision = {"decision": "reject", "comment": comment, "principal": "operator"}
    assert json.loads(entry.attributes_json)["decision"] == decision


async def test_a_proposal_is_decided_once(client, run, proposed):
    await run.begin()
    await run.write(proposed)
    await resolve(client, run)
    for decision in (1, 2):
        error = await refused(resolve(client, run, decision=decision))
        assert (error.reason, error.metadata) == (Reason.NOT_PROPOSED, {"path": RECORD, "state": "recorded"})


async def test_two_that_decide_at_once_cannot_both_win(client, run, proposed):
    import asyncio

    await run.begin()
    await run.write(proposed)
    answers = await asyncio.gather(
        *(resolve(client, run, decision=number % 2 + 1) for number in range(8)), return_exceptions=True
    )
    assert [isinstance(answer, TurnwrightError) for answer in answers].count(False) == 1


async def test_what_is_no_proposal_cannot_be_decided(client, run):
    assert (await refused(resolve(client, run))).metadata == {"path": RECORD}
    assert (await refused(resolve(client, run, decision=0))).metadata == {"field": "decision"}
    error = await refused(resolve(client, run, comment="x" * 65537))
    assert (error.reason, error.metadata["field"]) == (Reason.LIMIT_EXCEEDED, "comment")


async def test_the_model_cannot_decide_its_own_proposal(server, run, proposed):
    await run.begin()
    await run.write(proposed)
    model = as_tier(server.address, Tier.MODEL)
    assert (await refused(resolve(model, run))).reason is Reason.TIER_FORBIDDEN
    assert (await run.entry(RECORD)).state == PROPOSED
    await model.close()


async def test_attributes_with_a_lone_surrogate_survive_the_decision(client, run):
    await run.write(set_(RECORD, "x", '{"a":"\\ud800"}', state=PROPOSED))
    entry = (await resolve(client, run)).entry
    assert json.loads(entry.attributes_json)["a"] == "\ud800"


@pytest.mark.parametrize(
    "case", [case for case in params("rummy/proposals.jsonl") if "entries" in case.values[0]["input"]]
)
async def test_unresolved_proposals_by_the_cases(run, case):
    """A proposed entry is kept from the packet, a resolved one is not."""
    for entry in case["input"]["entries"]:
        await run.write(set_(entry["path"], "x", state=State[entry["state"].upper()]))
    everything = {entry["path"] for entry in case["input"]["entries"]}
    shown = set((await run.view(filter=2)).paths)
    assert sorted(everything - shown) == case["expected"]["unresolved"]
