"""A run sent as a transcript: what the model reads, what stays of it from turn to turn, and switching. RL01, RL02, RL04, RL06."""

from __future__ import annotations

import itertools
import json

import pytest
from turnwright.types.v1 import model_pb2, plan_pb2, settings_pb2, turn_pb2

from services import Services, running
from sse_server import Answer, SseServer, chat

pytestmark = pytest.mark.asyncio

TRANSCRIPT = settings_pb2.ASSEMBLY_TRANSCRIPT
PACKET = settings_pb2.ASSEMBLY_PACKET
DONE = '<update status="200">Done.</update>'


def calling(*calls: tuple, text: str = ""):
    made = [
        {"index": index, "id": one[2] if len(one) > 2 else f"c{index}", "type": "function",
         "function": {"name": one[0], "arguments": one[1] if isinstance(one[1], str) else json.dumps(one[1])}}
        for index, one in enumerate(calls)
    ]  # fmt: skip
    return chat(text, tool_calls=made, finish="tool_calls")


async def act(services: Services, prompt: str = "Do it.", assembly: int = TRANSCRIPT, **more):
    settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly, **more)
    return await services.until(await services.client.act(services.project, prompt, run="r", settings=settings))


def sent(server: SseServer) -> list[dict]:
    return [request.json for request in server.requests if request.method == "POST"]


def strictly(messages: list[dict]) -> None:
    """What vendors refuse: a call without its result at once, a result of no call, two users in a row, an empty message."""
    open_calls: list[str] = []
    before = ""
    for message in messages:
        role = message["role"]
        if role == "tool":
            assert message["tool_call_id"] == open_calls.pop(0)
        else:
            assert not open_calls
            assert not role == before == "user"
            assert message.get("content") or message.get("tool_calls")
        open_calls += [call["id"] for call in message.get("tool_calls", ())]
        assert all(
            isinstance(json.loads(call["function"]["arguments"]), dict) for call in message.get("tool_calls", ())
        )
        before = role
    assert not open_calls


async def test_each_turn_begins_with_the_messages_of_the_turn_before(tmp_path, over_http):
    # RL02, RL06: also where calls are broken, of no tool, or have the same id
    answers = [
        calling(("get", {"path": "a.txt"}), ("sh", {"command": "echo out; echo err >&2"}), text="Looking."),
        calling(("get", '{"path": "a'), ("unheard_of", {"x": 1}, "same"), ("get", {"path": "none.txt"}, "same")),
        calling(("set", {"path": "a.txt", "body": "<<SEARCH\none\nSEARCH\n<<REPLACE\ntwo\nREPLACE"})),
        calling(("get", {"path": "a.txt"})),
        chat("All is done."),
    ]
    async with over_http(*answers) as server, running(tmp_path) as services:
        (services.files / "a.txt").write_text("one\n")
        loop = await act(services)
        turns = (await services.client.get_run(services.project, "r", turns_max=10)).turns
    requests = [one["messages"] for one in sent(server)]
    # Text without calls ends the loop.
    assert (loop.status, loop.turns) == (200, 5)
    assert {turn.request.assembly for turn in turns} == {TRANSCRIPT}
    for messages in requests:
        strictly(messages)
    for earlier, later in itertools.pairwise(requests):
        assert later[: len(earlier)] == earlier
        assert len(later) > len(earlier)
    assert [one["role"] for one in requests[1]] == ["system", "user", "assistant", "tool", "tool"]
    assert "Do it." in requests[0][1]["content"]
    got, ran = (one["content"] for one in requests[1][3:])
    # A result contains what it shows: no packet would.
    assert "one\n" in got
    assert ("out" in ran, "err" in ran) == (True, True)
    assert "two\n" in requests[4][-1]["content"]
    assert "<visible>" not in json.dumps(requests)
    assert sent(server)[0]["tools"] == sent(server)[4]["tools"]


async def test_what_the_runtime_tells_is_kept_apart_from_what_users_say(tmp_path, over_http):
    # RH05, OM08
    async with (
        over_http(calling(("think", {"body": "Hm."})), chat("Done."), chat("Really.")) as server,
        running(tmp_path) as services,
    ):
        await act(services)
        await services.client.inject_message(services.project, "r", "Mind the gap.")
        plan = plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_MARKDOWN, body="# One </plan>")
        await services.client.set_plan(services.project, "r", plan)
        await act(services, "And now?", assembly=settings_pb2.ASSEMBLY_UNSPECIFIED)
    first, last = sent(server)[0]["messages"], sent(server)[-1]["messages"]
    strictly(last)
    assert last[: len(first)] == first
    told = last[-1]["content"]
    places = [told.index(text) for text in ("Mind the gap.", '<plan plan_id="main"', "And now?")]
    assert places == sorted(places)
    assert told.count("\n</plan>") == 1


