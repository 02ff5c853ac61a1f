"""Decisions of clients on proposals: one wins, other content may be accepted, questions are answered."""

from __future__ import annotations

import asyncio
import json

import pytest
from turnwright.proposals.v1 import proposal_service_pb2, proposal_service_pb2_grpc
from turnwright.types.v1 import command_record_pb2

from contract.executor.proposing import (
    ASK,
    DONE,
    GO_ON,
    PROPOSAL,
    SET,
    listed,
    person,
    waiting,
)
from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from services import token_for
from turnwright_core.errors import DeniedError, InvalidError, PreconditionError, Reason, TurnwrightError
from turnwright_kit.identity.caller import Kind
from turnwright_kit.peer import Peer

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

# ---- Deciding


@pytest.mark.parametrize(
    ("said", "status", "turns"),
    [
        (GO_ON, 200, 2),
        ('<update status="200">All done.</update>', 200, 1),
        ('<update status="204">Nothing more.</update>', 204, 1),
        ('<update status="422">It cannot be.</update>', 422, 1),
        ("", 200, 2),
        ('<get path="none.txt"/><update status="200">All done.</update>', 200, 2),
    ],
    ids=["102", "200", "204", "422", "no update", "an error"],
)
async def test_after_an_acceptance_the_update_says_whether_the_loop_goes_on(services, said, status, turns):
    # RU250
    queued = await waiting(services, f"{SET}{said}", DONE)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=True)
    loop = await services.until(queued)
    assert (loop.status, loop.turns) == (status, turns)
    assert (services.files / "a.txt").read_text() == "new\n"


async def test_of_two_that_decide_at_once_one_wins_and_the_other_is_told_who(services):
    # RU040, RU254
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    async with person(services, "alice") as alice, person(services, "bob") as bob:
        answers = await asyncio.gather(
            alice.resolve(services.project, "r", PROPOSAL, accept=True),
            bob.resolve(services.project, "r", PROPOSAL, accept=False, comment="No."),
            return_exceptions=True,
        )
    [told] = [answer for answer in answers if isinstance(answer, PreconditionError)]
    winner = "alice" if told is answers[1] else "bob"
    decision = {"alice": "accept", "bob": "reject"}[winner]
    assert told.reason is Reason.NOT_PROPOSED
    assert {"decision": decision, "principal": winner}.items() <= told.metadata.items()
    assert f"by {winner} at " in told.message
    await services.until(queued)
    assert (services.files / "a.txt").read_text() == {"alice": "new\n", "bob": "old\n"}[winner]


async def test_the_events_of_the_run_say_who_decided(services):
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    async with person(services, "alice") as alice:
        await alice.resolve(services.project, "r", PROPOSAL, accept=True)
    await services.until(queued)
    [resolved] = [event.proposal_resolved for event in services.events if event.HasField("proposal_resolved")]
    assert (resolved.decision.principal, resolved.decision.kind) == ("alice", command_record_pb2.DECISION_KIND_ACCEPTED)


async def test_a_repeated_decision_has_the_first_answer(services):
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    contents = {"a.txt": "mine\n"}
    for _ in range(2):
        await services.client.resolve(
            services.project, "r", PROPOSAL, accept=True, contents=contents, request_id="once"
        )
        await services.until(queued)
    assert (services.files / "a.txt").read_text() == "mine\n"


async def test_the_model_itself_decides_nothing(services):
    # RU120
    await waiting(services, f"{SET}{GO_ON}", DONE)
    model = Peer("executor", services.addresses["executor"], token_for("m", Kind.MODEL), 10.0)
    request = proposal_service_pb2.ResolveProposalRequest(project=services.project, run="r", path=PROPOSAL)
    request.accept.SetInParent()
    stub = proposal_service_pb2_grpc.ProposalServiceStub(model.channel)
    with pytest.raises(DeniedError):
        await model.call(stub.ResolveProposal, request)
    assert len(await listed(services.client, services.project)) == 1
    await model.close()


# ---- Other content


