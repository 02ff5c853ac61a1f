"""Edits of prompts, from a client to the bytes that a vendor gets. OM17-OM31, OM34; architecture 4."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from typing import Any

import pytest
from turnwright.types.v1 import model_pb2, session_command_pb2, settings_pb2

from services import Services, running
from sse_server import Answer, SseServer, chat
from strict_vendors import STRICT, Reply, serving
from turnwright_client.sessions import user_message
from turnwright_core.chat.message import Image
from turnwright_core.chat.prompt_edits import append, append_to, insert_after, insert_before, prepend
from turnwright_core.errors import Reason, TurnwrightError
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


def sent(server: SseServer) -> list[list[dict[str, Any]]]:
    return [request.json["messages"] for request in server.requests if request.method == "POST"]


async def turns(services: Services):
    """The turns of the run, the first one first."""
    return sorted(
        (await services.client.get_run(services.project, "r", turns_max=100)).turns, key=lambda turn: turn.number
    )


async def test_the_vendor_gets_the_edits_of_a_transcript_in_every_turn_and_in_no_later_loop(tmp_path, over_http):
    # OM17-OM20, OM24, OM27, OM28, OM31
    answers = [calling(("think", {"body": "Hm."}), text="Looking."), chat("Done."), chat("Really.")]
    async with over_http(*answers) as server, running(tmp_path) as services:
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
    assert requests[1][:2] == [begin[0], ("assistant", "SAID\n\nLooking.")]
    assert [requests[1][2][0], *requests[1][3:]] == ["tool", ("user", "END")]
    # What is sent once leaves no trace: neither in what is sent next, nor in the messages of the run.
    for word in ("FIRST", "ONE", "TO-LAST", "SAID", "END"):
        assert word not in json.dumps(requests[2])
        assert word not in str(messages)
    assert [one.path.partition("://")[0] for one in messages] == ["prompt", "assistant", "log", "assistant"]
    assert edits_from_pb(first.result.edits) == edits_from_pb(second.result.edits) == tuple(edits)
    assert len(third.result.edits) == 0


async def test_the_vendor_gets_the_edits_of_a_packet(tmp_path, over_http):
    # OM17-OM20, OM27, OM28, OM30: the message with the sections is the loop's prompt
    async with (
        over_http(chat("<think>Hm.</think>"), chat(DONE), chat(DONE), chat(DONE)) as server,
        running(tmp_path) as services,
    ):
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


STRICTLY = [
    append_to("last-user", "TO-LAST"),
    insert_after("prompt://1", "assistant", "SAID"),
    append("user", ["E-N-D", "ING"]),
]


@pytest.mark.parametrize("name", STRICT)
@pytest.mark.parametrize("assembly", [TRANSCRIPT, PACKET], ids=["transcript", "packet"])
async def test_no_vendor_refuses_an_edited_prompt(tmp_path, monkeypatch, name, assembly):
    # OM34: calls and results, thinking and signatures, cache marks, and whose turn it is
    def script(number: int) -> Reply:
        calls = [("think", {"body": "Hm."}), ("get", {"path": "none.txt"})]
        return Reply("Looking.", calls) if number < 2 else Reply("Done.")

    vendor = STRICT[name](script)
    async with SseServer([vendor] * 20) as server:
        serving(monkeypatch, tmp_path, name, server.url)
        async with running(tmp_path) as services:
            edits = [*STRICTLY, insert_before("prompt://1", "user", "BEFORE"), prepend("user", "FIRST")]
            native = settings_pb2.RunSettings(calls=settings_pb2.CALL_STYLE_NATIVE)
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly)
            queued = await services.client.act(
                services.project, "Do it.", run="r", settings=settings, run_settings=native, edits=edits
            )
            loop = await services.until(queued)
    assert (vendor.refusals, loop.status, loop.turns) == ([], 200, 3), loop.reason
    for body in vendor.bodies:
        text = json.dumps(body)
        assert [text.count(word) for word in ("FIRST", "BEFORE", "TO-LAST", "SAID", "E-N-D")] == [1] * 5


async def test_edits_that_no_prompt_could_take_are_refused_before_the_task_is_queued(services):
    # OM21, OM22
    refused = {
        "settings.edits[1].parts": [append("user", "x"), append("user", "")],
        "settings.edits": [append("user", "x" * 2**20)],
        "settings.edits.parts": [append("user", Image(path="a\0"))],
        "settings.images": [append("user", Image(path="a.png"))] * 9,
    }
    for field, edits in refused.items():
        with pytest.raises(TurnwrightError) as error:
            await services.client.act(services.project, "Do it.", run="r", edits=edits)
        assert error.value.metadata["field"] == field
    with pytest.raises(TurnwrightError) as error:
        await services.client.get_run(services.project, "r")
    assert error.value.reason is Reason.RUN_NOT_FOUND


NAMED = {
    "another run's": (insert_after("prompt://7", "user", "x"), "prompt_message_unknown: edits[1] (insert_after): there is no message prompt://7"),
    "nobody's": (append_to("last-assistant", "x"), "prompt_target_missing: edits[1] (append_to): there is no message of the assistant"),
    "the first word": (prepend("assistant", "x"), "prompt_shape_refused: The edits make a prompt that cannot be sent: it begins"),
    "the last word": (append("assistant", "x"), "prompt_shape_refused: The edits make a prompt that cannot be sent: it ends"),
}  # fmt: skip


@pytest.mark.parametrize("assembly", [TRANSCRIPT, PACKET], ids=["transcript", "packet"])
@pytest.mark.parametrize(("edit", "reason"), NAMED.values(), ids=NAMED)
async def test_an_edit_that_cannot_be_applied_ends_the_loop_and_the_model_is_not_called(
    tmp_path, over_http, edit, reason, assembly
):
    # OM22, OM34
    async with over_http(chat(DONE), chat(DONE)) as server, running(tmp_path) as services:
        loop = await act(services, append("user", "NEVER-SENT"), edit, assembly=assembly)
        assert (loop.status, loop.reason[: len(reason)]) == (500, reason)
        assert sent(server) == []
        later = await act(services, assembly=assembly)
    assert later.status == 200
    [messages] = sent(server)
    assert "NEVER-SENT" not in json.dumps(messages)


async def test_a_model_that_is_known_to_go_on_is_sent_a_last_word(tmp_path, over_http):
    # OM34
    async with over_http(chat(DONE), chat(DONE)) as server, running(tmp_path) as services:
        await services.client.set_model(
            model_pb2.Model(alias="m", vendor_model="openai/m", capabilities=model_pb2.Capabilities(prefill=True))
        )
        for assembly in (TRANSCRIPT, PACKET):
            assert (await act(services, append("assistant", "Well,"), assembly=assembly)).status == 200
    assert [messages[-1] for messages in sent(server)] == [{"role": "assistant", "content": "Well,"}] * 2


async def test_a_message_that_was_left_out_or_removed_cannot_be_named(tmp_path, over_http, monkeypatch):
    # OM20, OM22: edits see what is left after a limit
    answers = [chat(f"{number} " + "x" * 4000) for number in range(8)]
    async with over_http(*answers) as server:
        monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "8192")
        async with running(tmp_path) as services:
            for _ in range(8):
                loop = await act(services, no_repo=True)
            assert loop.status == 200, loop.reason
            gone = await act(services, insert_after("assistant://1", "user", "x"), no_repo=True)
            removal = session_command_pb2.RemoveMessage(message_id="assistant://8")
            await services.client.submit(services.project, "r", remove_message=removal)
            removed = await act(services, insert_after("assistant://8", "user", "x"), no_repo=True)
    assert "assistant://1" not in str(sent(server)[-1])
    assert "assistant://8" not in str(sent(server)[-1])
    unknown = "prompt_message_unknown: edits[0] (insert_after): there is no message assistant://"
    assert gone.reason.startswith(f"{unknown}1 ")
    assert removed.reason.startswith(f"{unknown}8 ")


@pytest.mark.parametrize("assembly", [TRANSCRIPT, PACKET], ids=["transcript", "packet"])
async def test_edits_count_for_the_window(tmp_path, over_http, monkeypatch, assembly):
    async with over_http(chat(DONE), chat(DONE)) as server:
        monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "16384")
        async with running(tmp_path) as services:
            plain = await act(services, assembly=assembly)
            small = await act(services, append("user", "word " * 1000), assembly=assembly)
            large = await act(services, append("user", "word " * 13_000), assembly=assembly)
            told = [turn.result for turn in await turns(services)]
    assert [plain.status, small.status, large.status] == [200, 200, 413]
    assert told[1].packet_tokens > told[0].packet_tokens + 1000
    assert "the edits of the prompt take" in large.reason
    assert (len(sent(server)), len(told[2].edits)) == (2, 1)


async def test_images_of_edits_are_kept_with_the_loop(tmp_path, over_http):
    # OM28: in every turn, even if the file is gone, and in no later loop
    png = b"\x89PNG\r\n\x1a\n" + b"pixel"
    data = f"data:image/png;base64,{base64.b64encode(png).decode()}"
    for assembly in (TRANSCRIPT, PACKET):
        root = tmp_path / str(assembly)
        root.mkdir()
        thinking = calling(("think", {"body": "Hm."})) if assembly == TRANSCRIPT else chat("<think>Hm.</think>")
        async with over_http(thinking, chat(DONE), chat(DONE)) as server, running(root) as services:
            for name in ("a.png", "b.png"):
                (services.files / name).write_bytes(png)
            edit = append("user", ["LOOK", Image(path="b.png"), Image(url="https://example.com/c.png")])
            loop = await act(services, edit, assembly=assembly, images=["a.png"])
            (services.files / "b.png").unlink()
            later = await act(services, assembly=assembly, prompt="Go on.")
            [first, *_] = await turns(services)
        assert (loop.status, loop.turns, later.status) == (200, 2, 200), loop.reason
        shown = [re.findall(r'"url": "([^"]*)"', json.dumps(messages)) for messages in sent(server)]
        assert shown[:2] == [[data, data, "https://example.com/c.png"]] * 2
        assert "https://example.com/c.png" not in shown[2]
        [kept] = edits_from_pb(first.result.edits)
        assert [part.path for part in kept.parts if isinstance(part, Image)] == ["image://loop_1/2", ""]


@pytest.mark.parametrize("assembly", [TRANSCRIPT, PACKET], ids=["transcript", "packet"])
async def test_the_same_edited_prompt_is_sent_again_after_a_crash(tmp_path, over_http, assembly):
    # OM29, OM31
    async with over_http(Answer(silent=True, end="hang"), chat(DONE)) as server:
        async with running(tmp_path, work_poll_s=0.1) as services:
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly)
            queued = await services.client.act(services.project, "Do it.", run="r", settings=settings, edits=STRICTLY)
            for _ in range(1500):
                if server.requests:
                    break
                await asyncio.sleep(0.02)
            await services.restart("executor")
            loop = await services.until(queued)
            [turn] = await turns(services)
        first, second = (request.body for request in server.requests)
    assert (loop.status, first) == (200, second)
    assert edits_from_pb(turn.result.edits) == tuple(STRICTLY)


async def test_equal_edits_of_equal_runs_make_equal_prompts(tmp_path, over_http):
    # OM29
    async with over_http(*[chat(DONE)] * 2) as server:
        for name in ("one", "two"):
            (tmp_path / name).mkdir()
            async with running(tmp_path / name) as services:
                await act(services, *STRICTLY, no_repo=True)
        first, second = (request.body for request in server.requests)
    assert first == second


async def test_a_message_of_a_session_is_sent_with_its_own_edits_and_the_next_without_them(tmp_path, over_http):
    # OM28: a message that gives no settings takes over those of the latest loop, and not its edits
    async with over_http(chat("One."), chat("Two.")) as server, running(tmp_path) as services:
        given = settings_pb2.LoopSettings(
            mode=settings_pb2.MODE_ACT, model="m", assembly=TRANSCRIPT, edits=[edit_to_pb(append("user", "EDIT"))]
        )
        for number, settings in enumerate([given, None], 1):
            message = user_message(f"Message {number}.", settings=settings)
            await services.client.submit(services.project, "r", user_message=message)
            loop = await services.client.wait_loop(services.project, "r", number)
            assert loop.status == 200, loop.reason
    first, second = sent(server)
    assert first[-1]["content"].endswith("Message 1.\n\nEDIT")
    assert (second[-1]["content"].endswith("Message 2."), "EDIT" in json.dumps(second)) == (True, False)