async def test_a_run_may_change_its_assembly_at_any_loop(tmp_path, over_http):
    tags = '<set path="known://a">b</set>' + DONE
    async with (
        over_http(chat(tags), calling(("get", {"path": "known://a"})), chat("Yes."), chat(DONE)) as server,
        running(tmp_path) as services,
    ):
        loops = [
            await act(services, "One.", PACKET), await act(services, "Two.", TRANSCRIPT),
            await act(services, "Three.", PACKET),
        ]  # fmt: skip
    assert [loop.status for loop in loops] == [200, 200, 200]
    requests = sent(server)
    strictly(requests[2]["messages"])
    # What was called by tags has no call that it could answer: its results are told.
    assert '<result tool="set">' in requests[1]["messages"][-1]["content"]
    assert [one["role"] for one in requests[3]["messages"]] == ["system", "user"]
    assert "<visible>" in requests[3]["messages"][1]["content"]
    assert "tools" not in requests[3]


async def test_a_turn_that_was_stopped_leaves_a_conversation_that_vendors_take(tmp_path, over_http):
    stopped = calling(("sh", {"command": "sleep 60"}), ("get", {"path": "a.txt"}))
    async with over_http(stopped, chat("Going on.")) as server, running(tmp_path) as services:
        settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT)
        queued = await services.client.act(services.project, "Do it.", run="r", settings=settings)
        async for event in services.client.watch(services.project, "r", queued.cursor):
            if event.WhichOneof("event") == "message_added" and "/sh/" in event.message_added.entry.path:
                break
        await services.client.abort(services.project, "r")
        await services.until(queued)
        loop = await act(services, "Go on.")
    assert loop.status == 200
    messages = sent(server)[-1]["messages"]
    strictly(messages)
    assert [len(one["tool_calls"]) for one in messages if one.get("tool_calls")] == [2]


async def turns_of(services: Services, turns_max: int = 100):
    return (await services.client.get_run(services.project, "r", turns_max=turns_max)).turns


def breaks_in(requests: list[list[dict]]) -> list[int]:
    """The places of the requests that do not begin with the one before."""
    pairs = enumerate(itertools.pairwise(requests), 1)
    return [place for place, (one, next_one) in pairs if next_one[: len(one)] != one]


async def test_what_cannot_fit_ends_its_loop_and_is_named(services):
    # RL08, and no message is evicted in vain
    (services.root / "m.txt").write_text(f"{DONE}\n")
    limits = settings_pb2.RunSettings(model="m", context_limit=16_384)
    settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT)
    queued = await services.client.act(services.project, "x" * 60_000, run="r", settings=settings, run_settings=limits)
    loop = await services.until(queued)
    assert (loop.status, loop.reason.partition(":")[0]) == (413, "context_exceeded")
    assert "what cannot be left out: prompt://1 1" in loop.reason
    error = await services.entry("log://turn_1/error/budget_overflow")
    assert "* prompt://1: 1" in error.body
    [turn] = await turns_of(services)
    assert turn.result.compression == turn_pb2.COMPRESSION_STRENGTH_ABSENT


async def test_a_result_larger_than_the_window_is_condensed_before_anything_else(services):
    # RL07, RL08
    reply = "=== reply prompt_tokens=9000 completion_tokens=5 ===\n"
    (services.root / "m.txt").write_text(f'{reply}=== call name=get ===\n{{"path": "a.txt"}}\n{reply}{DONE}\n')
    (services.files / "a.txt").write_text("begin " + "x" * 60_000 + " end")
    limits = settings_pb2.RunSettings(model="m", context_limit=16_384)
    settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT)
    queued = await services.client.act(services.project, "Do it.", run="r", settings=settings, run_settings=limits)
    loop = await services.until(queued)
    assert (loop.status, loop.turns) == (200, 2)
    strengths = [turn.result.compression for turn in await turns_of(services)]
    assert sorted(strengths) == [turn_pb2.COMPRESSION_STRENGTH_ABSENT, turn_pb2.COMPRESSION_STRENGTH_HIGH]
    report = await services.entry("event://turn_2/summarization_marker/compression")
    payload = json.loads(report.attributes_json)["event"]["payload"]
    assert (payload["breaks_prefix"], payload["unread"]) == (False, ["log://turn_1/get/a.txt"])
    # RL04: clients read the report, and no model does.
    told = [one async for one in services.client.list_messages(services.project, "r")]
    assert any("were evicted" in part.text for one in told for part in one.message.parts)


