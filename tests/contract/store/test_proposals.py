"""Proposals: a pending record is decided once."""

import asyncio
import json

import pytest
from turnwright.types.v1 import command_record_pb2
from turnwright_values.types import State, Tier

from cases import params
from contract.store.harness import FAILED, PROPOSED, RECORDED, as_tier, set_
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

RECORD = "log://turn_1/sh/ls"


@pytest.fixture
def proposed():
    record = command_record_pb2.CommandRecord(tool="sh", ordinal=0)
    record.proposed.effect.command.command = "ls"
    return set_(RECORD, "ls", '{"tool":"sh"}', state=PROPOSED, record=record.SerializeToString(), writer=Tier.SYSTEM)


ACCEPT, REJECT = {"accept": {}}, {"reject": {}}


async def resolve(client, run, **decision):
    return await client.call("ResolveProposal", **run.address, path=RECORD, **decision or ACCEPT)


def decision_in(entry) -> command_record_pb2.CommandDecision:
    """The decision without its time, which is there."""
    decision = getattr(entry.record, entry.record.WhichOneof("stage")).decision
    assert decision.HasField("decide_time")
    decision.ClearField("decide_time")
    return decision


def decided(ruling, comment="", principal="operator"):
    is_persons = ruling == command_record_pb2.DECISION_KIND_ACCEPTED and principal != "operator"
    decider = json.dumps({"name": principal}, separators=(",", ":")) if is_persons else ""
    return command_record_pb2.CommandDecision(kind=ruling, comment=comment, principal=principal, decider=decider)


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_an_accepted_record_goes_back_to_its_owner(run, proposed):
    """RU040: the decision, and who made it, stand in the record, beside what shall happen."""
    await run.begin()
    before = await run.write(proposed, run_status=202)
    alice = as_tier(run.client.peer.address, Tier.CLIENT)
    answer = await resolve(alice, run, accept={"comment": "go on"})
    assert (answer.entry.state, answer.entry.body, answer.entry.outcome) == (RECORDED, "ls", "")
    assert answer.entry == await run.entry(RECORD)
    assert answer.entry.record.WhichOneof("stage") == "accepted"
    assert decision_in(answer.entry) == decided(command_record_pb2.DECISION_KIND_ACCEPTED, "go on", "alice")
    kept = answer.entry.record
    assert (kept.tool, kept.ordinal, kept.accepted.effect.command.command) == ("sh", 0, "ls")
    assert answer.entry.attributes_json == '{"tool":"sh"}'
    assert answer.cursor == before.cursor
    assert answer.run.status == 202
    await alice.close()


@pytest.mark.parametrize(("comment", "body"), [("", "Rejected."), ("use make", "use make")])
async def test_a_rejected_record_has_failed(client, run, proposed, comment, body):
    """C20, C26."""
    await run.begin()
    await run.write(proposed, run_status=202)
    entry = (await resolve(client, run, reject={"comment": comment})).entry
    assert (entry.state, entry.outcome, entry.status, entry.body) == (FAILED, "rejected:403", 403, body)
    assert decision_in(entry) == decided(command_record_pb2.DECISION_KIND_REJECTED, comment)
    assert entry.record.settled.effect.command.command == "ls"


async def test_a_proposal_that_is_no_command_is_decided_too_and_nothing_is_carried_out(client, run):
    await run.begin()
    await run.write(set_(RECORD, "ls", '{"tool":"sh"}', state=PROPOSED), run_status=202)
    entry = (await resolve(client, run)).entry
    assert decision_in(entry) == decided(command_record_pb2.DECISION_KIND_ACCEPTED)
    kept = entry.record
    assert (kept.tool, kept.HasField("ordinal"), kept.accepted.HasField("effect")) == ("", False, False)


@pytest.mark.parametrize(
    ("decision", "word", "past", "state"),
    [(ACCEPT, "accept", "accepted", "recorded"), (REJECT, "reject", "rejected", "failed")],
    ids=["accepted", "rejected"],
)
async def test_who_comes_too_late_is_told_what_was_decided_and_by_whom(
    client, run, proposed, decision, word, past, state
):
    await run.begin()
    await run.write(proposed)
    alice = as_tier(run.client.peer.address, Tier.CLIENT)
    await resolve(alice, run, **decision)
    for again in (ACCEPT, REJECT):
        error = await refused(resolve(client, run, **again))
        assert error.reason is Reason.NOT_PROPOSED
        told = {"path": RECORD, "state": state, "decision": word, "principal": "alice"}
        assert told.items() <= error.metadata.items()
        assert f"was {past} by alice at {error.metadata['time']}" in error.message
    await alice.close()


