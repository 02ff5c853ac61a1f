"""What each turn ran with: a record of its own that messages point at. Rows OM03, OM05, OM07-OM10, OM12, OM13, OM15, OM39.

The cases of opencode/turn_join are played by a run: a turn is a loop with its settings, its messages are what the run
keeps of it. A project's agent is the mode here (`plan` asks, `build` acts); its `system` belongs to the run (C31).
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import model_pb2, settings_pb2, turn_pb2

from cases import load_cases
from contract.executor.proposing import GO_ON
from contract.executor.watcher import Watcher
from services import Services, running
from sse_server import Answer, SseServer, delta, events, usage_chunk
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio

CASES = [case for case in load_cases("opencode/turn_join.jsonl") if "error" not in case["expect"]]
EFFORTS = {"low": settings_pb2.REASONING_EFFORT_LOW, "high": settings_pb2.REASONING_EFFORT_HIGH}
DONE = '<update status="200">Done.</update>'


def alias_of(request: dict[str, Any]) -> str:
    return "{providerID}_{modelID}".format(**request["model"])


async def play(services: Services, request: dict[str, Any] | None) -> int:
    """Run a turn with these settings, or with none; returns its number."""
    give = services.client.ask if request and request["agent"] == "plan" else services.client.act
    settings = settings_pb2.LoopSettings(yolo=True)
    if request:
        settings.model = alias_of(request)
        if variant := request.get("variant"):
            settings.reasoning.effort = EFFORTS[variant]
    return (await services.until(await give(services.project, "Do it.", run="r", settings=settings))).first_turn


async def requests(services: Services) -> dict[int, turn_pb2.TurnRequest]:
    turns = (await services.client.get_run(services.project, "r", turns_max=20)).turns
    return {turn.number: turn.request for turn in turns}


def said(request: turn_pb2.TurnRequest) -> dict[str, Any]:
    """A turn's request in the words of the cases."""
    told: dict[str, Any] = {"model": request.model, "bash": "sh" in request.tools}
    if request.HasField("reasoning"):
        told["variant"] = request.reasoning.effort
    return told


def wanted(request: dict[str, Any]) -> dict[str, Any]:
    told: dict[str, Any] = {"model": alias_of(request), "bash": request["agent"] != "plan"}
    if variant := request.get("variant"):
        told["variant"] = EFFORTS[variant]
    return told


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
async def test_every_message_is_joined_to_what_its_turn_ran_with(services, case):
    # OM03, OM05, OM07, OM09, OM12
    for alias in {alias_of(turn["request"]) for turn in case["turns"]}:
        services.script(*[DONE] * 9, name=alias)
        await services.client.set_model(model_pb2.Model(alias=alias, vendor_model=f"scripted/{alias}"))
    numbers = {turn["id"]: await play(services, turn["request"]) for turn in case["turns"]}
    ran = await requests(services)

    for message in case["messages"]:
        kind = "prompt" if message["role"] == "user" else "assistant"
        entry = await services.entry(f"{kind}://{numbers[message['turnID']]}")
        joined = case["expect"].get("joined", {}).get(message["id"])
        if joined:
            assert said(ran[entry.turn]) == wanted(joined)
    if resumed := case["expect"].get("resume_request"):
        # OM10: a task that names no settings goes on with the run's.
        model = settings_pb2.RunSettingsPatch(model=alias_of(resumed))
        await services.client.configure_run(services.project, "r", model)
        number = await play(services, None)
        told = said((await requests(services))[number])
        assert (told["model"], told["variant"]) == (alias_of(resumed), EFFORTS[resumed["variant"]])


async def test_other_settings_make_another_turn_and_leave_the_earlier_ones_as_they_were(services):
    # OM12
    services.script(DONE, DONE)
    services.script(DONE, name="other")
    await services.client.set_model(model_pb2.Model(alias="other", vendor_model="scripted/other"))
    await services.until(await services.act())
    before = await requests(services)
    await services.until(await services.ask(model="other"))

    after = await requests(services)
    assert {number: after[number] for number in before} == before
    assert [request.model for _, request in sorted(after.items())] == ["m", "other"]


