"""MCP servers that misbehave, each a real process: what a call comes to, and that the next one is served."""

import asyncio
import gzip
import json
import time

import anyio
import grpc
import mcp_types as types
import pytest
from mcp.shared.message import SessionMessage
from turnwright.tool.v1.tool_service_pb2 import CancelRequest
from turnwright.types.v1.command_record_pb2 import EFFECT_CLASS_IDEMPOTENT, EFFECT_CLASS_OUTSIDE, EFFECT_CLASS_PURE

from contract.mcp.bridging import bridging, hostile, text
from turnwright_mcp.incoming import REQUEST_CHARS_MAX, REQUESTS_MAX, OpenStreams
from turnwright_mcp.questions import answer_of

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(180)]

UNAVAILABLE, LATE = grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED


async def test_a_server_of_2024_is_listed_and_called(tmp_path):
    async with bridging(tmp_path) as bridge:
        listed = await bridge.describe(hostile("well"))
        effects = {one.name: (one.effect_class, one.annotations.read_only) for one in listed.tools}
        assert effects == {
            "work": (EFFECT_CLASS_OUTSIDE, False),
            "idempotent": (EFFECT_CLASS_IDEMPOTENT, False),
            "read": (EFFECT_CLASS_PURE, True),
            "die": (EFFECT_CLASS_OUTSIDE, False),
        }
        assert (await bridge.describe(hostile("well"), version=listed.version)).unchanged
        assert text(await bridge.dispatch(hostile("well"))) == "done"
        # What the operator says of a tool counts more than what its server does.
        believed = hostile("well", effects={"read": "outside", "*": "read_only"})
        effects = {one.name: one.effect_class for one in (await bridge.describe(believed)).tools}
        assert effects["read"] == EFFECT_CLASS_OUTSIDE
        assert effects["work"] == EFFECT_CLASS_PURE


@pytest.mark.parametrize("kind", ["silent", "ids"])
async def test_one_that_never_answers_costs_the_time_limit_of_the_call(tmp_path, kind):
    async with bridging(tmp_path) as bridge:
        await bridge.describe(hostile(kind))
        assert (await bridge.refused(hostile(kind), timeout_s=1)).code() is LATE
        assert (await bridge.refused(hostile(kind), timeout_s=1)).code() is LATE


@pytest.mark.parametrize(
    ("kind", "words"),
    [("dies", "left during the call"), ("huge", "more than 16777216 bytes"), ("endless-garbage", "not messages")],
)
async def test_one_that_breaks_in_a_call_leaves_it_unknown_and_is_started_again(tmp_path, kind, words):
    calls = tmp_path / "calls"
    async with bridging(tmp_path) as bridge:
        lost = await bridge.refused(hostile(kind, str(calls)))
        assert lost.code() is UNAVAILABLE
        assert words in lost.details()
        while (again := await bridge.refused(hostile(kind, str(calls)))).code() is not UNAVAILABLE:
            # Not before its pause is over.
            assert again.code() is grpc.StatusCode.FAILED_PRECONDITION
            assert "at the earliest" in again.details()
            await asyncio.sleep(0.05)
        assert calls.read_text().splitlines() == ["work", "work"]


@pytest.mark.parametrize(
    ("kind", "words"), [("no-program", "I have no key."), ("never-starts", "did not start within 1 s")]
)
async def test_one_that_does_not_start_is_told_with_what_it_says(tmp_path, kind, words):
    async with bridging(tmp_path) as bridge:
        error = await bridge.refused(hostile(kind, start_s=1))
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        assert words in error.details()


async def test_floods_and_lines_that_are_no_messages_are_survived(tmp_path):
    async with bridging(tmp_path) as bridge:
        began_s = time.monotonic()
        # Two servers of one project share what it may take of the others': 4,000 lines, of which it has 1,000 at once.
        for events in await asyncio.gather(*(bridge.dispatch(hostile("floods", *more)) for more in ((), ("",)))):
            assert text(events) == "done"
            assert sum(len(one.progress.text) for one in events) < 20_000_000
        assert time.monotonic() - began_s > 2.9
        assert text(await bridge.dispatch(hostile("garbage"))) == "done"
        assert len(text(await bridge.dispatch(hostile("long")))) == 2_000_000


async def test_a_changed_list_is_read_again(tmp_path):
    mark = tmp_path / "calls"
    async with bridging(tmp_path) as bridge:
        server = hostile("changes", str(mark))
        before = await bridge.describe(server)
        await bridge.dispatch(server)
        while (after := await bridge.describe(server, version=before.version)).unchanged:  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0.05)
        assert [one.name for one in after.tools] == ["other"]


