"""Native calls end to end: what a model is offered, what it calls, and what is kept of it. C28, C40, C41, C44; RD02."""

from __future__ import annotations

import asyncio
import json

import grpc
import pytest
from turnwright.executor.v1 import session_event_pb2
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.types.v1 import rule_pb2, settings_pb2

from services import Services, running
from sse_server import Answer, SseServer, chat
from turnwright_core.limits import ATTRIBUTES_BYTES_MAX, CALL_ID_CHARS_MAX

pytestmark = pytest.mark.asyncio

NATIVE = settings_pb2.RunSettings(model="m", calls=settings_pb2.CALL_STYLE_NATIVE)
DONE = ("update", {"status": "200", "body": "Done."})


def call(name: str, arguments: object, vendor_id: str = "c", index: int = 0) -> dict:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"index": index, "id": vendor_id, "type": "function", "function": {"name": name, "arguments": text}}


def calling(*calls: tuple, text: str = "", finish: str = "tool_calls"):
    made = [call(*one[:2], *(one[2:] or (f"c{index}",)), index=index) for index, one in enumerate(calls)]
    return chat(text, tool_calls=made, finish=finish)


async def native(services: Services, run: str = "r", **settings):
    """A loop of a run whose model calls natively."""
    wanted = settings_pb2.LoopSettings(**{"model": "m", "yolo": True, **settings})
    return await services.client.act(services.project, "Do it.", run=run, settings=wanted, run_settings=NATIVE)


async def until_asked(server: SseServer) -> None:
    for _ in range(1500):
        if server.requests:
            return
        await asyncio.sleep(0.02)
    raise AssertionError("the vendor was not asked")


async def records(services: Services, turn: int = 1) -> dict[str, tuple[str, str, int]]:
    """Of each command of a turn, in order, our id, the vendor's and the status, by its path."""
    found = services.client.list_entries(services.project, "r", f"log://turn_{turn}/**")
    made = [entry async for entry in found if entry.record.HasField("ordinal")]
    made.sort(key=lambda entry: entry.record.ordinal)
    return {entry.path: (entry.record.call_id, entry.record.vendor_call_id, entry.status) for entry in made}


async def kept(services: Services, turn: int = 1) -> dict:
    return json.loads((await services.entry(f"assistant://{turn}")).attributes_json)


async def test_a_model_is_offered_tools_and_reads_nothing_of_tags(tmp_path, over_http) -> None:
    # C44: what is stored is what was sent, tools included
    async with over_http(calling(("get", {"path": "a.txt"})), calling(DONE)) as server:
        async with running(tmp_path) as services:
            (services.files / "a.txt").write_text("x")
            loop = await services.until(await native(services))
            turns = (await services.client.get_run(services.project, "r", turns_max=10)).turns
        first, second = (request.json for request in server.requests)
    assert (loop.status, loop.turns) == (200, 2)
    assert {turn.request.calls for turn in turns} == {settings_pb2.CALL_STYLE_NATIVE}
    offered = {tool["function"]["name"]: tool["function"] for tool in first["tools"]}
    assert list(offered) == list(turns[0].request.tools)
    assert offered["get"]["parameters"]["required"] == ["path"]
    assert first["tools"] == second["tools"]
    assert first["messages"][0] == second["messages"][0]
    system = first["messages"][0]["content"]
    told = [system, *(tool["description"] for tool in offered.values())]
    assert [name for name in offered for text in told if f"<{name}>" in text or f"<{name} " in text] == []


class Offered(grpc.aio.ServerInterceptor):
    """Notes with how many tools each call of a provider for a reply or a count comes."""

    def __init__(self) -> None:
        self.counts: list[int] = []

    async def intercept_service(self, continuation, handler_call_details):
        handler, method = await continuation(handler_call_details), handler_call_details.method
        if not method.endswith(("/Generate", "/CountTokens")):
            return handler

        def noted(data: bytes):
            is_reply = method.endswith("Generate")
            call = pb.GenerateRequest.FromString(data) if is_reply else pb.CountTokensRequest.FromString(data).call
            self.counts.append(len(call.tools))
            return handler.request_deserializer(data)

        return handler._replace(request_deserializer=noted)


