"""The inbox: what waits for a decision in any run, as pages and as a stream, and what nobody decides in time."""

import asyncio
import json
from contextlib import aclosing, asynccontextmanager

import pytest
from turnwright.types.v1 import command_record_pb2
from turnwright_values.types import Tier

from contract.store.harness import (
    CANCELLED,
    FAILED,
    PROPOSED,
    RECORDED,
    RESOLVED,
    Client,
    new_project,
    set_,
    start_store,
    working_run,
)
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_store.domain.limits import WriteLimits

pytestmark = pytest.mark.asyncio

PATH = "log://turn_1/sh/ls"


async def proposing(client, project, alias, *paths):
    """A run that waits for a decision on each of these."""
    run = await working_run(client, project, alias)
    await run.begin()
    for path in paths or (PATH,):
        await run.write(set_(path, f"run {path}", '{"tool":"sh"}', state=PROPOSED, turn=1), run_status=202)
    return run


async def resolve(client, run, **decision):
    return await client.call("ResolveProposal", **run.address, path=PATH, **decision or {"accept": {}})


async def listed(client, **fields):
    answer = await client.call("ListProposals", **fields)
    return [(one.project, one.run, one.proposal.path) for one in answer.proposals]


async def paged(client, size, **fields):
    """All pages, one after another."""
    found, token = [], ""
    while True:
        page = await client.call("ListProposals", page_size=size, page_token=token, **fields)
        found.append([one.run for one in page.proposals])
        token = page.next_page_token
        if not token:
            return found


async def test_what_waits_is_listed_across_runs_the_longest_waiting_first(client, project):
    # RU009, RU244
    other = await new_project(client, "other")
    runs = [await proposing(client, name, alias) for name, alias in ((project, "b"), (other, "a"), (project, "c"))]
    await working_run(client, project, "busy")

    assert await listed(client) == [(run.project, run.alias, PATH) for run in runs]
    assert await listed(client, project=project) == [(project, "b", PATH), (project, "c", PATH)]
    assert await listed(client, project=project, run="c") == [(project, "c", PATH)]
    assert await listed(client, project=project, run="busy") == []


async def test_an_item_is_all_that_is_needed_to_decide_and_says_since_when_it_waits(client, project):
    run = await proposing(client, project, "r")

    [item] = (await client.call("ListProposals")).proposals

    shown = item.proposal
    assert (shown.path, shown.tool, shown.turn, shown.body) == (PATH, "sh", 1, f"run {PATH}")
    assert item.propose_time == (await run.entry(PATH)).update_time


async def test_pages_follow_each_other_though_something_is_decided_between(client, project):
    runs = [await proposing(client, project, f"r{number}") for number in range(5)]

    assert await paged(client, 2) == [["r0", "r1"], ["r2", "r3"], ["r4"]]
    first = await client.call("ListProposals", page_size=2)
    await resolve(client, runs[1])
    second = await client.call("ListProposals", page_size=2, page_token=first.next_page_token)

    assert [one.run for one in second.proposals] == ["r2", "r3"]


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"project": "none"}, Reason.PROJECT_NOT_FOUND),
        ({"project": "demo", "run": "none"}, Reason.RUN_NOT_FOUND),
        ({"run": "r"}, Reason.INVALID_FIELD),
        ({"page_size": 1001}, Reason.LIMIT_EXCEEDED),
        ({"page_token": "nonsense"}, Reason.INVALID_FIELD),
    ],
    ids=["no such project", "no such run", "a run of no project", "page size", "page token"],
)
async def test_a_list_of_nothing_that_is_there_is_refused(client, project, fields, reason):
    assert project == "demo"
    with pytest.raises(TurnwrightError) as caught:
        await client.call("ListProposals", **fields)
    assert caught.value.reason is reason


async def test_a_decided_or_aborted_proposal_leaves_the_list(client, project):
    accepted = await proposing(client, project, "accepted")
    aborted = await proposing(client, project, "aborted")
    await resolve(client, accepted)
    await aborted.write(set_(PATH, state=CANCELLED, outcome="aborted:499", writer=Tier.SYSTEM))

    assert await listed(client) == []


async def test_what_a_client_executes_is_not_in_the_inbox(client, project):
    record = command_record_pb2.CommandRecord(tool="open", ordinal=1, proposed={"effect": {"client_tool": {}}})
    call = set_(
        "log://turn_1/open/a", "", state=PROPOSED, turn=1, record=record.SerializeToString(), writer=Tier.SYSTEM
    )
    async with watching(client) as inbox:
        run = await proposing(client, project, "r")
        await run.write(call)
        assert await listed(client) == [(project, "r", PATH)]
        await inbox.until(lambda inbox: inbox.pending)
        await resolve(client, run)
        await run.write(set_(call.path, state=CANCELLED, writer=Tier.SYSTEM))
        await inbox.until(lambda inbox: inbox.decided)
        other = await proposing(client, project, "s")
        await inbox.until(lambda inbox: (project, other.alias, PATH) in inbox.pending)
        assert (list(inbox.pending), len(inbox.decided)) == ([(project, "s", PATH)], 1)


