"""Cases of chats from another agent, over a store: what is accepted, waits, or is refused. RC06, RC10-RC12, RS07."""

from __future__ import annotations

import pytest
from turnwright.types.v1 import command_record_pb2, message_pb2, settings_pb2
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright_values.types import SessionState, Tier

from cases import load_cases
from contract.store.harness import PROPOSED, SQLITE_ONLY, Client, new_run, set_
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_store.domain.session_gates import GATES, CommandKind, Gate

# What is accepted does not depend on the database; the tests of sessions have both.
pytestmark = [pytest.mark.asyncio, SQLITE_ONLY]

QUEUE_MAX = 100
DECIDED = "log://turn_1/sh/tc1"


def cases(file: str, *kinds: str) -> list[dict]:
    return [case for case in load_cases(f"refact/{file}.jsonl") if case["id"].startswith(kinds)]


class Chat:
    """A run that is brought to a state, and gets commands."""

    def __init__(self, client: Client, run) -> None:
        self._client = client
        self.run = run
        self.where = run.address

    @classmethod
    async def at(cls, client: Client, project: str, alias: str, state: str) -> Chat:
        run = await new_run(client, project, alias)
        if state in ("idle", "error", "completed"):
            return cls(client, run)
        await run.enqueue()
        await run.claim()
        await run.begin()
        if state == "paused":
            effect = command_record_pb2.Effect(command=command_record_pb2.CommandEffect(command="ls"))
            record = command_record_pb2.CommandRecord(
                tool="sh", ordinal=0, proposed=command_record_pb2.ProposedStage(effect=effect)
            )
            write = set_(
                DECIDED,
                "ls",
                '{"tool":"sh"}',
                state=PROPOSED,
                turn=1,
                writer=Tier.SYSTEM,
                record=record.SerializeToString(),
            )
            await run.write(write, run_status=202)
        return cls(client, run)

    async def submit(self, request: dict):
        """Submit a command of the cases."""
        command = pb.SessionCommand(**our_command(request))
        return await self._client.call(
            "SubmitCommand", **self.where, command=command, command_id=self._id(request["client_request_id"])
        )

    def _id(self, command_id: str) -> str:
        """An id is one of the caller, not of the run."""
        return f"{self.run.alias} {command_id}"

    async def cancel(self, command_id: str) -> None:
        await self._client.call("CancelCommand", **self.where, command_id=self._id(command_id))

    async def outcome(self, request: dict) -> str:
        """What the cases call what comes of a command."""
        try:
            answer = await self.submit(request)
        except TurnwrightError as error:
            if error.reason is Reason.QUEUE_FULL:
                return "full"
            if error.reason is Reason.INVALID_FIELD:
                return "invalid_content"
            raise
        return "duplicate" if answer.duplicate else "accepted"

    async def fill(self, count: int) -> None:
        for number in range(count):
            await self.submit({"client_request_id": f"fill-{number}", "type": "user_message", "content": f"{number}."})

    async def queue(self) -> list[str]:
        found = (await self._client.call("ListCommands", **self.where)).commands
        return [one.preview for one in found]

    async def state(self) -> str:
        return SessionState((await self._client.call("GetRun", **self.where)).run.state).name.lower()


def our_command(request: dict) -> dict:
    match request["type"]:
        case "user_message":
            content = request["content"]
            # Parts are typed: what is no text becomes a part that says nothing.
            parts = [message_pb2.Part(text=content) if isinstance(content, str) else message_pb2.Part()]
            settings = settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, model="fast")
            message = pb.UserMessage(parts=parts, priority=request.get("priority", False), settings=settings)
            return {"user_message": message}
        case "abort":
            return {"abort": pb.AbortSession()}
        case "tool_decision" | "tool_decisions":
            return {"approve_tools": pb.ApproveTools(calls=[DECIDED])}
        case "regenerate":
            return {"regenerate": pb.Regenerate()}
        case "update_message":
            return {"update_message": pb.UpdateMessage(message_id="prompt://1", content=request["content"])}
        case "remove_message":
            return {"remove_message": pb.RemoveMessage(message_id="prompt://1")}
        case "set_params":
            return {"set_params": pb.SetParams(patch=settings_pb2.RunSettingsPatch(temperature=0.5))}
    raise AssertionError(request["type"])