async def test_a_list_that_changes_while_it_is_read_is_read_again(tmp_path):
    async with bridging(tmp_path) as bridge:
        server = hostile("changes-while-listed", str(tmp_path / "calls"))
        assert len((await bridge.describe(server)).tools) == 4
        assert [one.name for one in (await bridge.describe(server)).tools] == ["other"]


async def test_odd_schemas_and_names_are_passed_on_within_bounds(tmp_path):
    async with bridging(tmp_path) as bridge:
        tools = (await bridge.describe(hostile("schemas"))).tools
        assert [one.name for one in tools] == ["loop", "huge", "none", "n" * 200, "Two words", "two_words"]
        assert len(tools[1].schema) == 256 * 1024 + 1


async def test_a_question_waits_outside_of_the_call_until_it_is_answered(tmp_path):
    async with bridging(tmp_path) as bridge:
        server = hostile("asks", env={"QUESTIONS": "2"})
        [first] = await bridge.dispatch(server, call_id="log://q")
        assert "Name 1?" in first.proposal.body
        going_on = {"call_id": "log://q", "proposal_state": first.proposal.state}
        # An answer that does not fit is asked for again.
        [again] = await bridge.dispatch(server, **going_on, comment='{"age": 3}')
        assert "has no age" in again.proposal.body
        [second] = await bridge.dispatch(server, **going_on, comment="Ann")
        assert "Name 2?" in second.proposal.body
        done = await bridge.dispatch(server, **going_on, comment='{"name": "Bob"}')
        assert json.loads(text(done)) == {"action": "accept", "content": {"name": "Bob"}}
        # There is nothing to go on with any more, and nobody knows of it.
        assert (await bridge.refused(server, **going_on, comment="Ann")).code() is UNAVAILABLE


async def test_a_cancelled_question_ends_its_call(tmp_path):
    async with bridging(tmp_path) as bridge:
        server = hostile("asks")
        [asked] = await bridge.dispatch(server, call_id="log://q")
        request = CancelRequest(project=bridge.services.project, run="r", call_id="log://q", epoch=1)
        await bridge.stub.Cancel(request, metadata=bridge.metadata(server))
        lost = await bridge.refused(server, call_id="log://q", proposal_state=asked.proposal.state)
        assert lost.code() is UNAVAILABLE


async def test_of_many_questions_at_once_only_some_wait(tmp_path):
    calls = tmp_path / "calls"
    async with bridging(tmp_path) as bridge:
        server = hostile("asks-at-once", str(calls))
        [asked] = await bridge.dispatch(server, call_id="log://q")
        async with asyncio.timeout(60):
            while "refused" not in calls.read_text():  # noqa: ASYNC110 - nothing else tells
                await asyncio.sleep(0.05)
        going_on = {"call_id": "log://q", "proposal_state": asked.proposal.state}
        while (last := (await bridge.dispatch(server, **going_on, comment="Ann"))[-1]).HasField("proposal"):
            # Those that wait end with the call, which ends once one of them was answered.
            assert "Name" in last.proposal.body
        assert "cancel" in text([last])


async def test_a_question_is_of_the_call_that_is_left(tmp_path):
    calls = tmp_path / "calls"
    async with bridging(tmp_path) as bridge:
        server = hostile("asks-later", str(calls))
        await bridge.describe(server)
        first = asyncio.create_task(bridge.dispatch(server, call_id="log://first"))
        while not calls.exists():  # noqa: ASYNC110 - nothing else tells
            await asyncio.sleep(0.05)
        assert text(await bridge.dispatch(server)) == "done"
        (tmp_path / "calls-ended").write_text("")
        [asked] = await first
        assert "Name 1?" in asked.proposal.body


async def test_a_question_ends_with_its_call(tmp_path):
    calls = tmp_path / "calls"
    async with bridging(tmp_path) as bridge:
        server = hostile("asks", str(calls), env={"QUESTIONS": "1", "GOES_ON": "1"})
        await bridge.dispatch(server, call_id="log://q")
        request = CancelRequest(project=bridge.services.project, run="r", call_id="log://q", epoch=1)
        await bridge.stub.Cancel(request, metadata=bridge.metadata(server))
        async with asyncio.timeout(60):
            while len(found := calls.read_text().splitlines()) < 2:  # noqa: ASYNC110 - nothing else tells
                await asyncio.sleep(0.05)
        assert json.loads(found[1]) == {"action": "cancel"}


