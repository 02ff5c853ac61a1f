"""The inbox: what waits for a decision in any run, as a client lists and follows it."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from turnwright.proposals.v1 import proposal_service_pb2, proposal_service_pb2_grpc
from turnwright.types.v1 import command_record_pb2

from contract.executor.proposing import (
    ASK,
    DONE,
    GO_ON,
    PROPOSAL,
    QUESTION,
    SET,
    listed,
    person,
    until_change,
    waiting,
)
from services import SECRET, running
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_kit.peer import Peer

pytestmark = pytest.mark.asyncio


async def test_the_inbox_lists_what_waits_in_any_run_as_proposals(services):
    # RU009, RU013, RU244
    await waiting(services, f"{SET}{GO_ON}", DONE)
    await waiting(services, f"<sh>make test</sh>{GO_ON}", DONE, run="other")

    items = [item async for item in services.client.list_proposals(services.project)]

    assert [(item.project, item.run) for item in items] == [(services.project, "r"), (services.project, "other")]
    assert "-old\n+new" in items[0].proposal.files.changes[0].patch
    assert items[1].proposal.command.command == "make test"
    assert all(item.HasField("propose_time") for item in items)
    assert await listed(services.client) == await listed(services.client, services.project)
    assert await listed(services.client, services.project, "other") == [("other", "log://turn_1/sh/make_test", "sh")]


async def test_whoever_watches_the_inbox_hears_what_comes_and_who_decided_it(services):
    # RU013, RU244, RU246, RU254
    async with contextlib.aclosing(services.client.watch_proposals(services.project)) as changes:
        assert (await anext(changes)).complete
        await waiting(services, f"{SET}{GO_ON}", DONE)
        [item] = (await until_change(changes, "pending")).pending
        async with person(services, "alice") as alice:
            await alice.resolve(services.project, "r", PROPOSAL, accept=True)
        [left] = (await until_change(changes, "decided")).decided
    assert (item.run, item.proposal.path) == ("r", PROPOSAL)
    assert (left.project, left.run, left.decision.path) == (services.project, "r", PROPOSAL)
    assert (left.decision.kind, left.decision.principal) == (command_record_pb2.DECISION_KIND_ACCEPTED, "alice")


async def test_an_abort_takes_the_proposal_out_of_the_inbox(services):
    # RU039; C36
    queued = await waiting(services, f"{SET}{GO_ON}", DONE)
    async with contextlib.aclosing(services.client.watch_proposals()) as changes:
        await until_change(changes, "pending")
        await services.client.abort(services.project, "r")
        [left] = (await until_change(changes, "decided")).decided
    assert (await services.until(queued)).status == 499
    assert (left.decision.outcome, left.decision.kind, left.decision.principal) == ("aborted:499", 0, "")
    assert await listed(services.client) == []
    assert (services.files / "a.txt").read_text() == "old\n"


@pytest.mark.parametrize(
    ("command", "path"),
    [
        (SET, PROPOSAL),
        ('<rm path="a.txt"/>', "log://turn_1/rm/a.txt"),
        ('<mv path="a.txt" to="b.txt"/>', "log://turn_1/mv/a.txt"),
        ('<cp path="a.txt" to="b.txt"/>', "log://turn_1/cp/a.txt"),
        ("<sh>touch b.txt</sh>", "log://turn_1/sh/touch_b.txt"),
        (ASK, QUESTION),
    ],
    ids=["set", "rm", "mv", "cp", "sh", "ask_user"],
)
async def test_what_has_an_effect_waits_at_202_and_is_accepted_by_itself_in_a_run_that_asks_nobody(
    services, command, path
):
    # RU009, RU135, RU161, RU162, RU164
    await waiting(services, f"{command}{GO_ON}", DONE)
    assert await services.status(path) == 202
    assert sorted(file.name for file in services.files.iterdir() if file.is_file()) == ["a.txt"]
    assert (services.files / "a.txt").read_text() == "old\n"

    services.script(f"{command}{GO_ON}", DONE)
    assert (await services.until(await services.act(run="yolo"))).status == 200
    assert await services.status(path, "yolo") == 200


async def watched(stream, begun):
    """The first message of a stream, and the error that it ends with."""
    async with stream as messages:
        first = await anext(messages)
        begun.set()
        with pytest.raises(TurnwrightError) as ended:
            await anext(messages)
    return first, ended.value


async def test_a_watch_of_the_inbox_ends_when_the_executor_does(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path) as services:
        peer = Peer("executor", services.addresses["executor"], SECRET, 10.0)
        stub = proposal_service_pb2_grpc.ProposalServiceStub(peer.channel)
        stream, begun = (
            peer.stream(stub.WatchProposals, proposal_service_pb2.WatchProposalsRequest(), None),
            asyncio.Event(),
        )
        watch = asyncio.create_task(watched(stream, begun))
        await asyncio.wait_for(begun.wait(), 60)
    first, ended = await watch
    assert first.complete
    # On a slow host the server's own grace may be over first.
    assert ended.reason in (Reason.DRAINING, Reason.SERVICE_UNAVAILABLE)
    await peer.close()