async def test_a_turn_says_what_it_ran_with_and_leaves_out_what_nobody_set(services):
    # OM03, OM05
    services.script(DONE, '<update status="200">{}</update>')
    await services.until(await services.act())
    wanted = settings_pb2.LoopSettings(
        model="m", response_format=settings_pb2.ResponseFormat(schema='{"type": "object"}')
    )
    brief = settings_pb2.RunSettings(model="m", persona="Be brief.")
    queued = await services.client.ask(services.project, "Ask.", run="s", settings=wanted, run_settings=brief)
    await services.until(queued)

    [plain] = (await requests(services)).values()
    assert (plain.mode, plain.kind) == (settings_pb2.MODE_ACT, turn_pb2.REQUEST_KIND_PRIMARY)
    assert [plain.HasField(name) for name in ("persona", "response_format", "reasoning")] == [False] * 3
    [turn] = (await services.client.get_run(services.project, "s", turns_max=1)).turns
    assert (turn.request.mode, turn.request.persona) == (settings_pb2.MODE_ASK, "Be brief.")
    assert turn.request.response_format == wanted.response_format
    assert (turn.result.kind, turn.result.answer) == (turn_pb2.REPLY_KIND_REPLY, "{}")


OTHERS = {
    "persona": settings_pb2.RunSettings(persona="Another one."),
    "temperature": settings_pb2.RunSettings(temperature=1.5),
    "context_limit": settings_pb2.RunSettings(context_limit=2048),
    "calls": settings_pb2.RunSettings(calls=settings_pb2.CALL_STYLE_NATIVE),
    "yolo": settings_pb2.RunSettings(yolo=True),
    "model": settings_pb2.RunSettings(model="other"),
}


@pytest.mark.parametrize("name", OTHERS)
async def test_settings_for_a_run_that_has_others_are_refused_and_nothing_is_queued(services, name):
    # C51: they would be ignored
    services.script(DONE, DONE)
    services.script(DONE, name="other")
    await services.client.set_model(model_pb2.Model(alias="other", vendor_model="scripted/other"))
    await services.until(await services.act())
    settings = settings_pb2.LoopSettings(model="m")
    with pytest.raises(TurnwrightError) as refused:
        await services.client.act(services.project, "More.", run="r", settings=settings, run_settings=OTHERS[name])
    assert (refused.value.reason, name in refused.value.message) == (Reason.INVALID_FIELD, True)
    assert (await services.client.get_run(services.project, "r")).run.loops_queued == 0
    same = settings_pb2.RunSettings(model="m")
    queued = await services.client.act(services.project, "More.", run="r", settings=settings, run_settings=same)
    assert (await services.until(queued)).status == 200


async def test_a_vendor_that_is_gone_when_the_loop_begins_is_named(services, monkeypatch):
    # OM11
    monkeypatch.setenv("MISTRAL_API_KEY", "k")
    await services.restart("provider")
    services.script(DONE)
    await services.until(await services.act())
    model = settings_pb2.RunSettingsPatch(model="mistral/x")
    await services.client.configure_run(services.project, "r", model)
    await services.stop("provider")
    monkeypatch.delenv("MISTRAL_API_KEY")
    queued = await services.act("More.", model="mistral/x")
    await services.start("provider")
    loop = await services.until(queued)
    assert (loop.status, loop.reason.partition(":")[0]) == (500, "vendor_not_configured")
    assert "MISTRAL_API_KEY" in loop.reason


async def test_what_really_ran_stands_with_the_reply(services):
    # OM13
    services.script(DONE)
    await services.until(await services.act())
    await services.client.delete_model("m")

    [turn] = (await services.client.get_run(services.project, "r", turns_max=1)).turns
    assert (turn.request.model, turn.request.vendor_model, turn.result.vendor_model) == ("m", "scripted/m", "m")
    reply = await services.entry("assistant://1")
    assert '"vendor_model": "m"' in reply.attributes_json.replace('":"', '": "')


async def test_a_reply_keeps_where_it_ran_wherever_its_run_goes(services):
    """Of a reply that was cut short too, in the list of messages, and in a run that was imported elsewhere."""
    services.script(f"<get path='a.txt'/>{GO_ON}", DONE)
    await services.until(await services.act())
    where = turn_pb2.RunPath(cwd=str(services.files), root=str(services.files))
    turns = (await services.client.get_run(services.project, "r", turns_max=9)).turns
    assert [turn.result.path for turn in turns] == [where] * 2
    assert json.loads((await services.entry("assistant://2")).attributes_json)["call"]["path"] == {
        "cwd": where.cwd,
        "root": where.root,
    }
    other = await services.client.init_project(str(services.files.parent))
    document = services.client.export_run(services.project, "r")
    await services.client.import_run(other.name, document)
    for project in (services.project, other.name):
        replies = [one.result async for one in services.client.list_messages(project, "r") if one.HasField("result")]
        assert [reply.path for reply in replies] == [where] * 2