async def test_tools_are_sent_once_to_each_provider(tmp_path, over_http) -> None:
    seen = Offered()
    get, done = calling(("get", {"path": "a.txt"})), calling(DONE)
    async with over_http(get, done, done, done) as server, running(tmp_path, [seen]) as services:
        await services.until(await native(services))
        await services.stop("provider")
        before, seen.counts = seen.counts, []
        await services.start("provider", [seen])
        await services.until(await native(services))
        await services.until(await native(services, "other"))
        offered = [request.json["tools"] for request in server.requests]
    # The first call of a provider names a list that it does not know.
    many = len(offered[0])
    for counts in (before, seen.counts):
        assert counts[:2] == [0, many]
        assert len(counts) > 2
        assert not any(counts[2:])
    assert len(offered) == 4
    assert all(tools == offered[0] for tools in offered)


async def test_our_ids_are_unique_and_the_vendors_stands_beside(tmp_path, over_http) -> None:
    # RD02, C41: arguments stand once, in the record
    get, other = ("get", {"path": "a.txt"}, "same"), ("get", {"path": "b.txt"}, "same")
    answers = [calling(get, other, get, ("sh", {"command": "true"}, "")), calling(get), calling(DONE)]
    async with over_http(*answers), running(tmp_path) as services:
        for name in ("a.txt", "b.txt"):
            (services.files / name).write_text("x")
        await services.until(await native(services))
        one, two = await records(services), await records(services, 2)
        note = await kept(services)
    assert [ids[:2] for ids in one.values()] == [("call_1_0", "same"), ("call_1_1", "same"), ("call_1_2", "")]
    assert [ids[:2] for ids in two.values()] == [("call_2_0", "same")]
    assert [(each["path"], each["call_id"]) for each in note["calls"]] == [(path, ids[0]) for path, ids in one.items()]
    assert "arguments" not in json.dumps(note)


async def test_a_long_id_comes_back_to_its_vendor_as_it_was(tmp_path, over_http) -> None:
    # RD02: a proxy has put a signature into it
    given = ("call_1__thought__" + "aB+/" * CALL_ID_CHARS_MAX)[:CALL_ID_CHARS_MAX]
    async with over_http(calling(("get", {"path": "a.txt"}, given)), calling(DONE)) as server:
        async with running(tmp_path) as services:
            (services.files / "a.txt").write_text("x")
            await services.until(await native(services, assembly=settings_pb2.ASSEMBLY_TRANSCRIPT))
            [ids] = (await records(services)).values()
        messages = server.requests[1].json["messages"]
    assert ids[:2] == ("call_1_0", "")
    assert [one["tool_call_id"] for one in messages if one["role"] == "tool"] == [given]
    assert [one["id"] for message in messages for one in message.get("tool_calls", ())] == [given]


async def test_a_failed_call_stops_no_other(tmp_path, over_http) -> None:
    # C28
    calls = [("get", {"path": "none.txt"}), ("unheard_of", {"x": 1}), ("set", {"path": "known://a", "body": "b"})]
    async with over_http(calling(*calls), calling(DONE)), running(tmp_path) as services:
        loop = await services.until(await native(services))
        statuses = [ids[2] for ids in (await records(services)).values()]
        assert (await services.entry("known://a")).body == "b"
    assert (loop.status, statuses) == (200, [404, 404, 200])


async def test_a_rejected_call_has_its_result_and_the_others_go_on(tmp_path, over_http) -> None:
    # C28, RC07
    calls = [("sh", {"command": "false"}), ("set", {"path": "known://a", "body": "b"})]
    async with over_http(calling(*calls), calling(DONE)), running(tmp_path) as services:
        queued = await native(services, yolo=False)
        await services.until(queued, 202)
        [path] = [path for path, ids in (await records(services)).items() if ids[2] == 202]
        await services.client.resolve(services.project, "r", path, accept=False, request_id="reject-it")
        loop = await services.until(queued)
        statuses = [ids[2] for ids in (await records(services)).values()]
    assert (loop.status, loop.turns, statuses) == (200, 2, [403, 200])


async def test_tags_beside_native_calls_are_text_and_without_them_commands(tmp_path, over_http) -> None:
    tag = '<set path="known://tag">t</set>'
    async with (
        over_http(calling(("think", {"body": "hm"}), text=tag), chat(tag), calling(DONE)),
        running(tmp_path) as services,
    ):
        await services.until(await native(services))
        one, two = await records(services), await records(services, 2)
    assert [path.split("/")[3] for path in one] == ["think"]
    assert list(two.values()) == [("", "", 200)]