async def test_a_proposal_is_read_with_all_that_it_would_write(services):
    await waiting(services, f"{SET}{GO_ON}", DONE)
    answer = await services.client.get_proposal(services.project, "r", PROPOSAL)
    assert [(one.path, one.content) for one in answer.contents] == [("a.txt", "new\n")]
    change = answer.proposal.files.changes[0]
    assert (change.path, change.old_text) == ("a.txt", "old\n")
    [listed_one] = [item.proposal async for item in services.client.list_proposals(services.project)]
    assert not listed_one.files.changes[0].HasField("old_text")
    await services.client.resolve(services.project, "r", PROPOSAL, accept=False)
    with pytest.raises(PreconditionError) as late:
        await services.client.get_proposal(services.project, "r", PROPOSAL)
    assert late.value.reason is Reason.NOT_PROPOSED
    with pytest.raises(TurnwrightError) as missing:
        await services.client.get_proposal(services.project, "r", "log://turn_1/set/none")
    assert missing.value.reason is Reason.ENTRY_NOT_FOUND


async def test_an_acceptance_may_bring_other_content_and_the_model_reads_what_is_there_now(services):
    # RU232, RU253
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=True, contents={"": "newer\r\nstill"})
    await services.until(queued)
    assert (services.files / "a.txt").read_bytes() == b"newer\r\nstill"
    assert (await services.entry("a.txt")).body == "newer\r\nstill"
    record = await services.entry(PROPOSAL)
    assert record.status == 200
    assert record.body.startswith(
        "wrote a.txt as the reviewer changed it, not as proposed\nFrom the proposed content to"
    )
    assert "-new\n+newer" in record.body
    decision = record.record.settled.decision
    assert (decision.kind, decision.principal) == (command_record_pb2.DECISION_KIND_ACCEPTED, "operator")
    assert (list(decision.edited_paths), list(decision.contents)) == ([""], [])


async def test_content_that_is_as_proposed_amends_nothing(services):
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    await services.client.resolve(services.project, "r", PROPOSAL, accept=True, contents={"a.txt": "new\n"})
    await services.until(queued)
    assert (await services.entry(PROPOSAL)).body == "edit a.txt (+1 -1)"


async def test_a_command_may_be_accepted_with_another_command_line(services):
    queued = await waiting(services, f"<sh>touch one</sh>{GO_ON}", DONE)
    await services.client.resolve(
        services.project, "r", "log://turn_1/sh/touch_one", accept=True, contents={"": "touch two"}
    )
    await services.until(queued)
    assert [name for name in ("one", "two") if (services.files / name).exists()] == ["two"]
    assert "touch two" in (await services.entry("log://turn_1/sh/touch_one")).body


async def test_one_of_several_files_may_get_other_content(services):
    (services.files / "b.txt").write_text("b\n")
    queued = await waiting(services, f'<cp path="*.txt" to="copy/"/>{GO_ON}', DONE)
    [item] = [item async for item in services.client.list_proposals(services.project)]
    contents = {"copy/b.txt": "mine\n"}
    await services.client.resolve(services.project, "r", item.proposal.path, accept=True, contents=contents)
    await services.until(queued)
    copied = {path.name: path.read_text() for path in (services.files / "copy").iterdir()}
    assert copied == {"a.txt": "old\n", "b.txt": "mine\n"}


@pytest.mark.parametrize(
    ("reply", "fields", "told"),
    [
        (SET, {"contents": {"b.txt": "x"}}, "does not write b.txt; it writes a.txt"),
        (SET, {"contents": {"": "x", "a.txt": "y"}}, "name the path of each content"),
        (SET, {"answer": "yes"}, "not a question"),
        ('<rm path="a.txt"/>', {"contents": {"a.txt": "x"}}, "it writes no file"),
        ("<sh>ls</sh>", {"contents": {"ls": "x"}}, "leave the path empty"),
        ("<sh>ls</sh>", {"contents": {"": " "}}, "empty"),
        (ASK, {"contents": {"": "x"}, "answer": "x"}, "give an answer"),
        (ASK, {}, "accept it with `answer`"),
        (ASK, {"answer": "  "}, "accept it with `answer`"),
    ],
)
async def test_an_acceptance_that_does_not_fit_the_proposal_is_refused_and_it_still_waits(
    services, reply, fields, told
):
    await waiting(services, f"{reply}{GO_ON}", DONE)
    [(_, path, _)] = await listed(services.client, services.project)
    with pytest.raises(InvalidError, match=told):
        await services.client.resolve(services.project, "r", path, accept=True, **fields)
    assert [one[1] for one in await listed(services.client, services.project)] == [path]


