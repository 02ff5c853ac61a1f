"""Turns of a run that is sent as a transcript: what ends a loop, switches, answers with a form, and aborts. RL03; C42."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections import Counter

import grpc
import pytest
from turnwright.types.v1 import entry_pb2, run_message_pb2, settings_pb2, turn_pb2
from turnwright.types.v1.explanation_pb2 import PACKET_STEP_KIND_EARLIER_TURNS, PACKET_STEP_KIND_RESTORED

from contract.executor.test_transcripts import (
    DONE,
    PACKET,
    TRANSCRIPT,
    act,
    calling,
    sent,
    strictly,
    turns_of,
)
from services import running
from sse_server import Answer, SseServer, chat, never
from strict_vendors import STRICT, Reply, unmarked
from turnwright_cli.rules import read_turns
from turnwright_executor.clients.replaying import replay, stored_turns
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.verdict import Limits
from turnwright_executor.hooks import Hooks
from turnwright_executor.hooks.registry import new_registry

pytestmark = pytest.mark.asyncio


async def test_a_failed_call_is_a_result_and_no_strike(tmp_path, over_http):
    # C42: strikes are calls of unknown tools, what cannot be read, and cycles
    failing = [calling(("get", {"path": f"none{number}.txt"})) for number in range(5)]
    async with over_http(*failing, chat("There is nothing.")) as server, running(tmp_path, strikes_max=2) as services:
        loop = await act(services)
        turns = await turns_of(services)
    assert (loop.status, loop.turns, loop.reason) == (200, 6, "text")
    assert {turn.result.strikes for turn in turns} == {0}
    assert "none4.txt" in sent(server)[-1]["messages"][-1]["content"]


@pytest.mark.parametrize(
    ("reply", "reason"),
    [
        (lambda number: calling((f"unheard_of_{number}", {})), "strikes"),
        (lambda number: calling(("get", f"nonsense {number}")), "strikes"),
        (lambda _: calling(("get", {"path": "none.txt"})), "cycles"),
    ],
    ids=["unknown tool", "unreadable", "cycle"],
)
async def test_what_is_a_strike_in_a_transcript_ends_its_loop(tmp_path, over_http, reply, reason):
    # C42
    async with over_http(*map(reply, range(9))) as server, running(tmp_path, strikes_max=2) as services:
        loop = await act(services)
    assert (loop.status, loop.reason) == (499, reason)
    for request in sent(server):
        strictly(request["messages"])


async def test_a_run_without_a_choice_is_sent_as_the_setting_says(tmp_path, over_http):
    unset = settings_pb2.ASSEMBLY_UNSPECIFIED
    async with (
        over_http(chat("Yes."), chat(DONE), chat(DONE)),
        running(tmp_path, store_settings={"assembly": "transcript"}) as services,
    ):
        await act(services, "One?", unset)
        await act(services, "Two?", PACKET)
        # A run keeps its own.
        await act(services, "Three?", unset)
        turns = await turns_of(services)
    assert [turn.request.assembly for turn in sorted(turns, key=lambda turn: turn.number)] == [
        TRANSCRIPT,
        PACKET,
        PACKET,
    ]


async def test_a_run_may_change_vendor_model_and_assembly_in_the_middle(tmp_path, monkeypatch):
    # RL03: thinking goes back to the model that wrote it, and to no other
    read = Reply("", [("get", {"path": "a.txt"})])
    claude = STRICT["anthropic"](lambda number: [read, Reply("Read."), Reply("Back.")][number])
    other = STRICT["chat"](lambda number: [read, Reply("Seen."), Reply(DONE, thinks=False)][number])
    async with SseServer([claude] * 5) as one, SseServer([other] * 5) as two:
        monkeypatch.setenv("TURNWRIGHT_MODEL_claude", "anthropic/claude-x")
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", one.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        monkeypatch.setenv("OPENAI_BASE_URL", two.url)
        async with running(tmp_path) as services:
            (services.files / "a.txt").write_text("text of a")

            async def task(prompt: str, model: str, assembly: int):
                settings = settings_pb2.LoopSettings(model=model, yolo=True, assembly=assembly)
                queued = await services.client.act(services.project, prompt, run="r", settings=settings)
                return (await services.until(queued)).status

            statuses = [
                await task("One.", "claude", TRANSCRIPT), await task("Two.", "m", TRANSCRIPT),
                await task("Three.", "m", PACKET), await task("Four.", "claude", TRANSCRIPT),
            ]  # fmt: skip
            turns = sorted(await turns_of(services), key=lambda turn: turn.number)
    assert statuses == [200] * 4
    assert claude.refusals + other.refusals == []
    # Another model is not sent what only its author reads, and the turn says so.
    assert [list(turn.result.dropped) for turn in turns if turn.number in (1, 2, 3)] == [[], [], ["thinking"]]
    conversations = [body["messages"] for body in claude.bodies]
    assert [block["type"] for block in conversations[1][1]["content"]] == ["thinking", "tool_use"]
    # Back at the model that thought it, it is sent again, before what others said since.
    last = json.dumps(conversations[-1])
    signature = conversations[1][1]["content"][0]["signature"]
    places = [last.index(text) for text in ("One.", signature, "Two.", "Three.", "Four.")]
    assert places == sorted(places)


async def test_an_answer_of_a_form_ends_a_transcript_and_a_wrong_one_is_said_to_be(tmp_path, over_http):
    form = settings_pb2.ResponseFormat(
        schema='{"type":"object","required":["n"],"properties":{"n":{"type":"integer"}}}'
    )
    async with over_http(chat("Four."), chat('{"n": 4}')) as server, running(tmp_path) as services:
        loop = await act(services, "How many?", response_format=form)
        turns = await turns_of(services)
    assert (loop.status, loop.turns) == (200, 2)
    assert json.loads(max(turns, key=lambda turn: turn.number).result.answer) == {"n": 4}
    first, second = (request["messages"] for request in sent(server))
    strictly(second)
    assert second[: len(first)] == first
    assert "must be JSON" in json.dumps(second[-1])


async def test_a_changed_file_is_a_new_message_and_leaves_the_old_one(tmp_path, over_http):
    reads = [calling(("get", {"path": "a.txt"})), calling(("sh", {"command": "echo two > a.txt"}))]
    async with over_http(*reads, reads[0], chat("Done.")) as server, running(tmp_path) as services:
        (services.files / "a.txt").write_text("one\n")
        await act(services)
    requests = [request["messages"] for request in sent(server)]
    for one, after in itertools.pairwise(requests):
        assert after[: len(one)] == one
    assert ["one" in requests[-1][3]["content"], "two" in requests[-1][-1]["content"]] == [True, True]


async def test_an_abort_keeps_thinking_and_calls_as_far_as_vendors_take_them(tmp_path, monkeypatch):
    # RC06: what was streamed is sent again, and a call without a result gets one
    slow = Reply("", [("sh", {"command": "sleep 60"}), ("get", {"path": "a.txt"})])
    claude = STRICT["anthropic"](lambda number: [slow, Reply("Going on.")][number])
    async with SseServer([claude] * 3) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "anthropic/claude-x")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        async with running(tmp_path) as services:
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT)
            queued = await services.client.act(services.project, "Do it.", run="r", settings=settings)
            async for event in services.client.watch(services.project, "r", queued.cursor):
                if event.WhichOneof("event") == "message_added" and "/sh/" in event.message_added.entry.path:
                    break
            await services.client.abort(services.project, "r")
            await services.until(queued)
            assert (await act(services, "Go on.")).status == 200
    assert claude.refusals == []
    said = claude.bodies[-1]["messages"][1]["content"]
    assert [block["type"] for block in said] == ["thinking", "tool_use", "tool_use"]


class Asked(grpc.aio.ServerInterceptor):
    """Counts the calls of each method of all services."""

    def __init__(self) -> None:
        self.methods: Counter[str] = Counter()

    async def intercept_service(self, continuation, details):
        self.methods[details.method.rpartition("/")[2]] += 1
        return await continuation(details)


async def test_a_turn_is_assembled_from_what_the_turn_before_wrote_and_reads_nothing(tmp_path, over_http):
    steps = [calling(("set", {"path": f"known://{number}", "body": "b"})) for number in range(12)]
    asked = Asked()
    async with over_http(*steps, chat("Done.")) as server, running(tmp_path, [asked]) as services:
        loop = await act(services)
    assert (loop.turns, asked.methods["Assemble"]) == (13, 13)
    # The first turn of a new run is told all there is, and each later one what has changed.
    assert asked.methods["ReadView"] == 0
    assert sum(len(request["messages"]) for request in sent(server)) == sum(2 + 2 * turn for turn in range(13))


@pytest.mark.parametrize(("commands_max", "taken", "dropped"), [(200, 128, "1 or more"), (99, 99, "30 or more")])
async def test_of_a_reply_with_too_many_calls_as_many_are_sent_again_as_vendors_take(
    tmp_path, over_http, commands_max, taken, dropped
):
    many = Reply("", [("get", {"path": f"known://{number}"}) for number in range(131)])
    vendor = STRICT["chat"](lambda number: Reply("Done.") if number else many)
    async with over_http(vendor, vendor), running(tmp_path, turn_commands_max=commands_max) as services:
        loop = await act(services)
    assert (loop.status, vendor.refusals) == (200, [])
    conversation = vendor.bodies[-1]["messages"]
    assert len(conversation[2]["tool_calls"]) == 128
    assert f"Only the first {taken} commands were taken; {dropped} were dropped." in json.dumps(conversation[2:])


async def test_a_run_that_turns_it_on_has_its_messages_summarized_before_they_are_evicted(tmp_path, monkeypatch):
    # RL04, RL06: a turn of its own, charged, whose reply lists what it replaces
    def script(number: int) -> Reply:
        asked = json.dumps(vendor.bodies[number]["messages"][-1])
        if "about to be shortened" in asked:
            return Reply("I read f0 to f9, and found nothing.", [("get", {"path": "f1.txt"})])
        return Reply("", [("get", {"path": f"f{number % 30}.txt"})]) if number < 30 else Reply("All is read.")

    vendor = STRICT["anthropic"](script)
    async with SseServer([vendor] * 60) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "anthropic/claude-x")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        async with running(tmp_path) as services:
            for number in range(30):
                (services.files / f"f{number}.txt").write_text(f"{number} is read. " + "some words of it, " * 150)
            limits = settings_pb2.RunSettings(model="m", context_limit=16_384)
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT, summaries=True)
            queued = await services.client.act(
                services.project, "Read all.", run="r", settings=settings, run_settings=limits
            )
            loop = await services.until(queued)
            turns = sorted(await turns_of(services), key=lambda turn: turn.number)
            told = [one async for one in services.client.list_messages(services.project, "r")]
            run = (await services.client.get_run(services.project, "r")).run
            packets = [await services.client.explain_packet(services.project, "r", turn.number) for turn in turns]
            read = await read_turns(services.client, services.project, "r")
    judged = stored_turns(RunAddress("p", "r"), *read, Limits())
    assert vendor.refusals == []
    assert (loop.status, loop.summary) == (200, "All is read.")
    kinds = [turn.result.kind for turn in turns]
    summaries = [turn for turn in turns if turn.result.kind == turn_pb2.REPLY_KIND_SUMMARY]
    assert summaries
    assert all(turn.request.kind == turn_pb2.REQUEST_KIND_COMPACTION for turn in summaries)
    assert kinds.count(turn_pb2.REPLY_KIND_SUMMARY) * 10 <= len(turns)
    # No voter was asked about it, and none is when the turns are judged again.
    assert [one.facts.at.turn for one in judged.verdicts] == [turn.number for turn in turns if turn not in summaries]
    assert not any(one.differs for one in await replay(Hooks(new_registry()), judged.verdicts))
    # Each packet is assembled again as it was sent, that of the summary too.
    assert [one.turn for one in packets if one.digest != one.stored_digest] == []
    # It is charged like any turn, and its calls are none.
    assert all(turn.result.usage.total_tokens > 0 and turn.result.status == 102 for turn in summaries)
    assert run.loop.turns == len(turns)
    first = summaries[0].number
    [message] = [one for one in told if one.path == f"assistant://{first}"]
    assert message.kind == run_message_pb2.MESSAGE_KIND_SUMMARY
    # The next prompt has it in place of what it replaces, and the request to write it is in no other prompt.
    texts = [
        block["text"]
        for message in vendor.bodies[first]["messages"]
        for block in message["content"]
        if block["type"] == "text"
    ]
    assert any(f'<summary turn="{first}">' in text and "found nothing" in text for text in texts)
    after = json.dumps(vendor.bodies[first]["messages"])
    assert "n0 is read." not in after
    assert "about to be shortened" not in after
    # Every other request begins with the one before.
    bodies = [json.dumps(list(map(unmarked, vendor.blocks(body))))[:-1] for body in vendor.bodies]
    around = {place for turn in summaries for place in (turn.number - 1, turn.number)}
    broken = [place for place, (one, two) in enumerate(itertools.pairwise(bodies), 1) if not two.startswith(one)]
    assert set(broken) <= around


async def test_a_summary_that_an_executor_left_is_asked_for_again_and_replaces_the_same(tmp_path, monkeypatch):
    # C44
    asked: list[str] = []

    def script(number: int) -> Reply | Answer:
        conversation = json.dumps(vendor.bodies[number]["messages"])
        if "about to be shortened" in conversation:
            asked.append(conversation)
            return never() if len(asked) == 1 else Reply("I read them.")
        return Reply("", [("get", {"path": f"f{number}.txt"})]) if not asked else Reply("All is read.")

    vendor = STRICT["anthropic"](script)
    async with SseServer([vendor] * 60) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "anthropic/claude-x")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.url)
        monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
        async with running(tmp_path) as services:
            for number in range(40):
                (services.files / f"f{number}.txt").write_text(f"{number} is read. " + "some words of it, " * 150)
            limits = settings_pb2.RunSettings(model="m", context_limit=16_384)
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=TRANSCRIPT, summaries=True)
            queued = await services.client.act(
                services.project, "Read all.", run="r", settings=settings, run_settings=limits
            )
            while not asked:  # noqa: ASYNC110 - the vendor says it
                await asyncio.sleep(0.05)
            await services.restart("executor")
            loop = await services.until(queued)
            turns = await turns_of(services)
            [summary] = [turn for turn in turns if turn.result.kind == turn_pb2.REPLY_KIND_SUMMARY]
            packet = await services.client.explain_packet(services.project, "r", summary.number)
            reply = await services.entry(f"assistant://{summary.number}")
            replaced = json.loads(reply.attributes_json)["summarizes"]
            first = await services.entry(replaced[0])
    assert vendor.refusals == []
    assert loop.status == 200
    assert asked[0] == asked[1]
    assert packet.digest == packet.stored_digest
    assert first.visibility == entry_pb2.VISIBILITY_ARCHIVED
    assert "about to be shortened" not in json.dumps(vendor.bodies[-1]["messages"])


async def test_a_packet_fits_after_transcripts_that_read_more_than_its_window(tmp_path, over_http):
    # RL03: turns of a transcript leave visible what packets would have summarized; what was summarized can be read again
    texts = {f"{name}.txt": f"line of {name}\n" * 1500 for name in "abcdef"}
    reads = [calling(("get", {"path": path})) for path in texts]
    again = '<get path="a.txt"/><update status="102">Reading.</update>'
    async with (
        over_http(*reads, chat("Read."), chat(again), chat(DONE), chat("Back.")) as server,
        running(tmp_path) as services,
    ):
        for path, text in texts.items():
            (services.files / path).write_text(text)
        limits = settings_pb2.RunSettings(model="m", context_limit=24_000)

        async def task(prompt: str, assembly: int):
            settings = settings_pb2.LoopSettings(model="m", yolo=True, assembly=assembly)
            queued = await services.client.act(
                services.project, prompt, run="r", settings=settings, run_settings=limits
            )
            return await services.until(queued)

        loops = [await task("One.", TRANSCRIPT), await task("Two.", PACKET), await task("Three.", TRANSCRIPT)]
        files = [await services.entry(path) for path in texts]
        error = await services.entry("log://turn_8/error/budget_earlier_turns")
        explained = await services.client.explain_packet(services.project, "r", 8, 100)
        back = await services.client.explain_packet(services.project, "r", 10, 100)
        results = [await services.entry(f"log://turn_{place}/get/{path}") for place, path in enumerate(texts, 1)]
    assert [(loop.status, loop.reason) for loop in loops] == [(200, "text"), (200, "update"), (200, "text")]
    assert all(f"* {path}" in error.body for path in texts)
    assert [one.body for one in files] == list(texts.values())
    visible, summarized = entry_pb2.VISIBILITY_VISIBLE, entry_pb2.VISIBILITY_SUMMARIZED
    assert [one.visibility for one in files] == [visible, *[summarized] * 5]
    assert (explained.digest, [step.kind for step in explained.steps]) == (
        explained.stored_digest,
        [PACKET_STEP_KIND_EARLIER_TURNS],
    )
    # What the packet summarized of results stands whole in the next transcript; what transcripts had condensed does not.
    assert (back.digest, [step.kind for step in back.steps]) == (back.stored_digest, [PACKET_STEP_KIND_RESTORED])
    assert [one.visibility for one in results] == [*[summarized] * 4, visible, visible]
    assert texts["f.txt"][:-1] in json.dumps(sent(server)[-1]["messages"]).replace("\\n", "\n")
    first, second = (request["messages"][-1]["content"] for request in sent(server)[7:9])
    assert [texts["a.txt"] in text for text in (first, second)] == [False, True]
    strictly(sent(server)[-1]["messages"])