HOSTILE = {
    "empty": ("get", ""),
    "null": ("get", "null"),
    "broken": ("get", '{"path": a.txt}'),
    "cut": ("get", '{"path": "a.tx'),
    "unreadable": ("get", "]]]]"),
    "nested": ("get", "[" * 5000),
    "long": ("set", json.dumps({"path": "long.txt", "body": "x" * ATTRIBUTES_BYTES_MAX})),
    "no name": ("", "{}"),
    "long id": ("get", '{"path": "a.txt"}', "i" * 5000),
}


@pytest.mark.parametrize("made", HOSTILE.values(), ids=HOSTILE)
async def test_no_call_ends_a_loop_or_another_call(tmp_path, over_http, made) -> None:
    calls = [made, ("set", {"path": "known://a", "body": "b"})]
    async with over_http(calling(*calls), calling(DONE)), running(tmp_path) as services:
        (services.files / "a.txt").write_text("x")
        loop = await services.until(await native(services))
        note = await kept(services)
        assert (await services.entry("known://a")).body == "b"
    assert (loop.status, loop.turns) == (422 if made[0] == "set" else 200, 2)
    assert len(note["calls"]) >= 1


async def test_more_calls_than_a_message_has_are_dropped_with_one_error(tmp_path, over_http) -> None:
    calls = [("think", {"body": str(number)}) for number in range(129)]
    async with over_http(calling(*calls), calling(DONE)), running(tmp_path) as services:
        loop = await services.until(await native(services))
        made = await records(services)
        lost = await services.entry("log://turn_1/error/too_many_commands_1")
    assert (loop.status, loop.turns, len(made)) == (200, 2, 99)
    assert lost.outcome == "unreadable:400"


async def test_the_stored_packet_is_sent_again_with_its_tools(tmp_path, over_http) -> None:
    # C44: an executor that goes while the model is asked is followed by one that asks the same, byte for byte
    silent = Answer(silent=True, end="hang")
    async with over_http(silent, calling(DONE)) as server:
        async with running(tmp_path, work_poll_s=0.1) as services:
            queued = await native(services)
            await until_asked(server)
            await services.restart("executor")
            loop = await services.until(queued)
        first, second = (request.body for request in server.requests)
    assert (loop.status, loop.turns, first) == (200, 1, second)
    assert json.loads(first)["tools"]


async def test_what_only_the_vendor_reads_is_kept_with_the_reply(services) -> None:
    # C40: thinking goes back to whoever wrote it
    services.script(
        "Looking.\n=== thinking signature=c2lnbmVk ===\nWhere?\n=== call name=get id=call_a ===\n{}",
        '=== call name=update ===\n{"status": "200", "body": "Done."}',
    )
    loop = await services.until(await native(services))
    note = await kept(services)
    assert loop.status == 200
    [block] = note["thinking"]
    assert (block["text"], block["signature"]) == ("Where?", "c2lnbmVk")


async def test_a_call_that_a_rule_denies_is_named_while_the_others_wait(tmp_path, over_http) -> None:
    # RE06
    calls = [("sh", {"command": "make it"}), ("set", {"path": "a.txt", "body": "new\n"})]
    async with over_http(calling(*calls), calling(DONE)), running(tmp_path) as services:
        await services.client.create_run(services.project, "r", NATIVE)
        denying = rule_pb2.Rule(verdict=rule_pb2.RULE_VERDICT_DENY, tool="sh")
        await services.client.set_rule(services.project, denying, "r")
        wanted = settings_pb2.LoopSettings(model="m")
        queued = await services.client.act(services.project, "Do it.", run="r", settings=wanted)
        await services.until(queued, 202)
        reasons = services.view().pause_reasons
    denied, asked = session_event_pb2.PauseReason.TYPE_DENIAL, session_event_pb2.PauseReason.TYPE_CONFIRMATION
    told = [(one.type, one.tool, one.rule, one.call_id) for one in reasons]
    assert told == [
        (denied, "sh", session_event_pb2.PauseReason.RULE_APPROVAL_RULE, "call_1_0"),
        (asked, "set", session_event_pb2.PauseReason.RULE_FILES, "call_1_1"),
    ]
