"""A transcript after a restart of the assembler: it continues what was sent before. RL02."""

from __future__ import annotations

import grpc
import pytest
from turnwright.types.v1 import session_command_pb2, view_pb2

from contract.executor.test_transcripts import PACKET, act, calling, sent, strictly
from services import running
from sse_server import chat

pytestmark = pytest.mark.asyncio

LOOK = calling(("get", {"path": "a.txt"}), text="I look.")


class ReadsOfMessages(grpc.aio.ServerInterceptor):
    """What is read of the store to make transcripts: all entries, or what changed."""

    def __init__(self) -> None:
        self.seen: list[str] = []

    async def intercept_service(self, continuation, details):
        handler = await continuation(details)
        if not details.method.endswith("/ReadView"):
            return handler

        async def watched(request, context):
            if request.filter == view_pb2.VIEW_FILTER_MESSAGES:
                self.seen.append("changes" if request.HasField("after") else "all")
            await handler.unary_stream(request, context)

        return grpc.unary_stream_rpc_method_handler(watched, handler.request_deserializer, handler.response_serializer)


async def test_a_restarted_assembler_reads_all_entries_once_and_continues_what_was_sent(tmp_path, over_http):
    reads, read_by = ReadsOfMessages(), []
    async with (
        over_http(*(reply for number in range(8) for reply in (LOOK, chat(f"Done {number}.")))) as server,
        running(tmp_path, [reads]) as services,
    ):
        (services.files / "a.txt").write_text("one\n")
        (services.files / "AGENTS.md").write_text("Be brief.\n")

        async def task(**more: int) -> None:
            reads.seen.clear()
            assert (await act(services, **more)).status == 200
            read_by.append(tuple(reads.seen))
            await services.restart("assembler")

        await task()
        await task()
        # Other instructions, and a message that nobody has read yet.
        (services.files / "AGENTS.md").write_text("Be very brief.\n")
        await services.client.inject_message(services.project, "r", "Mind the gap.")
        await task()
        # Between two transcripts a packet.
        await task(assembly=PACKET)
        await task()
        await task()
        # An earlier message is taken away.
        truncate = session_command_pb2.TruncateMessages(
            from_index=6, expected_revision=(await services.client.get_run(services.project, "r")).run.revision
        )
        await services.client.submit(services.project, "r", truncate_messages=truncate)
        await task()
        await task()
        turns = (await services.client.get_run(services.project, "r")).run.turn
        told = [await services.client.explain_packet(services.project, "r", turn) for turn in range(1, turns + 1)]
    assert read_by == [("all",)] * 3 + [()] + [("all",)] * 4
    # What was sent is what all entries come to.
    assert [one.gaps for one in told] == [[]] * turns
    assert {one.digest == one.stored_digest for one in told} == {True}
    requests = [request["messages"] for request in sent(server)]
    for messages in requests:
        strictly(messages)
    one, two, three = (requests[at] for at in (1, 2, 3))
    assert (two[: len(one)], three[: len(two)]) == (one, two)
    assert "Be very brief." in requests[4][0]["content"]
    assert "Mind the gap." in requests[4][-1]["content"]