def runs_at_once(request: dict, state: str) -> bool:
    [kind] = our_command(request)
    return GATES[CommandKind(kind)][SessionState[state.upper()]] is Gate.RUN


async def test_a_case_of_the_queues_bound_comes_to_what_it_expects(client, project):
    # RC10, RC11: what never waits is taken by a full queue, and a refused id is free
    for number, case in enumerate(cases("queue", "enqueue", "dedupe")):
        given, expected = case["input"], case["expected"]
        requests = given.get("requests") or [given["request"]]
        state = given.get("state", "generating")
        chat = await Chat.at(client, project, f"q{number}", state)
        await chat.fill(given["queue_len"])
        if requests[0]["type"] in ("regenerate", "update_message"):
            await chat.run.write(set_("prompt://1", "Do it.", turn=1))
        for seen in given.get("seen", ()):
            await chat.submit({**requests[0], "client_request_id": seen})
        found = [await chat.outcome(request) for request in requests]
        assert found == (expected.get("outcomes") or [expected["outcome"]]), case["id"]
        if state == "generating":
            # Nothing ends what is being streamed: not even an abort does, which the owner of the run carries out.
            assert await chat.state() == "generating"
        if "remembered" in expected:
            again = [await chat.outcome(request) for request in requests]
            assert ("duplicate" in again) is bool(expected["remembered"])


async def test_a_case_of_priority_is_read_in_its_order(client, project):
    # RC12: the model reads them in the next turn; what has no priority waits behind the loop
    for number, case in enumerate(cases("queue", "priority/")):
        chat = await Chat.at(client, project, f"p{number}", "generating")
        for request in (*case["input"]["queue"], case["input"]["new"]):
            await chat.submit(request)
        entries = (await client.call("ListEntries", **chat.where, pattern="log://**", page_size=100)).entries
        steering = sorted((one.position, one.body) for one in entries if "inject" in one.attributes_json)
        order = [body for _, body in steering] + await chat.queue()
        assert order == case["expected"]["order"], case["id"]


STATUS = {"accepted": "accepted", "duplicate": "duplicate", "aborted": "accepted", "invalid_content": "invalid_content"}


async def test_a_case_of_requests_comes_to_what_it_expects(client, project):
    # RC01, RC06, RC10, RC11
    for number, case in enumerate(cases("http", "")):
        given, expected = case["input"], case["expected"]
        chat = await Chat.at(client, project, f"h{number}", given.get("state", "generating"))
        if "get" in given:
            with pytest.raises(TurnwrightError) as error:
                await anext(client.stream("WatchChanges", project=project, run=""))
            assert error.value.reason in (Reason.INVALID_FIELD, Reason.RUN_NOT_FOUND)
        elif "chat_id" in given:
            chat.where = {**chat.where, "run": given["chat_id"]}
            with pytest.raises(TurnwrightError) as error:
                await chat.submit(given["request"])
            assert error.value.reason in (Reason.INVALID_FIELD, Reason.RUN_NOT_FOUND)
        elif "delete" in given:
            for queued in given["queue"]:
                await chat.submit({"client_request_id": queued, "type": "user_message", "content": "hi"})
            if expected["status"] == 200:
                await chat.cancel(given["delete"])
                assert await chat.queue() == []
                continue
            with pytest.raises(TurnwrightError) as error:
                await chat.cancel(given["delete"])
            assert error.value.reason is Reason.ENTRY_NOT_FOUND
        else:
            for seen in given.get("seen", ()):
                await chat.submit({**given["request"], "client_request_id": seen})
            assert await chat.outcome(given["request"]) == STATUS[expected["body"]["status"]], case["id"]
            if expected["status"] == 400:
                # Its id was not taken.
                assert await chat.outcome({**given["request"], "content": "hi"}) == "accepted"


@pytest.mark.parametrize("state", ["idle", "generating", "paused"])
async def test_what_waits_and_what_does_not_is_told(client, project, state):
    # RS07: the table of gates over a store
    chat = await Chat.at(client, project, "r", state)
    assert await chat.state() == state
    kinds = ({"type": "user_message", "content": "hi"}, {"type": "abort"}, {"type": "set_params"})
    for number, request in enumerate(kinds):
        answer = await chat.submit({**request, "client_request_id": str(number)})
        assert answer.queued is not runs_at_once(request, state), request
        if request["type"] == "user_message" and state == "idle":
            break
