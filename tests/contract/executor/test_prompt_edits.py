"""Edits of prompts, from a client to the bytes that a vendor gets. OM17-OM31, OM34; architecture 4."""

from __future__ import annotations

import json
from typing import Any

import pytest
from turnwright.types.v1 import settings_pb2

from services import Services, running
from sse_server import SseServer, chat
from turnwright_core.chat.prompt_edits import append, append_to, insert_after, insert_before, prepend
from turnwright_core.wire.prompt_edits import edit_to_pb, edits_from_pb

pytestmark = pytest.mark.asyncio

TRANSCRIPT = settings_pb2.ASSEMBLY_TRANSCRIPT
PACKET = settings_pb2.ASSEMBLY_PACKET
DONE = '<update status="200">Done.</update>'


def calling(*calls: tuple[str, dict[str, Any]], text: str = ""):
    made = [
        {"index": index, "id": f"c{index}", "type": "function", "function": {"name": name, "arguments": json.dumps(given)}}
        for index, (name, given) in enumerate(calls)
    ]  # fmt: skip
    return chat(text, tool_calls=made, finish="tool_calls")


async def act(services: Services, *edits, prompt: str = "Do it.", assembly: int = TRANSCRIPT, **more):
    settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly, edits=map(edit_to_pb, edits), **more)
    return await services.until(await services.client.act(services.project, prompt, run="r", settings=settings))


@pytest.fixture
def over_http(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")

    def serving(*answers):
        server = SseServer(list(answers))
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        return server

    return serving


def sent(server: SseServer) -> list[list[dict[str, Any]]]:
    return [request.json["messages"] for request in server.requests if request.method == "POST"]


async def turns(services: Services):
    """The turns of the run, the first one first."""
    return sorted(
        (await services.client.get_run(services.project, "r", turns_max=100)).turns, key=lambda turn: turn.number
    )


async def test_the_vendor_gets_the_edits_of_a_transcript_in_every_turn_and_in_no_later_loop(
    tmp_path, over_http, monkeypatch
):
    # OM17-OM20, OM24, OM27, OM28, OM31
    answers = [calling(("think", {"body": "Hm."}), text="Looking."), chat("Done."), chat("Really.")]
    async with over_http(*answers) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            edits = [
                prepend("user", "FIRST"), append_to("last-user", "TO-LAST"),
                insert_after("prompt://1", "assistant", "SAID"), insert_before("prompt://1", "user", ["ONE", "TWO"]),
                append("user", "END"),
            ]  # fmt: skip
            loop = await act(services, *edits, no_repo=True)
            messages = [one async for one in services.client.list_messages(services.project, "r")]
            later = await act(services, prompt="And now?", assembly=settings_pb2.ASSEMBLY_UNSPECIFIED)
            first, second, third = await turns(services)
    assert (loop.status, loop.turns, later.status) == (200, 2, 200), loop.reason
    requests = [[(one["role"], one["content"]) for one in request[1:]] for request in sent(server)]
    begin = [("user", "FIRST\n\nONE\n\nTWO\n\nDo it.\n\nTO-LAST"), ("assistant", "SAID")]
    assert requests[0] == [*begin, ("user", "END")]
    assert requests[1][:3] == [*begin, ("assistant", "Looking.")]
    assert [requests[1][3][0], requests[1][4]] == ["tool", ("user", "END")]
    # What is sent once leaves no trace: neither in what is sent next, nor in the messages of the run.
    for word in ("FIRST", "ONE", "TO-LAST", "SAID", "END"):
        assert word not in json.dumps(requests[2])
        assert word not in str(messages)
    assert [one.path.partition("://")[0] for one in messages] == ["prompt", "assistant", "log", "assistant"]
    assert edits_from_pb(first.result.edits) == edits_from_pb(second.result.edits) == tuple(edits)
    assert len(third.result.edits) == 0


async def test_the_vendor_gets_the_edits_of_a_packet(tmp_path, over_http, monkeypatch):
    # OM17-OM20, OM27, OM28, OM30: the message with the sections is the loop's prompt
    async with over_http(chat("<think>Hm.</think>"), chat(DONE), chat(DONE), chat(DONE)) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            edits = [
                prepend("user", "FIRST"), insert_after("prompt://1", "assistant", "SAID"), append_to("last-user", "TO-LAST"),
                append("user", "END"),
            ]  # fmt: skip
            loop = await act(services, *edits, assembly=PACKET)
            plain = await act(services, assembly=PACKET)
            tail = await act(services, append_to("last-user", "TAIL"), append("user", "MORE"), assembly=PACKET)
            recorded = await turns(services)
    assert (loop.status, loop.turns, plain.status, tail.status) == (200, 2, 200, 200), loop.reason
    requests = [[(one["role"], one["content"]) for one in request[1:]] for request in sent(server)]
    for user, said, end in requests[:2]:
        assert user[1].startswith("FIRST\n\n<prompt")
        assert user[1].endswith("</budget>\n\nTO-LAST")
        assert (said, end) == (("assistant", "SAID"), ("user", "END"))
    [only] = requests[2]
    assert [word for word in ("FIRST", "TO-LAST", "SAID", "END") if word in only[1]] == []
    [only] = requests[3]
    assert only[1].endswith("</budget>\n\nTAIL\n\nMORE")
    assert [len(turn.result.edits) for turn in recorded] == [4, 4, 0, 2]