async def test_a_fork_proposes_nothing_again(client, project):
    run = await proposing(client, project, "r")
    await client.call("ForkRun", project=project, run=run.alias, new_run="fork")

    assert await listed(client) == [(project, "r", PATH)]


# ---- Following


class Inbox:
    """A watch, folded as a client folds it."""

    def __init__(self, stream):
        self._stream = stream
        self.pending: dict[tuple[str, str, str], str] = {}
        self.decided: list = []
        self.complete = False
        self.messages = 0

    async def until(self, is_there) -> None:
        async with asyncio.timeout(60):
            while not is_there(self):
                self._fold(await anext(self._stream))

    def _fold(self, message) -> None:
        self.messages += 1
        self.complete = self.complete or message.complete
        for one in message.pending:
            self.pending[(one.project, one.run, one.proposal.path)] = one.proposal.body
        for one in message.decided:
            del self.pending[(one.project, one.run, one.decision.path)]
            self.decided.append(one)


@asynccontextmanager
async def watching(client, **fields):
    async with aclosing(client.stream("WatchProposals", **fields)) as stream:
        inbox = Inbox(stream)
        await inbox.until(lambda inbox: inbox.complete)
        yield inbox


async def test_a_watch_begins_with_all_that_waits_and_goes_on_with_what_comes(client, project):
    await proposing(client, project, "r1")
    async with watching(client, project=project) as inbox:
        assert list(inbox.pending) == [(project, "r1", PATH)]
        await proposing(client, project, "r2")
        await inbox.until(lambda inbox: len(inbox.pending) == 2)
        assert inbox.decided == []


async def test_an_empty_inbox_says_so_at_once(client, project):
    async with watching(client) as inbox:
        assert (inbox.messages, inbox.pending) == (1, {})


@pytest.mark.parametrize(
    ("decision", "state", "outcome", "kind"),
    [
        ("accept", RECORDED, "", command_record_pb2.DECISION_KIND_ACCEPTED),
        ("reject", 5, "rejected:403", command_record_pb2.DECISION_KIND_REJECTED),
    ],
    ids=["accepted", "rejected"],
)
async def test_a_watcher_hears_what_was_decided_and_by_whom(client, project, decision, state, outcome, kind):
    run = await proposing(client, project, "r")
    async with watching(client, project=project) as inbox:
        await resolve(client, run, **{decision: {"comment": "because"}})
        await inbox.until(lambda inbox: inbox.decided)
        [one] = inbox.decided
        assert (one.project, one.run, one.decision.path) == (project, "r", PATH)
        told = one.decision
        assert (told.state, told.outcome, told.kind) == (state, outcome, kind)
        assert (told.principal, told.comment, told.edited) == ("operator", "because", False)
        assert told.HasField("decide_time")


async def test_a_watcher_hears_of_a_proposal_that_an_abort_settled(client, project):
    run = await proposing(client, project, "r")
    async with watching(client) as inbox:
        await run.write(set_(PATH, state=CANCELLED, outcome="aborted:499", writer=Tier.SYSTEM))
        await inbox.until(lambda inbox: inbox.decided)
        told = inbox.decided[0].decision
        assert (told.state, told.outcome, told.kind) == (CANCELLED, "aborted:499", 0)
        assert (told.principal, told.HasField("decide_time")) == ("", False)


async def test_a_proposal_that_is_written_again_is_sent_again_and_not_as_decided(client, project):
    run = await proposing(client, project, "r")
    async with watching(client) as inbox:
        await run.write(set_(PATH, "now longer", state=PROPOSED, writer=Tier.SYSTEM))
        await inbox.until(lambda inbox: inbox.pending.get((project, "r", PATH)) == "now longer")
        assert inbox.decided == []


async def test_a_watch_of_one_project_is_silent_about_others(client, project):
    other = await new_project(client, "other")
    async with watching(client, project=project) as inbox:
        await proposing(client, other, "r")
        run = await proposing(client, project, "r")
        await inbox.until(lambda inbox: inbox.pending)
        assert list(inbox.pending) == [(project, run.alias, PATH)]


async def test_a_silent_watch_has_heartbeats(client, project):
    async with watching(client, project=project) as inbox:
        before = inbox.messages
        await inbox.until(lambda inbox: inbox.messages > before + 1)
        assert (inbox.pending, inbox.decided) == ({}, [])


async def test_a_long_inbox_comes_in_messages_of_a_bounded_size(client, project):
    for number in range(3):
        run = await working_run(client, project, f"r{number}")
        await run.begin()
        attributes = json.dumps({"tool": "sh", "effect": "x" * 200_000})
        await run.write(set_(PATH, "ls", attributes, state=PROPOSED), run_status=202)
    async with aclosing(client.stream("WatchProposals")) as stream:
        sizes = []
        async for message in stream:
            sizes.append((len(message.pending), message.ByteSize() < 400_000))
            if message.complete:
                break
        assert sizes == [(1, True), (1, True), (1, True), (0, True)]


async def test_a_project_that_is_not_there_is_not_watched(client):
    with pytest.raises(TurnwrightError) as caught:
        async with watching(client, project="none"):
            pass
    assert caught.value.reason is Reason.PROJECT_NOT_FOUND


