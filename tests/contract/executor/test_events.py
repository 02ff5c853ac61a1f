"""Events of a running executor: each is written with its cause, once, and watchers hear it. Rows RH02, RH04; C47."""

from __future__ import annotations

import asyncio
import contextlib
import json

import grpc
import pytest
from turnwright_values.types import Tier

from contract.executor.proposing import DONE, GO_ON, PROPOSAL, SET, waiting
from contract.executor.test_recovery import LIFE, claimed_after_death, left
from contract.store.harness import Client as StoreClient
from contract.store.harness import Run
from services import SECRET, running

pytestmark = pytest.mark.asyncio

LOOK = f'<get path="a.txt"/>{GO_ON}'


@pytest.fixture(autouse=True, params=["sqlite", "postgresql"])
def database(request, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    monkeypatch.setenv("TURNWRIGHT_LEASE_GRACE_S", "0.1")
    if request.param == "postgresql":
        monkeypatch.setenv("TURNWRIGHT_DB", request.getfixturevalue("postgres_url"))


async def snapshot(services):
    """The run's entries as somebody is told who begins to watch now."""
    entries = {}
    async with contextlib.aclosing(services.client.watch(services.project, "r")) as events:
        async for event in events:
            entries |= {entry.path: entry for entry in event.snapshot.entries}
            if event.snapshot.last:
                return entries
    raise AssertionError("the watch ended")


async def told(services) -> dict:
    """The events by path: source, payload, and what the model reads."""
    return events_in((await snapshot(services)).values())


async def stored(run) -> dict:
    """The same as the store has it: nobody watched until the hub had heard."""
    return events_in((await run.view()).entries)


def events_in(all_entries) -> dict:
    entries = {entry.path: entry for entry in all_entries if entry.scheme == "event"}
    # What the assembler folded is told by itself, as an effect.
    entries = {path: entry for path, entry in entries.items() if "/summarization_marker/" not in path}
    assert all(entry.writer == Tier.SYSTEM for entry in entries.values())
    said = {path: (json.loads(entry.attributes_json)["event"], entry.body) for path, entry in entries.items()}
    return {path: (event["source"], event["payload"], body) for path, (event, body) in said.items()}


async def revision(services, path: str) -> int:
    return (await services.entry(path)).revision


async def strikes(services) -> list[int]:
    turns = (await services.client.get_run(services.project, "r", turns_max=10)).turns
    return [turn.result.strikes for turn in sorted(turns, key=lambda turn: turn.number)]


async def test_a_loop_in_another_mode_than_the_one_before_it_begins_with_a_mode_switch(tmp_path):
    async with running(tmp_path) as services:
        services.script("Yes.")
        for begin in (services.act, services.act, services.ask):
            await services.until(await begin())
        switch = "event://turn_3/mode_switch/loop_3"
        event, prompt = await services.entry(switch), await services.entry("prompt://3")
        assert (event.turn, event.loop, event.position) == (3, 3, prompt.position - 1)
        for begin in (services.ask, services.act):
            await services.until(await begin())
        assert await told(services) == {
            switch: ("loop", {"loop": 3, "from": "act", "to": "ask"}, "The mode is now ask; it was act."),
            "event://turn_5/mode_switch/loop_5": (
                "loop",
                {"loop": 5, "from": "ask", "to": "act"},
                "The mode is now act; it was ask.",
            ),
        }
        # Who watched from the beginning heard the same as who comes now.
        heard = services.view().entries
        assert {path for path in heard if "/mode_switch/" in path} == set(await told(services))


async def test_a_decision_is_told_to_watchers_and_is_no_strike(tmp_path):
    async with running(tmp_path) as services:
        (services.files / "a.txt").write_text("old\n")
        queued = await waiting(services, f"{SET}{GO_ON}", LOOK, DONE)
        await services.client.resolve(services.project, "r", PROPOSAL, accept=True)
        assert (await services.until(queued)).status == 200
        path = "event://turn_1/tool_decision/set/a.txt"
        payload = {"path": PROPOSAL, "tool": "set", "decision": "accepted", "principal": "operator", "comment": ""}
        assert await told(services) == {path: ("proposal", payload, f"operator accepted {PROPOSAL}.")}
        assert services.view().entries[path].body == f"operator accepted {PROPOSAL}."
        assert await strikes(services) == [0, 0, 0]


@pytest.mark.parametrize("comment", ["", "Not this one."])
async def test_a_rejection_is_reported_too(tmp_path, comment):
    async with running(tmp_path) as services:
        (services.files / "a.txt").write_text("old\n")
        queued = await waiting(services, f"{SET}{GO_ON}", DONE)
        await services.client.resolve(services.project, "r", PROPOSAL, accept=False, comment=comment)
        await services.until(queued)
        ((source, payload, _),) = (await told(services)).values()
        assert (source, payload["decision"], payload["comment"]) == ("proposal", "rejected", comment)


async def test_an_abort_leaves_a_note_with_what_it_cancelled(tmp_path):
    async with running(tmp_path) as services:
        (services.files / "slow.sh").write_text("echo > begun; sleep 60")
        services.script(f"<sh>sh slow.sh</sh><sh>touch after</sh>{GO_ON}", DONE)
        queued = await services.act()
        for _ in range(1500):
            if (services.files / "begun").exists():
                break
            await asyncio.sleep(0.02)

        await services.client.abort(services.project, "r")
        assert (await services.until(queued)).status == 499
        path = "event://turn_1/cancellation_note/loop_1"
        entries = await snapshot(services)
        # What ran was stopped, which its own record says.
        cancelled = [
            path for path, one in entries.items() if path.startswith("log://turn_1/") and one.outcome == "aborted:499"
        ]
        payload = {"loop": 1, "cancelled": cancelled}
        sentence = "Somebody stopped the loop before it was done; 2 commands were cancelled."
        assert await told(services) == {path: ("loop", payload, sentence)}
        assert {entries[one].revision for one in (path, *cancelled)} == {entries[path].revision}
        # The next task is another loop, and nothing is told again.
        services.script(DONE)
        assert (await services.until(await services.act("Go on."))).status == 200
        assert list(await told(services)) == [path]


async def test_a_loop_that_is_aborted_while_it_waits_leaves_one_note(tmp_path):
    async with running(tmp_path) as services:
        (services.files / "a.txt").write_text("old\n")
        queued = await waiting(services, f"{SET}{GO_ON}", DONE)
        await services.client.abort(services.project, "r")
        assert (await services.until(queued)).status == 499
        assert list(await told(services)) == ["event://turn_1/cancellation_note/loop_1"]


VOTER = """
from turnwright_executor.hooks import TURN_VERDICT, Vote


def register(registry):
    registry.filter(TURN_VERDICT, same, priority=5)
    registry.filter(TURN_VERDICT, vote, priority=80)


def same(vote, facts):
    return Vote(vote.continue_, vote.status, vote.reason)


def vote(vote, facts):
    return Vote(False, 422, "tests are red") if facts.loop_turn == 2 else vote
"""


async def test_a_plugin_that_changes_the_verdict_is_reported_and_no_other(plugin, tmp_path):
    async with running(tmp_path, hooks=plugin("verifier", VOTER)) as services:
        services.script(LOOK, LOOK)
        loop = await services.until(await services.act())
        assert (loop.status, loop.reason) == (422, "tests are red")
        path = "event://turn_2/verifier_report/verifier%3Aregister"
        payload = {
            "plugin": "verifier:register",
            "voter": "vote",
            "from": {"continue": True, "status": 102, "reason": ""},
            "to": {"continue": False, "status": 422, "reason": "tests are red"},
        }
        sentence = "The plugin verifier:register ends the loop with 422: tests are red."
        assert await told(services) == {path: ("verifier:register", payload, sentence)}
        # The runtime's own rules end the next loop: nobody tells of that.
        services.script(DONE)
        assert (await services.until(await services.act("Again."))).status == 200
        assert list(await told(services)) == [path]


class Robbing(grpc.aio.ServerInterceptor):
    """Another owner has the run when its executor first comes to end the turn."""

    def __init__(self, address):
        self.address = address
        self.refused = asyncio.get_running_loop().create_future()

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if self.refused.done() or not details.method.endswith("/EndTurn"):
            return handler

        async def end(request, context):
            if not request.turn:
                return await handler.unary_unary(request, context)
            store = StoreClient(self.address, SECRET)
            run = Run(store, request.project, request.run, request.epoch)
            await store.call("ReleaseRun", **run.address, epoch=run.epoch)
            await run.claim("another")
            try:
                return await handler.unary_unary(request, context)
            finally:
                self.refused.set_result(run)

        return grpc.unary_unary_rpc_method_handler(end, handler.request_deserializer, handler.response_serializer)


async def test_a_changed_verdict_is_reported_with_the_verdict_and_not_without_it(plugin, tmp_path):
    """ADR 29: an owner who lost the run has neither ended the turn nor told of it; the next one does both at once."""
    robbing = Robbing(f"unix:{tmp_path}/store.sock")
    always = VOTER.replace("facts.loop_turn == 2", "True")
    async with running(tmp_path, [robbing], hooks=plugin("verifier", always), work_poll_s=0.1) as services:
        services.script(LOOK, LOOK)
        queued = await services.act()
        run = await robbing.refused
        assert await stored(run) == {}
        await run.client.call("ReleaseRun", **run.address, epoch=run.epoch)
        loop = await services.until(queued)
        ((path, _),) = (await stored(run)).items()
        assert (loop.status, path) == (422, "event://turn_1/verifier_report/verifier%3Aregister")
        assert (await run.entry(path)).revision == loop.revision
        await run.client.close()


async def test_a_command_that_a_crash_made_indeterminate_is_reported_with_what_was_cancelled_for_it(tmp_path):
    async with left(tmp_path) as it:
        await it.reply()
        lost = await it.sh("a", is_dispatched=True)
        after = await it.sh("b", ordinal=1)
        await it.record("update", {"status": "200"}, "Done.", ordinal=2)
        await it.gone()
        path = "event://turn_1/system_notice/sh/a"
        payload = {
            "reason": "taken_over",
            "path": lost,
            "tool": "sh",
            "outcome": "indeterminate:500",
            "cancelled": [after],
        }
        sentence = (
            f"The runtime was interrupted while sh ran ({lost}): nobody knows whether it happened. "
            "One command was cancelled because of it."
        )
        assert await stored(it.run) == {path: ("recovery", payload, sentence)}
        assert await revision(it.services, path) == await revision(it.services, lost)


async def test_a_turn_that_is_given_up_is_reported_with_the_commands_that_were_left(tmp_path):
    async with left(tmp_path, claim={"lease_duration": LIFE}) as it:
        await it.reply()
        path = await it.sh("a")
        for owner in ("second", "third"):
            await claimed_after_death(it.run, owner)
        assert (await it.taken_up()).status == 500
        payload = {"reason": "given_up", "loop": 1, "cancelled": [path]}
        sentence = "The runtime was interrupted again and again in this turn and gave up; one command was cancelled."
        assert await stored(it.run) == {"event://turn_1/system_notice/loop_1-given-up": ("recovery", payload, sentence)}


async def test_a_command_that_is_safe_to_repeat_is_taken_over_without_a_word(tmp_path):
    async with left(tmp_path) as it:
        await it.reply()
        await it.record("sh", {"command": "echo a >> effects.txt"}, target="a")
        await it.record("update", {"status": "200"}, "Done.", ordinal=1)
        await it.gone()
        assert (await stored(it.run), it.effects) == ({}, ["a"])


async def test_a_turn_without_a_cause_has_no_event(tmp_path):
    async with running(tmp_path) as services:
        (services.files / "a.txt").write_text("old\n")
        services.script(LOOK, f"{SET}<sh>true</sh><sh>false</sh>{GO_ON}", DONE, DONE)
        for _ in range(2):
            await services.until(await services.act())
        assert await told(services) == {}


TELLER = """
import json

from turnwright_executor.plugins import Done, EntryWrite, PluginTool, SetEntry, Tier


class Tell(PluginTool):
    name = "tell"
    doc = "## <tell size=\\"[bytes]\\"/> - tells"
    target = "size"
    phase = "gather"

    async def prepare(self, command, context):
        size = int(command.attributes["size"])
        said = {"subkind": "ide_callback", "source": "ide", "payload": "x" * (size - 2)}
        path = f"event://turn_{context.turn}/ide_callback/{size}"
        change = SetEntry(body="The IDE calls.", attributes_json=json.dumps({"event": said}))
        return Done("Told.", writes=(EntryWrite(path, change, Tier.PLUGIN),))


def register(registry):
    registry.tool(Tell())
"""


async def test_a_plugins_event_with_a_payload_that_is_too_long_fails_its_command_by_name(plugin, tmp_path):
    async with running(tmp_path, hooks=plugin("teller", TELLER)) as services:
        services.script(f'<tell size="65537"/>{GO_ON}', f'<tell size="65536"/>{GO_ON}', DONE)
        loop = await services.until(await services.act())
        refused, taken = [
            await services.entry(f"log://turn_{turn}/tell/{size}") for turn, size in ((1, 65537), (2, 65536))
        ]
        assert (loop.status, refused.outcome, taken.body) == (200, "invalid:400", "Told.")
        assert refused.body == "payload has 65537 bytes; the limit is 65536."
        entries = await snapshot(services)
        # It is taken, and folded: it leaves too little room for the work.
        assert [path for path in entries if path.startswith("event://")] == [
            "event://turn_2/ide_callback/65536",
            "event://turn_3/summarization_marker/folded",
        ]