async def test_requests_that_would_pile_up_are_refused_before_they_are_heard():
    incoming, inbox = anyio.create_memory_object_stream(REQUESTS_MAX + 3)
    outbox, outgoing = anyio.create_memory_object_stream(REQUESTS_MAX + 3)

    def asks(number, **params):
        incoming.send_nowait(
            SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id=number, method="ping", params=params))
        )

    async def received():
        return (await reads.receive()).message.id

    async with incoming, inbox, outbox, outgoing, OpenStreams((inbox, outbox)) as (reads, writes):
        asks(1, text="x" * REQUEST_CHARS_MAX)
        for number in range(REQUESTS_MAX + 1):
            asks(number)
        assert [await received() for _ in range(REQUESTS_MAX)] == [*range(REQUESTS_MAX)]
        cancelled = types.JSONRPCNotification(
            jsonrpc="2.0", method="notifications/cancelled", params={"requestId": "4"}
        )
        incoming.send_nowait(SessionMessage(cancelled))
        assert (await reads.receive()).message == cancelled
        # One that its server takes back makes room, as does one that was answered; an id in use does not.
        asks("5")
        asks(4)
        assert await received() == 4
        await writes.send(SessionMessage(types.JSONRPCResponse(jsonrpc="2.0", id=3, result={})))
        asks(3)
        assert await received() == 3
        sent = [outgoing.receive_nowait().message for _ in range(4)]
    assert [(one.id, getattr(one, "error", None) is not None) for one in sent] == [
        (1, True),
        (REQUESTS_MAX, True),
        ("5", True),
        (3, False),
    ]


async def test_a_request_that_is_taken_back_counts_while_its_answer_waits_to_be_read():
    incoming, inbox = anyio.create_memory_object_stream(REQUESTS_MAX + 2)
    outbox, outgoing = anyio.create_memory_object_stream(0)

    async def received(message):
        incoming.send_nowait(SessionMessage(message))
        return (await reads.receive()).message

    async with (
        incoming, inbox, outbox, outgoing,
        OpenStreams((inbox, outbox)) as (reads, writes),
        asyncio.TaskGroup() as answering,
    ):  # fmt: skip
        for number in range(REQUESTS_MAX):
            assert (await received(types.JSONRPCRequest(jsonrpc="2.0", id=number, method="ping"))).id == number
            answer = types.JSONRPCResponse(jsonrpc="2.0", id=number, result={})
            answering.create_task(writes.send(SessionMessage(answer)))
        await anyio.wait_all_tasks_blocked()
        cancelled = types.JSONRPCNotification(jsonrpc="2.0", method="notifications/cancelled", params={"requestId": 0})
        await received(cancelled)
        one_more = answering.create_task(received(types.JSONRPCRequest(jsonrpc="2.0", id="more", method="ping")))
        await anyio.wait_all_tasks_blocked()
        assert not one_more.done()
        sent = [(await outgoing.receive()).message for _ in range(REQUESTS_MAX + 1)]
        assert [one.id for one in sent if isinstance(one, types.JSONRPCError)] == ["more"]
        # Now there is room.
        incoming.send_nowait(SessionMessage(types.JSONRPCRequest(jsonrpc="2.0", id="last", method="ping")))
        assert (await one_more).id == "last"


async def test_an_executor_that_has_lost_the_run_calls_nothing(tmp_path):
    calls = tmp_path / "calls"
    async with bridging(tmp_path) as bridge:
        server = hostile("well", str(calls))
        bridge.start = "of the process before"
        assert text(await bridge.dispatch(server, epoch=7)) == "done"
        assert bridge.start != "of the process before"
        assert (await bridge.refused(server, epoch=6)).code() is grpc.StatusCode.FAILED_PRECONDITION
        assert text(await bridge.dispatch(server, epoch=1, run="other")) == "done"
        assert calls.read_text().splitlines() == ["work", "work"]


async def test_an_answer_to_a_question_whose_schema_is_none_is_taken_as_it_is():
    schema = {"type": "object", "properties": {"name": {"type": "string", "enum": 5, "oneOf": 5}}}
    asked = types.ElicitRequestFormParams(message="Name?", requested_schema=schema)
    assert answer_of(asked, "Ann").content == {"name": "Ann"}


async def test_an_answer_that_is_compressed_is_not_read(tmp_path):
    heads = []

    async def answer(reader, writer):
        heads.append((await reader.readuntil(b"\r\n\r\n")).lower())
        await reader.readexactly(int(heads[-1].partition(b"content-length:")[2].split()[0]))
        body = gzip.compress(b'{"a": "%s"}' % (b"x" * 100_000_000), compresslevel=1)
        kind = b"content-type: application/json\r\ncontent-encoding: gzip\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\n%scontent-length: %d\r\n\r\n" % (kind, len(body)) + body)
        writer.close()

    async with bridging(tmp_path) as bridge, await asyncio.start_server(answer, "127.0.0.1") as server:
        port = server.sockets[0].getsockname()[1]
        error = await bridge.refused({"url": f"http://127.0.0.1:{port}/mcp"})
        assert "compressed answer" in error.details()
    assert b"accept-encoding: identity" in heads[0]