async def test_a_decision_through_another_replica_is_heard(client, project, db, tmp_path):
    if not db:
        pytest.skip("a file has one store")
    run = await proposing(client, project, "r")
    replica = await start_store(tmp_path, "replica", heartbeat_s=0.2)
    elsewhere = Client(replica.address)
    async with watching(client) as inbox:
        await resolve(elsewhere, run)
        await inbox.until(lambda inbox: inbox.decided)
        assert inbox.pending == {}
    await elsewhere.close()
    await replica.stop()


# ---- Expiry


@pytest.fixture
def impatient(tmp_path):
    """A store in which proposals expire, and a client of it."""

    @asynccontextmanager
    async def started(**settings):
        server = await start_store(tmp_path, "impatient", heartbeat_s=0.2, **settings)
        client = Client(server.address)
        try:
            yield client
        finally:
            await client.close()
            await server.stop()

    return started


async def settled(run):
    for _ in range(1200):
        entry = await run.entry(PATH)
        if entry.state != PROPOSED:
            return entry
        await asyncio.sleep(0.05)
    raise AssertionError("it still waits")


async def test_a_proposal_that_nobody_decides_in_time_is_cancelled_with_the_reason(impatient):
    async with impatient(proposal_expire_s=0.4) as client:
        project = await new_project(client)
        async with watching(client) as inbox:
            run = await proposing(client, project, "r")
            entry = await settled(run)
            await inbox.until(lambda inbox: inbox.decided)
            told = inbox.decided[0].decision
        assert (entry.state, entry.outcome, entry.status) == (CANCELLED, "expired:499", 499)
        assert entry.body == "Nobody decided within 0.4 s, so it was not carried out."
        assert (told.kind, told.principal) == (command_record_pb2.DECISION_KIND_EXPIRED, "")
        with pytest.raises(TurnwrightError) as late:
            await resolve(client, run)
        assert late.value.reason is Reason.NOT_PROPOSED
        assert {"state": "cancelled", "outcome": "expired:499", "decision": "expire"}.items() <= (
            late.value.metadata.items()
        )


@pytest.mark.parametrize(
    "waits",
    [
        {"effect": {"question": {"question": "?"}}, "interrupted": {"command": {"command": "make"}}},
        {"effect": {"client_tool": {}}},
    ],
    ids=["a question about an interrupted command", "a tool of a client"],
)
async def test_what_may_have_happened_does_not_expire_as_cancelled(impatient, waits):
    # C63
    other = "log://turn_1/sh/other"
    record = command_record_pb2.CommandRecord(tool="sh", ordinal=1, proposed=waits).SerializeToString()
    async with impatient(proposal_expire_s=0.4) as client:
        run = await proposing(client, await new_project(client), "r")
        await run.write(set_(other, "run it", state=PROPOSED, turn=1, record=record, writer=Tier.SYSTEM))
        for _ in range(1200):
            if (entry := await run.entry(other)).state != PROPOSED:
                break
            await asyncio.sleep(0.05)
        assert (entry.state, entry.outcome) == (FAILED, "expired:499")
        assert "it may have happened" in entry.body


async def test_a_run_whose_proposal_expired_has_work_again_without_any_executor(impatient):
    async with impatient() as client:
        run = await proposing(client, await new_project(client), "r")
        await client.call("ReleaseRun", **run.address, epoch=run.epoch)
        assert not (await client.call("ListWork")).runs
    async with impatient(proposal_expire_s=0.4) as client:
        run.client = client
        await settled(run)
        assert [one.run for one in (await client.call("ListWork")).runs] == ["r"]


async def test_a_proposal_that_cannot_be_settled_keeps_no_other_from_its_end(impatient):
    """A decision does not fit into the record of the elder one any more."""
    async with impatient(proposal_expire_s=0.4, write_limits=WriteLimits(attributes_bytes_max=1024)) as client:
        project = await new_project(client)
        full = await working_run(client, project, "full")
        await full.begin()
        no_room = command_record_pb2.CommandRecord(tool="x" * 1020).SerializeToString()
        write = set_(PATH, "run it", state=PROPOSED, turn=1, record=no_room, writer=Tier.SYSTEM)
        await full.write(write, run_status=202)
        other = await proposing(client, project, "other")
        assert (await settled(other)).outcome == "expired:499"
        assert (await full.entry(PATH)).state == PROPOSED


async def test_what_is_decided_in_time_does_not_expire(impatient):
    async with impatient() as client:
        project = await new_project(client)
        run = await proposing(client, project, "r")
        await resolve(client, run)
        await run.write(set_(PATH, state=RESOLVED, writer=Tier.SYSTEM))
        other = await proposing(client, project, "other")
    async with impatient(proposal_expire_s=0.1) as client:
        run.client = other.client = client
        await settled(other)
        assert (await run.entry(PATH)).state == RESOLVED


async def test_by_default_a_proposal_waits_for_ever(client, project):
    run = await proposing(client, project, "r")
    await asyncio.sleep(0.5)
    assert (await run.entry(PATH)).state == PROPOSED