async def test_content_over_the_limit_is_refused(services):
    await waiting(services, f"{SET}{GO_ON}", DONE)
    with pytest.raises(InvalidError) as caught:
        await services.client.resolve(
            services.project, "r", PROPOSAL, accept=True, contents={"a.txt": "x" * 1024 * 1024}
        )
    assert caught.value.reason is Reason.LIMIT_EXCEEDED
    assert len(await listed(services.client, services.project)) == 1


async def test_a_file_that_changed_meanwhile_is_left_alone_and_the_model_reads_what_it_says(services):
    # RU205; architecture 6
    queued = await waiting(services, f"{SET}{DONE}", DONE)
    (services.files / "a.txt").write_text("somebody was quicker\n")
    await services.client.resolve(services.project, "r", PROPOSAL, accept=True, contents={"": "mine\n"})
    await services.until(queued)
    record = await services.entry(PROPOSAL)
    assert (services.files / "a.txt").read_text() == "somebody was quicker\n"
    assert record.status == 409
    assert record.body.endswith("on what it says now:\nsomebody was quicker\n")
    assert json.loads(record.attributes_json)["unwritten"] == {"a.txt": "mine\n"}


# ---- Questions


async def test_a_question_waits_for_its_answer_and_the_model_reads_it(services):
    # RU009, RU123
    queued = await waiting(services, f"{ASK}{GO_ON}", DONE)
    [item] = [item async for item in services.client.list_proposals(services.project)]
    question = item.proposal.question
    assert (question.question, list(question.options)) == ("Which database?", ["PostgreSQL", "SQLite"])
    await services.client.resolve(services.project, "r", item.proposal.path, accept=True, answer="SQLite, for now")
    assert (await services.until(queued)).status == 200
    record = await services.entry(item.proposal.path)
    assert (record.status, record.body) == (200, "Which database?\nSQLite, for now")
    assert json.loads(record.attributes_json)["answer"] == "SQLite, for now"


async def test_a_question_may_be_asked_in_ask_mode_too(services):
    # C2
    services.script(f"{ASK}{GO_ON}", DONE)
    queued = await services.ask()
    assert (await services.until(queued, 202)).status == 202


async def test_a_question_that_is_rejected_ends_the_loop(services):
    queued = await waiting(services, f"{ASK}{GO_ON}", DONE)
    [(_, path, _)] = await listed(services.client, services.project)
    await services.client.resolve(services.project, "r", path, accept=False)
    loop = await services.until(queued)
    assert (loop.status, loop.reason) == (499, "rejected")


@pytest.mark.parametrize("flag", ["no_interaction", "no_proposals"])
async def test_where_nobody_is_to_be_asked_there_is_no_such_tool(services, flag):
    # RU122, RU231
    services.script(f"{ASK}{GO_ON}", DONE)
    await services.until(await services.act(yolo=False, **{flag: True}))
    [record] = [entry for path, entry in services.view().entries.items() if "/ask_user/" in path]
    assert (record.status, "not available" in record.body) == (403, True)


async def test_a_run_that_accepts_everything_answers_nothing_and_says_so(services):
    # RU162
    services.script(f"{ASK}{GO_ON}", DONE)
    assert (await services.until(await services.act())).status == 200
    [record] = [entry for path, entry in services.view().entries.items() if "/ask_user/" in path]
    assert (record.status, "Decide by yourself" in record.body) == (200, True)
