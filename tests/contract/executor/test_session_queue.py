"""The ids of commands, priority, drafts and decisions; bad input; two executors and crashes."""

from __future__ import annotations

import base64
import itertools

import pytest
from turnwright.types.v1 import message_pb2, settings_pb2
from turnwright.types.v1 import session_command_pb2 as pb

from contract.executor.proposing import ASK, DONE, GO_ON, PROPOSAL, QUESTION, SET, person
from contract.executor.sessions import ACT, ASKING, say, state_of, told, until_state
from contract.executor.shared_stack import ON_BOTH_DATABASES, SHARED_SERVICES
from services import running
from sse_server import SseServer
from turnwright_client.sessions import user_message
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import IMAGE_BYTES_MAX

pytestmark = ON_BOTH_DATABASES
services = SHARED_SERVICES


async def refused(services, run: str = "r", command_id: str = "", **kind) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as error:
        await services.client.submit(services.project, run, command_id, **kind)
    return error.value


async def loops(services, run: str = "r") -> list[str]:
    answer = await services.client.get_run(services.project, run)
    return [loop.prompt for loop in reversed(answer.loops)]


async def test_a_new_run_is_idle_and_says_nothing_twice(services):
    # RS01, RS09
    await services.client.create_run(services.project, "r", settings_pb2.RunSettings(model="m"))
    assert await state_of(services) == {"idle"}
    services.script("Just text.")
    await say(services, "One.")
    services.script(DONE)
    await say(services, "Two.")
    states = told(services)
    assert states[0] == "generating"
    assert all(one != other for one, other in itertools.pairwise(states))


async def test_an_id_is_accepted_once_and_a_refused_one_is_free(own_services):
    # RC10: one space of ids for all commands of a caller, kept by the store
    own_services.script(DONE)
    one = await own_services.client.submit(
        own_services.project, "r", "1", user_message=user_message("One.", settings=ACT)
    )
    await until_state(own_services, "completed", cursor=one.event_cursor)
    await own_services.restart("executor")
    await own_services.restart("store")
    again = await own_services.client.submit(
        own_services.project, "r", "1", user_message=user_message("One.", settings=ACT)
    )
    assert (one.duplicate, again.duplicate, again.loop) == (False, True, one.loop)
    other = await refused(own_services, command_id="1", set_draft=pb.SetDraft(text="x"))
    assert other.reason is Reason.REQUEST_ID_REUSED
    gated = await refused(own_services, command_id="2", approve_tools=pb.ApproveTools(calls=[PROPOSAL]))
    assert (gated.reason, gated.metadata["state"]) == (Reason.COMMAND_GATED, "completed")
    free = await own_services.client.submit(own_services.project, "r", "2", set_draft=pb.SetDraft(text="x"))
    assert not free.duplicate
    async with person(own_services, "bob") as bob:
        his = await bob.submit(own_services.project, "r", "2", set_draft=pb.SetDraft())
    assert not his.duplicate
    assert await loops(own_services) == ["One."]


async def test_priority_messages_are_read_in_the_next_turn_in_their_order(services):
    # RC12; C48: they join the running loop, and what waits stays behind
    services.script(f"{SET}{GO_ON}", DONE)
    await say(services, "One.", ASKING, until="paused")
    await services.client.submit(services.project, "r", user_message=user_message("Two."))
    for text in ("Mind the tests.", "And the docs."):
        message = user_message(text, priority=True)
        answer = await services.client.submit(services.project, "r", user_message=message)
        assert not answer.HasField("loop")
    await services.client.submit(services.project, "r", approve_tools=pb.ApproveTools(calls=[PROPOSAL]))
    # The next loop repeats the edit, which fits no more.
    await until_state(services, "completed", "error")
    found = [message async for message in services.client.list_messages(services.project, "r")]
    said = [(message.turn, message.message.parts[0].text) for message in found if "/inject/" in message.path]
    assert [text for _, text in said] == ["Mind the tests.", "And the docs."]
    assert [one.preview for one in await services.client.list_commands(services.project, "r")] in ([], ["Two."])


async def test_a_priority_message_of_a_run_at_rest_begins_a_loop(services):
    services.script(DONE)
    await say(services, "One.", ACT)
    answer = await say(services, "", user_message=user_message("Two.", priority=True))
    assert answer.loop.prompt == "Two."
    image = message_pb2.Part(image=message_pb2.Image(path="a.png"))
    services.script(f"{SET}{GO_ON}", DONE)
    await say(services, "Three.", ASKING, until="paused")
    shown = pb.UserMessage(parts=[message_pb2.Part(text="Look."), image], priority=True)
    assert (await refused(services, user_message=shown)).reason is Reason.INVALID_FIELD


