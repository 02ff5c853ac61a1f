"""What an executor does with a turn that another one left: the table of architecture 11, a row to a test.

The other executor is a client of the store that leaves its ledger in a state and goes: it gives the run back, or is
not heard of any more.
"""

import asyncio
import contextlib
import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta

import pytest
from msgspec.structs import replace
from turnwright.proposals.v1 import proposal_service_pb2, proposal_service_pb2_grpc
from turnwright.store.v1 import ledger_pb2, write_pb2
from turnwright.types.v1 import packet_pb2
from turnwright_values.types import CommandEffect, FileEdit, FileEffect, State, Tier, Visibility

from contract.executor.test_pipeline import Asked
from contract.store.harness import Client as StoreClient
from contract.store.harness import Run, request, set_
from services import SECRET, running
from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import REPLY_RESERVE_TOKENS
from turnwright_core.packet_digest import packet_digest
from turnwright_core.wire.entries import write_to_pb
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.records import target_of
from turnwright_executor.turn.records import new_record_write
from turnwright_grammar.reply import Command
from turnwright_kit.peer import Peer

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">All is done.</update>'
LIFE = timedelta(milliseconds=100)
"""Length of the lease of an owner that dies; the store's grace is as long."""


@pytest.fixture(autouse=True)
def model(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_LEASE_GRACE_S", "0.1")


@dataclass
class Left:
    """A run in the middle of a turn, as its owner leaves it, and the services that go on."""

    services: object
    run: Run

    async def record(
        self, tool, attributes=None, body="", target="", ordinal=0, state=State.RECORDED, said=None, **more
    ):
        """RECORD one command, of which its tool says this; `more` are fields of its record."""
        command = Command(tool, attributes or {}, body)
        path = f"log://turn_1/{tool}/{target or ordinal + 1}"
        record = CommandRecord(
            path, tool, target_of(command, {}), command, ordinal, state=state, attributes=said or {}, **more
        )
        await self.run.write(write_to_pb(replace(new_record_write(record), turn=1, loop=1)))
        return path

    async def reply(self):
        await self.run.write(set_("assistant://1", "The reply.", "{}", turn=1, loop=1, state=State.RESOLVED))

    async def sh(self, line, **more):
        effect = CommandEffect(f"echo {line} >> effects.txt", 5.0)
        return await self.record("sh", {"command": effect.command}, target=line, effect=effect, **more)

    async def gone(self):
        """Give the run back, and have the executor look at it."""
        await self.run.client.call("ReleaseRun", **self.run.address, epoch=self.run.epoch)
        return await self.taken_up()

    async def taken_up(self):
        """The first loop at its end, or at 202; a task that is queued behind it has the executor look."""
        await self.services.act(run=self.run.alias)
        for _ in range(1200):
            loop = await self.services.client.get_loop(self.services.project, self.run.alias, 1)
            if loop.status not in (100, 102):
                return loop
            await asyncio.sleep(0.05)
        raise AssertionError("nobody went on with it")

    async def state(self, path):
        entry = await self.services.entry(path, self.run.alias)
        return State(entry.state), entry.outcome

    @property
    def effects(self):
        file = self.services.files / "effects.txt"
        return file.read_text().split() if file.exists() else []


class Closing(StoreClient):
    aclose = StoreClient.close


@contextlib.asynccontextmanager
async def left(root, *, yolo=True, claim=None, store=(), **executor):
    """A run whose first turn has begun under another owner. `store` are interceptors of the store."""
    async with running(root, store, recover=False, **executor) as services:
        services.script(DONE, DONE)
        async with contextlib.aclosing(Closing(services.addresses["store"], SECRET)) as client:
            run = Run(client, services.project, "r")
            await run.enqueue(model="m", yolo=yolo)
            await run.claim("another", **(claim or {}))
            await begin(run)
            yield Left(services, run)


async def begin(run):
    """The first turn, with what stands before it."""
    wanted = request(model="m", vendor_model="scripted/m", context_length=32768)
    tools = json.dumps({"tools": ["update"], "tool_docs": {"update": "Say how far you are."}, "persona": None})
    writes = [
        set_("instructions://system", "", tools, state=State.RESOLVED),
        set_("prompt://{turn}", "do it", "{}", visibility=Visibility.VISIBLE, state=State.RESOLVED),
    ]
    opened = ledger_pb2.NextTurn(request=wanted, writes=writes)
    await run.client.call("EndTurn", **run.address, epoch=run.epoch, next=opened)


def packet(*texts, note=""):
    pieces = [packet_pb2.PacketPiece(text=text) for text in texts]
    return write_pb2.PacketRecord(
        turn=1, messages=[packet_pb2.PacketMessage(role=packet_pb2.PACKET_ROLE_USER, pieces=pieces)], note=note
    )


NOTE = json.dumps({"tokens": 40, "cursor": ["", 0, 0, 0]})


async def packet_of(run, turn):
    return "".join([part.text async for part in run.client.stream("ReadPacket", **run.address, turn=turn)])


# ---- Turn begun, no reply stored


async def test_the_stored_packet_is_sent_again_and_never_assembled_again(tmp_path):
    async with left(tmp_path) as it:
        await it.run.write(packet=packet("what was sent", note=NOTE))
        assert (await it.gone()).status == 200
        assert await packet_of(it.run, 1) == "what was sent"
        turns = (await it.services.client.get_run(it.services.project, "r", turns_max=10)).turns
        told = {turn.number: turn.result for turn in turns if turn.HasField("result")}[1]
        digest = packet_digest([("user", ("what was sent",))])
        # It may have been sent before.
        assert (told.packet_digest, told.packet_tokens, told.lost_tokens) == (digest, 40, 40 + REPLY_RESERVE_TOKENS)


async def test_the_first_packet_of_a_new_owner_is_no_delta_of_one_that_it_has_not_assembled(tmp_path):
    writes = Asked("WriteEntries")
    async with left(tmp_path, store=[writes]) as it:
        await it.run.write(packet=packet("what was sent", note=NOTE))
        it.services.script("<think>a</think>", "<think>b</think>", DONE, DONE)
        assert (await it.gone()).status == 200
    sent = [request.packet for _, request in writes.asked if request.HasField("packet") and not request.packet.again]
    assert [(one.turn, one.base_turn) for one in sent][:3] == [(1, 0), (2, 0), (3, 2)]


async def test_a_turn_that_was_left_before_its_packet_was_stored_is_assembled(tmp_path):
    async with left(tmp_path) as it:
        assert (await it.gone()).status == 200
        assert await packet_of(it.run, 1)


async def test_lost_calls_are_charged_at_what_was_reserved_for_them(tmp_path):
    async with left(tmp_path, claim={"lease_duration": LIFE}) as it:
        await it.run.write(packet=packet("what was sent", note=NOTE))
        assert (await it.taken_up()).status == 200
        turns = (await it.services.client.get_run(it.services.project, "r", turns_max=10)).turns
        assert {turn.number: turn.result.lost_tokens >= 40 for turn in turns if turn.HasField("result")}[1]


async def test_a_turn_that_ended_three_executors_is_given_up(tmp_path):
    async with left(tmp_path, claim={"lease_duration": LIFE}) as it:
        await it.run.write(packet=packet("what was sent", note=NOTE))
        for owner in ("second", "third"):
            await claimed_after_death(it.run, owner)
        loop = await it.taken_up()
        assert (loop.status, loop.reason.partition(":")[0]) == (500, "crash_loop")
        assert await it.state("log://turn_1/error/crash_loop") == (State.FAILED, "crash_loop:500")


async def claimed_after_death(run, owner):
    for _ in range(3000):
        with contextlib.suppress(TurnwrightError):
            return await run.claim(owner, lease_duration=LIFE)
        await asyncio.sleep(0.02)
    raise AssertionError("it was never free")


async def test_an_owner_that_gave_the_run_back_is_not_lost(tmp_path):
    async with left(tmp_path, turn_losses_max=1) as it:
        await it.run.write(packet=packet("what was sent", note=NOTE))
        assert (await it.gone()).status == 200


# ---- Commands recorded


async def test_a_recorded_command_is_dispatched(tmp_path):
    async with left(tmp_path) as it:
        await it.reply()
        path = await it.record("sh", {"command": "echo a >> effects.txt"}, target="a")
        await it.record("update", {"status": "200"}, "Done.", ordinal=1)
        assert (await it.gone()).status == 200
        assert (it.effects, await it.state(path)) == (["a"], (State.RESOLVED, ""))


@pytest.mark.parametrize(
    ("on_disk", "outcome", "after"),
    [("old\n", "", "new\n"), ("new\n", "", "new\n"), ("somebody's\n", "conflict:409", "somebody's\n")],
    ids=["base", "target", "neither"],
)
async def test_an_unfinished_file_effect_is_finished_by_what_the_file_holds(tmp_path, on_disk, outcome, after):
    async with left(tmp_path) as it:
        file = it.services.files / "a.txt"
        file.write_text(on_disk)
        effect = FileEffect((FileEdit("a.txt", hashlib.sha256(b"old\n").hexdigest(), "new\n", ""),))
        await it.reply()
        path = await it.record(
            "set", {"path": "a.txt"}, "new\n", target="a.txt", effect=effect, is_dispatched=True,
            effect_class=EffectClass.IDEMPOTENT, key="0" * 16,
        )  # fmt: skip
        await it.record("update", {"status": "200"}, "Done.", ordinal=1)
        await it.gone()
        assert ((await it.state(path))[1], file.read_text()) == (outcome, after)


async def test_an_outside_effect_that_was_begun_is_not_repeated_and_the_model_is_told(tmp_path):
    async with left(tmp_path) as it:
        await it.reply()
        path = await it.sh("a", is_dispatched=True)
        channel = set_("sh://turn_1/a_1", "half", "{}", turn=1, loop=1, state=State.STREAMING)
        await it.run.write(channel)
        await it.record("update", {"status": "200"}, "Done.", ordinal=1)
        loop = await it.gone()
        assert (loop.status, it.effects) == (200, [])
        assert await it.state(path) == (State.FAILED, "indeterminate:500")
        assert await it.state("sh://turn_1/a_1") == (State.CANCELLED, "producer_lost:499")
        assert await it.state("log://turn_1/update/2") == (State.FAILED, "conflict:409")


# ---- Somebody is asked


def asking(root):
    return left(root, yolo=False, indeterminate="ask")


async def resolve(it, path, answer):
    peer = Peer("executor", it.services.addresses["executor"], SECRET, 10.0, Tier.CLIENT)
    stub = proposal_service_pb2_grpc.ProposalServiceStub(peer.channel)
    decision = proposal_service_pb2.ResolveProposalRequest(project=it.services.project, run="r", path=path)
    decision.accept.answer = answer
    try:
        await peer.call(stub.ResolveProposal, decision)
    finally:
        await peer.close()


@pytest.mark.parametrize(
    ("answer", "effects", "state"),
    [
        ("retry", ["a"], (State.RESOLVED, "")),
        ("mark done", [], (State.RESOLVED, "")),
        ("mark failed", [], (State.FAILED, "indeterminate:500")),
        ("I saw it fail.", [], (State.FAILED, "indeterminate:500")),
    ],
)
async def test_whoever_decides_says_what_became_of_an_interrupted_command(tmp_path, answer, effects, state):
    async with asking(tmp_path) as it:
        await it.reply()
        path = await it.sh("a", is_dispatched=True)
        await it.record("update", {"status": "200"}, "Done.", ordinal=1)
        assert (await it.gone()).status == 202
        assert (await it.state(path), it.effects) == ((State.PROPOSED, ""), [])
        await resolve(it, path, answer)
        await it.services.client.wait_loop(it.services.project, "r", 1)
        assert (it.effects, await it.state(path)) == (effects, state)


@pytest.mark.parametrize("comment", ["", "Leave it."])
async def test_a_question_that_is_rejected_leaves_the_command_indeterminate(tmp_path, comment):
    # architecture 11; C20
    async with asking(tmp_path) as it:
        await it.reply()
        path = await it.sh("a", is_dispatched=True)
        await it.record("update", {"status": "200"}, "Done.", ordinal=1)
        assert (await it.gone()).status == 202
        await it.services.client.resolve(it.services.project, "r", path, accept=False, comment=comment)
        loop = await it.services.client.wait_loop(it.services.project, "r", 1)
        assert (it.effects, await it.state(path)) == ([], (State.FAILED, "indeterminate:500"))
        assert (loop.reason == "rejected", comment in (await it.services.entry(path)).body) == (not comment, True)


async def test_a_question_that_nobody_answers_leaves_the_command_indeterminate(tmp_path, monkeypatch):
    # architecture 11
    monkeypatch.setenv("TURNWRIGHT_PROPOSAL_EXPIRE_S", "0.5")
    async with asking(tmp_path) as it:
        await it.reply()
        path = await it.sh("a", is_dispatched=True)
        await it.gone()
        loop = await it.services.client.wait_loop(it.services.project, "r", 1)
        assert (loop.status, loop.reason) == (499, "expired")
        assert (it.effects, await it.state(path)) == ([], (State.FAILED, "indeterminate:500"))


async def test_the_question_is_announced_with_its_choices(tmp_path):
    async with asking(tmp_path) as it:
        await it.reply()
        path = await it.sh("a", is_dispatched=True)
        await it.gone()
        async with contextlib.aclosing(it.services.client.watch(it.services.project, "r")) as events:
            snapshot = (await anext(events)).snapshot
        pending = {each.path: list(each.question.options) for each in snapshot.proposals}
        assert pending == {path: ["retry", "mark done", "mark failed"]}


async def test_a_yolo_run_asks_nobody(tmp_path):
    async with left(tmp_path, yolo=True, indeterminate="ask") as it:
        await it.reply()
        path = await it.sh("a", is_dispatched=True)
        await it.record("update", {"status": "200"}, "Done.", ordinal=1)
        await it.gone()
        assert await it.state(path) == (State.FAILED, "indeterminate:500")


# ---- Waiting, aborting, ending


async def test_a_proposal_still_waits_and_is_announced_again(tmp_path):
    async with left(tmp_path, yolo=False) as it:
        await it.reply()
        path = await it.sh("a", state=State.PROPOSED)
        await it.run.write(run_status=202)
        assert (await it.gone()).status == 202
        async with contextlib.aclosing(it.services.client.watch(it.services.project, "r")) as events:
            snapshot = (await anext(events)).snapshot
        assert ([each.path for each in snapshot.proposals], it.effects) == ([path], [])


async def test_an_abort_settles_everything_and_resumes_nothing(tmp_path):
    async with left(tmp_path) as it:
        await it.reply()
        begun = await it.sh("a", is_dispatched=True)
        waiting = await it.sh("b", ordinal=1)
        await it.run.client.call("AbortRun", **it.run.address)
        loop = await it.gone()
        assert (loop.status, it.effects) == (499, [])
        assert await it.state(begun) == (State.FAILED, "indeterminate:500")
        assert await it.state(waiting) == (State.CANCELLED, "aborted:499")


async def test_a_turn_whose_commands_are_all_settled_gets_its_verdict(tmp_path):
    async with left(tmp_path) as it:
        await it.reply()
        await it.record("sh", {"command": "true"}, target="a", state=State.RESOLVED)
        await it.record("update", {"status": "200"}, "Done.", ordinal=1, state=State.RESOLVED, said={"status": 200})
        loop = await it.gone()
        assert (loop.status, loop.turns, it.effects) == (200, 1, [])


async def test_a_command_in_progress_comes_to_its_end_when_the_executor_is_stopped(tmp_path):
    """With its result stored, the next owner goes on; nobody has to ask whether it happened."""
    async with running(tmp_path, drain_s=60) as services:
        services.drain_s = 60
        await services.restart("executor")
        wait = "touch began; while [ ! -e go ]; do sleep 0.02; done; echo once >> effects.txt"
        services.script(f"<sh>{wait}</sh>{DONE}", DONE)
        queued = await services.act()
        async with asyncio.timeout(60):
            while not (services.files / "began").exists():  # noqa: ASYNC110 - a command tells nobody
                await asyncio.sleep(0.02)
            stopping = asyncio.create_task(services.stop("executor"))
            # Long enough for a command to be ended that is not waited for.
            assert not (await asyncio.wait([stopping], timeout=1.0))[0]
            (services.files / "go").touch()
            await stopping
        await services.start("executor")
        assert (await services.until(queued)).status == 200
        assert (services.files / "effects.txt").read_text() == "once\n"
        records = [entry for path, entry in services.view().entries.items() if path.startswith("log://turn_1/sh")]
        assert [State(record.state) for record in records] == [State.RESOLVED]