async def test_a_reply_that_is_cut_short_keeps_where_it_ran(tmp_path, monkeypatch):
    begun = Answer(
        chunks=events(delta("tiny", role="assistant"), delta("tiny", content="Half a"), done=False), end="hang"
    )
    async with SseServer([begun], models=["tiny"]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/tiny")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            queued = await services.act()
            async with Watcher(services) as watcher:
                await watcher.until(lambda event: "Half" in partial_of(event))
                await services.client.abort(services.project, "r")
                await services.until(queued)
            [turn] = (await services.client.get_run(services.project, "r", turns_max=1)).turns
            assert (await services.entry("assistant://1")).body == "Half a"
            where = str(services.files)
    assert (turn.result.finish, turn.result.path) == ("aborted", turn_pb2.RunPath(cwd=where, root=where))


def partial_of(event) -> str:
    """What an event says of the text of the reply that streams."""
    deltas = "".join(one.append_content for one in event.stream_delta.deltas)
    return event.snapshot.partial.content + deltas


async def test_the_model_that_answered_is_recorded_beside_the_one_that_was_asked(tmp_path, monkeypatch):
    # OM13: a vendor may answer with another model than the turn's request names
    ran = "tiny-2031-02-03"
    answer = Answer(chunks=events(delta(ran, content=DONE), delta(ran, "stop"), usage_chunk(10, 4, ran)))
    async with SseServer([answer], models=["tiny"]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/tiny")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            await services.until(await services.act())
            [turn] = (await services.client.get_run(services.project, "r", turns_max=1)).turns
            reply = json.loads((await services.entry("assistant://1")).attributes_json)
    assert (turn.request.vendor_model, turn.result.vendor_model) == ("openai/tiny", ran)
    assert reply["call"]["vendor_model"] == ran


@pytest.mark.parametrize("assembly", [settings_pb2.ASSEMBLY_PACKET, settings_pb2.ASSEMBLY_TRANSCRIPT])
async def test_the_model_reads_several_messages_of_the_user_in_one_turn(tmp_path, monkeypatch, assembly):
    # OM08
    async with SseServer(replies=["On.", DONE], models=["tiny"]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/tiny")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            await services.until(await services.act(assembly=assembly))
            for text in ("STEER-ONE", "STEER-TWO"):
                await services.client.inject_message(services.project, "r", text)
            await services.until(await services.act("Go on."))
        sent = [str(request.json["messages"]) for request in server.requests if request.method == "POST"]
    words = ("STEER-ONE", "STEER-TWO", "Go on.")
    assert [[sent[turn].count(word) for word in words] for turn in (0, 1)] == [[0, 0, 0], [1, 1, 1]]
    assert sent[1].index("STEER-ONE") < sent[1].index("STEER-TWO")


async def test_several_messages_of_the_user_share_a_turn_and_stand_in_their_order(services):
    # OM08, OM15: in the order of their positions, which no clock decides.
    services.script('<update status="102">On.</update>', DONE)
    await services.until(await services.act())
    told = [await services.client.inject_message(services.project, "r", text) for text in ("One.", "Two.")]
    await services.until(await services.act("Go on."))

    entries = [await services.entry(one.path) for one in told]
    assert len({entry.turn for entry in entries}) == 1
    assert entries[0].position < entries[1].position


async def test_a_message_is_appended_once_and_its_id_stands_for_it_alone(services):
    # OM16
    services.script(DONE)
    await services.until(await services.act())
    first = await services.client.inject_message(services.project, "r", "Mind the gap.", request_id="1")
    again = await services.client.inject_message(services.project, "r", "Mind the gap.", request_id="1")
    with pytest.raises(TurnwrightError) as conflict:
        await services.client.inject_message(services.project, "r", "Something else.", request_id="1")

    assert first.path == again.path
    assert conflict.value.reason is Reason.REQUEST_ID_REUSED


async def test_a_notice_for_people_enters_no_prompt(tmp_path, monkeypatch):
    # OM33
    async with SseServer(replies=['<update status="102">On.</update>', DONE, DONE], models=["tiny"]) as server:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/tiny")
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        async with running(tmp_path) as services:
            await services.until(await services.act())
            notice = event_pb2.Notice(text="Only for people to see.", source="ci")
            await services.client.notify(services.project, "r", notice)
            await services.until(await services.act("Go on."))
            prompts = [request.body for request in server.requests if request.method == "POST"]

    assert len(prompts) == 3
    assert b"Go on." in prompts[-1]
    assert not any(b"Only for people" in prompt for prompt in prompts)