async def test_a_message_answers_the_question_that_waits(services):
    # RS04, RS06
    services.script(f"{ASK}{GO_ON}", DONE)
    await say(services, "One.", ASKING, until="waiting_user_input")
    assert await state_of(services) == {"waiting_user_input"}
    await say(services, "PostgreSQL.", until="completed")
    assert "PostgreSQL." in (await services.entry(QUESTION)).body
    assert await loops(services) == ["One."]


def picture(data: bytes) -> message_pb2.Part:
    return message_pb2.Part(image=message_pb2.Image(data=data, mime="image/png"))


async def test_a_message_brings_images_along_or_names_them(services):
    # RC01
    data = b"\x89PNG\r\n\x1a\n" + bytes(300)
    (services.files / "a.png").write_bytes(data)
    services.script(DONE)
    shown = pb.UserMessage(parts=[part("Look."), picture(data), IMAGE, picture(data + b"2")], settings=ACT)
    answer = await say(services, "", user_message=shown)
    assert [path.partition("/given_")[0] for path in answer.loop.settings.images] == ["image:/", "a.png", "image:/"]
    kept = [base64.b64decode((await services.entry(f"image://loop_1/{number}")).body) for number in (1, 2, 3)]
    assert kept == [data, data, data + b"2"]
    too_large = pb.UserMessage(parts=[part("Look."), picture(bytes(IMAGE_BYTES_MAX + 1))], settings=ACT)
    assert (await refused(services, user_message=too_large)).reason is Reason.LIMIT_EXCEEDED
    too_many = pb.UserMessage(parts=[part("Look."), *[picture(bytes(IMAGE_BYTES_MAX))] * 3], settings=ACT)
    assert (await refused(services, user_message=too_many)).reason is Reason.LIMIT_EXCEEDED
    revision = (await services.client.get_run(services.project, "r")).run.revision
    again = pb.RetryFromIndex(from_index=0, expected_revision=revision, message=shown)
    assert (await refused(services, retry_from_index=again)).reason is Reason.INVALID_FIELD


def part(text: str) -> message_pb2.Part:
    return message_pb2.Part(text=text)


IMAGE = message_pb2.Part(image=message_pb2.Image(path="a.png"))
ANSWERS = {
    "a text": pb.UserMessage(parts=[part("PostgreSQL.")]),
    "several parts": pb.UserMessage(parts=[part("PostgreSQL."), part("Or another one.")]),
    "files": pb.UserMessage(parts=[part("PostgreSQL.")], context_files=["a.txt"]),
    "priority": pb.UserMessage(parts=[part("PostgreSQL.")], priority=True),
    "priority and files": pb.UserMessage(parts=[part("PostgreSQL.")], priority=True, context_files=["a.txt"]),
    "settings": pb.UserMessage(parts=[part("PostgreSQL.")], settings=ASKING),
    "as long as an answer may be": pb.UserMessage(parts=[part("PostgreSQL.".ljust(65_536, "x"))]),
}
NO_ANSWERS = {
    "an image": (pb.UserMessage(parts=[part("This."), IMAGE]), Reason.INVALID_FIELD),
    "an image with priority": (pb.UserMessage(parts=[part("This."), IMAGE], priority=True), Reason.INVALID_FIELD),
    "blank": (pb.UserMessage(parts=[part("  ")]), Reason.INVALID_FIELD),
    "too long": (pb.UserMessage(parts=[part("x" * 65_537)]), Reason.LIMIT_EXCEEDED),
    "too long with priority": (pb.UserMessage(parts=[part("x" * 65_537)], priority=True), Reason.LIMIT_EXCEEDED),
}


@pytest.mark.parametrize("form", ANSWERS)
async def test_a_message_in_any_form_answers_the_question_that_waits(services, form):
    # RS04, RS06
    services.script(f"{ASK}{GO_ON}", DONE)
    await say(services, "One.", ASKING, until="waiting_user_input")
    await say(services, "", until="completed", user_message=ANSWERS[form])
    body = (await services.entry(QUESTION)).body
    assert ("PostgreSQL." in body, "a.txt" in body) == (True, "files" in form)
    assert await loops(services) == ["One."]


@pytest.mark.parametrize("form", NO_ANSWERS)
async def test_a_message_that_can_be_no_answer_is_refused_and_does_not_wait_behind_the_question(services, form):
    message, reason = NO_ANSWERS[form]
    services.script(f"{ASK}{GO_ON}", DONE)
    await say(services, "One.", ASKING, until="waiting_user_input")
    assert (await refused(services, user_message=message)).reason is reason
    with pytest.raises(TurnwrightError) as injected:
        await services.client.inject_message(services.project, "r", "PostgreSQL.")
    assert (injected.value.reason, QUESTION in injected.value.message) == (Reason.COMMAND_GATED, True)
    assert await loops(services) == ["One."]
    assert await state_of(services) == {"waiting_user_input"}