async def test_two_that_decide_at_once_cannot_both_win(run, proposed):
    people = [as_tier(run.client.peer.address, Tier.CLIENT, f"p{number}") for number in range(8)]
    await run.begin()
    await run.write(proposed)
    answers = await asyncio.gather(
        *(resolve(one, run, **(ACCEPT, REJECT)[number % 2]) for number, one in enumerate(people)),
        return_exceptions=True,
    )
    [won] = [answer for answer in answers if not isinstance(answer, TurnwrightError)]
    winner = decision_in(won.entry).principal
    assert {answer.metadata["principal"] for answer in answers if isinstance(answer, TurnwrightError)} == {winner}
    for one in people:
        await one.close()


async def test_what_was_settled_without_a_decision_says_how(client, run, proposed):
    await run.begin()
    await run.write(proposed)
    await run.write(set_(RECORD, state=State.CANCELLED, outcome="aborted:499", writer=Tier.SYSTEM))
    error = await refused(resolve(client, run))
    assert error.metadata == {"path": RECORD, "state": "cancelled", "outcome": "aborted:499"}


async def test_an_acceptance_may_bring_other_content_which_is_kept_with_it(client, run, proposed):
    await run.begin()
    await run.write(proposed)
    contents = [{"path": "a.txt", "content": "mine\n"}, {"path": "b.txt", "content": ""}]
    entry = (await resolve(client, run, accept={"contents": contents})).entry
    kept = decision_in(entry)
    assert [(one.path, one.content) for one in kept.contents] == [("a.txt", "mine\n"), ("b.txt", "")]


MINE = {"path": "a.txt", "content": "x"}


@pytest.mark.parametrize("contents", [[MINE, MINE], [{"content": "x"}] * 2], ids=["a path twice", "the only one twice"])
async def test_other_content_that_means_nothing_is_refused(client, run, proposed, contents):
    await run.begin()
    await run.write(proposed)
    error = await refused(resolve(client, run, accept={"contents": contents}))
    assert (error.reason, error.metadata) == (Reason.INVALID_FIELD, {"field": "contents"})
    assert (await run.entry(RECORD)).state == PROPOSED


@pytest.mark.parametrize(
    ("contents", "field"),
    [
        ([{"path": str(number), "content": ""} for number in range(1001)], "contents"),
        ([{"path": "x" * 2049, "content": ""}], "contents.path"),
        ([{"path": "a.txt", "content": "x" * 1024 * 1024}], "record"),
    ],
    ids=["many", "a long path", "a long content"],
)
async def test_other_content_over_a_limit_is_refused(client, run, proposed, contents, field):
    await run.begin()
    await run.write(proposed)
    error = await refused(resolve(client, run, accept={"contents": contents}))
    assert (error.reason, error.metadata["field"]) == (Reason.LIMIT_EXCEEDED, field)
    assert (await run.entry(RECORD)).state == PROPOSED


async def test_what_is_no_proposal_cannot_be_decided(client, run):
    assert (await refused(resolve(client, run))).metadata == {"path": RECORD}
    assert (await refused(client.call("ResolveProposal", **run.address, path=RECORD))).metadata == {"field": "decision"}
    error = await refused(resolve(client, run, accept={"comment": "x" * 65537}))
    assert (error.reason, error.metadata["field"]) == (Reason.LIMIT_EXCEEDED, "comment")


async def test_the_model_cannot_decide_its_own_proposal(run, proposed):
    await run.begin()
    await run.write(proposed)
    model = as_tier(run.client.peer.address, Tier.MODEL)
    assert (await refused(resolve(model, run))).reason is Reason.RIGHT_MISSING
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


async def test_a_run_is_read_with_what_waits_in_it_or_alone(run, proposed):
    await run.begin()
    await run.write(proposed, set_("unknown://why", "Why?"), run_status=202)
    whole = await run.client.call("GetRun", **run.address, turns_max=1, history_max=10)
    assert (list(whole.proposals), [one.path for one in whole.unknowns]) == ([proposed.path], ["unknown://why"])
    assert {proposed.path, "unknown://why"} <= {one.path for one in whole.history}
    assert (len(whole.loops), len(whole.turns), whole.spent.turns, whole.loop_spent.turns) == (1, 1, 1, 1)
    alone = await run.client.call("GetRun", **run.address, turns_max=1, history_max=10, run_only=True)
    assert [field.name for field, _ in alone.ListFields()] == ["run"]
    assert alone.run == whole.run
    for field in ("turns_max", "history_max"):
        error = await refused(run.client.call("GetRun", **run.address, **{field: 1001}))
        assert (error.reason, error.metadata["field"]) == (Reason.LIMIT_EXCEEDED, field)