async def test_what_does_not_fit_is_evicted_and_ten_turns_pass_before_more_is(tmp_path, over_http):
    # RL04, RL06, RL07, RL08, RL09
    def read(number: int) -> Answer:
        return calling(("get", {"path": f"f{number}.txt"}))

    again = calling(("set", {"path": "log://turn_1/get/f0.txt", "visibility": "visible"}))
    async with (
        over_http(*map(read, range(40)), chat("Done."), again, chat("Again.")) as server,
        running(tmp_path) as services,
    ):
        for number in range(40):
            (services.files / f"f{number}.txt").write_text(f"{number} is read. " + "x" * 1500 * (1 + number % 3))
        limits = settings_pb2.RunSettings(model="m", context_limit=17_000)
        settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT)
        queued = await services.client.act(
            services.project, "Read all.", run="r", settings=settings, run_settings=limits
        )
        loop = await services.until(queued)
        first = await services.entry("log://turn_1/get/f0.txt")
        told = [one async for one in services.client.list_messages(services.project, "r")]
        strengths = {turn.number: turn.result.compression for turn in await turns_of(services)}
        # It can be undone: what is made visible again is sent again.
        await act(services, "And now?")
    assert (loop.status, loop.turns) == (200, 41)
    requests = [one["messages"] for one in sent(server)]
    for messages in requests:
        strictly(messages)
        assert "Read all." in messages[1]["content"]
        assert "were evicted" not in json.dumps(messages)
    breaks = breaks_in(requests[:41])
    assert breaks
    assert all(later - earlier >= 10 for earlier, later in itertools.pairwise(breaks))
    absent = turn_pb2.COMPRESSION_STRENGTH_ABSENT
    assert [strengths[turn] > absent for turn in (1, breaks[0], breaks[0] + 1)] == [False, False, True]
    texts = [one["content"] for one in requests[40] if one["role"] == "tool"]
    assert "39 is read." in texts[-1]
    assert json.dumps(first.body)[1:-1] not in json.dumps(requests[40])
    # Views change and bodies do not: clients read all of it.
    assert len(first.body) > 1500
    assert any(part.text == first.body for one in told for part in one.message.parts)
    assert json.dumps(first.body)[1:-1] in json.dumps(requests[-1])


async def test_a_result_that_a_model_archives_is_a_stub_and_no_lie(tmp_path, over_http):
    hidden = calling(("set", {"path": "log://turn_1/get/a.txt", "visibility": "archived"}))
    async with (
        over_http(calling(("get", {"path": "a.txt"})), hidden, chat("Done.")) as server,
        running(tmp_path) as services,
    ):
        (services.files / "a.txt").write_text("x" * 1000)
        await act(services)
    messages = sent(server)[-1]["messages"]
    strictly(messages)
    assert "left out" in next(one["content"] for one in messages if one["role"] == "tool")


async def test_forty_turns_of_reading_leave_nine_tenths_of_what_is_sent_as_it_was(tmp_path, over_http):
    # What vendors can cache: the bytes with which a request begins as the one before it did.
    answers = [calling(("get", {"path": f"f{number}.txt"})) for number in range(40)]
    async with over_http(*answers, chat("Done.")) as server, running(tmp_path) as services:
        for number in range(40):
            (services.files / f"f{number}.txt").write_text(f"{number} " + "some words of text\n" * 80)
        await services.client.set_model(model_pb2.Model(alias="large", vendor_model="openai/m", context_length=200_000))
        settings = settings_pb2.LoopSettings(model="large", yolo=True, assembly=TRANSCRIPT)
        loop = await services.until(
            await services.client.act(services.project, "Read all.", run="r", settings=settings)
        )
    bodies = [json.dumps(one["messages"]) for one in sent(server)]
    shared = sum(len(one) for one, after in itertools.pairwise(bodies) if after.startswith(one.removesuffix("]")))
    assert (loop.status, loop.turns) == (200, 41)
    assert shared / sum(map(len, bodies)) > 0.9