async def test_calls_that_are_named_are_decided_and_others_wait(services):
    # RC07: all or none of those that are named
    services.script(f"<sh>echo 1</sh><sh>echo 2</sh>{GO_ON}", DONE)
    await say(services, "One.", ASKING, until="paused")
    [first] = services.view().proposals
    mixed = pb.ApproveTools(calls=[first, "log://turn_1/sh/none"])
    assert (await refused(services, approve_tools=mixed)).reason is Reason.ENTRY_NOT_FOUND
    twice = pb.ApproveTools(calls=[first, first])
    assert (await refused(services, approve_tools=twice)).reason is Reason.INVALID_FIELD
    assert (await refused(services, approve_tools=pb.ApproveTools())).reason is Reason.INVALID_FIELD
    assert await state_of(services) == {"paused"}
    answer = await services.client.submit(services.project, "r", approve_tools=pb.ApproveTools(calls=[first]))
    await until_state(services, "paused", cursor=answer.event_cursor)
    [second] = (await services.client.get_run(services.project, "r")).proposals
    assert second != first
    rejected = pb.RejectTools(calls=[second], reason="Once is enough.")
    await say(services, "", reject_tools=rejected, until="completed")
    assert (await services.entry(second)).body == "Once is enough."


@pytest.mark.parametrize("assembly", [settings_pb2.ASSEMBLY_PACKET, settings_pb2.ASSEMBLY_TRANSCRIPT])
async def test_a_draft_is_kept_and_never_sent_to_the_model(own_database, tmp_path, monkeypatch, assembly):
    # RC09, RS08
    async with SseServer(replies=["One it is.", "Two it is."]) as vendor:
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("OPENAI_BASE_URL", vendor.url)
        # The release of a lease may be lost with the store that is restarted: then it ends by itself.
        async with running(tmp_path, lease_s=3.0) as services:
            settings = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT, assembly=assembly)
            await say(services, "One.", settings)
            await services.client.submit(services.project, "r", set_draft=pb.SetDraft(text="Not yet."))
            await services.restart("store")
            await services.restart("executor")
            assert (await services.entry("draft://main")).body == "Not yet."
            await say(services, "Two.")
            assert [b"Not yet." in request.body for request in vendor.requests] == [False, False]
            await services.client.submit(services.project, "r", set_draft=pb.SetDraft())
            await services.client.submit(services.project, "r", set_draft=pb.SetDraft())
            with pytest.raises(TurnwrightError):
                await services.entry("draft://main")


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ({}, Reason.INVALID_FIELD),
        ({"set_draft": pb.SetDraft(text="x" * 1024 * 1024)}, Reason.LIMIT_EXCEEDED),
        ({"user_message": pb.UserMessage()}, Reason.INVALID_FIELD),
        ({"user_message": pb.UserMessage(parts=[message_pb2.Part()])}, Reason.INVALID_FIELD),
        ({"user_message": user_message("x" * (1024 * 1024 + 1))}, Reason.LIMIT_EXCEEDED),
        ({"user_message": pb.UserMessage(parts=[message_pb2.Part(text="x")] * 101)}, Reason.LIMIT_EXCEEDED),
        ({"update_message": pb.UpdateMessage(message_id="prompt://9", content="x")}, Reason.ENTRY_NOT_FOUND),
        ({"update_message": pb.UpdateMessage(message_id="known://x", content="x")}, Reason.ENTRY_NOT_FOUND),
        (
            {"update_message": pb.UpdateMessage(message_id="assistant://1", content="x", regenerate=True)},
            Reason.INVALID_FIELD,
        ),
        ({"rewind_to_turn": pb.RewindToTurn(turn=9)}, Reason.TURN_NOT_FOUND),
        ({"rewind_to_turn": pb.RewindToTurn()}, Reason.TURN_NOT_FOUND),
        ({"restore_from_trajectory": pb.RestoreFromTrajectory(staged_id="x")}, Reason.ENTRY_NOT_FOUND),
        ({"set_params": pb.SetParams(patch=settings_pb2.RunSettingsPatch(temperature=3))}, Reason.INVALID_FIELD),
        ({"set_params": pb.SetParams(patch=settings_pb2.RunSettingsPatch(model="none"))}, Reason.MODEL_NOT_FOUND),
        ({"branch_from_chat": pb.BranchFromChat(source="r")}, Reason.RUN_EXISTS),
    ],
)
async def test_bad_input_is_refused_and_changes_nothing(services, kind, reason):
    services.script(DONE)
    await say(services, "One.", ACT)
    before = [(entry.path, entry.revision) async for entry in services.client.list_entries(services.project, "r")]
    assert (await refused(services, **kind)).reason is reason
    after = [(entry.path, entry.revision) async for entry in services.client.list_entries(services.project, "r")]
    assert after == before
