"""Edits of messages as commands of a chat: views change, bodies stay, files are left alone."""

from __future__ import annotations

import json

import pytest
from turnwright.entries.v1 import entry_service_pb2
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright.types.v1 import settings_pb2

from contract.executor.proposing import DONE, GO_ON, PROPOSAL, SET
from contract.executor.sessions import ACT, ASKING, say, state_of, until_state
from contract.executor.shared_stack import ON_BOTH_DATABASES, SHARED_SERVICES
from turnwright_client.sessions import user_message
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_BOTH_DATABASES
services = SHARED_SERVICES

FIRST = '<set path="known://one">1</set><update status="200">First.</update>'
SECOND = '<set path="known://one">2</set><set path="known://two">2</set><update status="200">Second.</update>'


async def two_loops(services) -> None:
    services.script(FIRST)
    await say(services, "One.", ACT)
    services.script(SECOND)
    await say(services, "Two.")
    services.script("Third.")


async def messages(services, run: str = "r") -> list[str]:
    return [message.path async for message in services.client.list_messages(services.project, run)]


async def texts(services, run: str = "r") -> list[str]:
    """What the user and the model have written, in order."""
    return [
        (await services.entry(message.path, run)).body
        async for message in services.client.list_messages(services.project, run)
        if message.path.startswith(("prompt://", "assistant://"))
    ]


async def bodies(services, run: str = "r") -> dict[str, str]:
    found = services.client.list_entries(services.project, run, "known://**")
    return {entry.path: entry.body async for entry in found}


async def attributes(services, path: str) -> dict:
    return json.loads((await services.entry(path)).attributes_json)


async def past_bodies(services, path: str) -> list[str]:
    """What an entry has said, the latest first."""
    wanted = entry_service_pb2.ListEntryHistoryRequest(project=services.project, run="r", path=path)
    history = await services.client._peer.call(services.client._entries.ListEntryHistory, wanted)
    return [one.entry.body for one in history.intervals]


async def revision(services, run: str = "r") -> int:
    """The latest revision that a client has heard of."""
    listed = [entry.revision async for entry in services.client.list_entries(services.project, run)]
    return max(listed)


async def refused(services, **kind) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as told:
        await services.client.submit(services.project, "r", **kind)
    return told.value


async def test_a_rewritten_message_is_read_as_it_is_now_and_was_what_it_was(services):
    # RC03, OM14
    await two_loops(services)
    await services.client.submit(
        services.project, "r", update_message=pb.UpdateMessage(message_id="prompt://1", content="Uno.")
    )
    assert (await texts(services))[0] == "Uno."
    assert "One." in await past_bodies(services, "prompt://1")


async def test_a_rewritten_reply_loses_what_its_vendor_has_signed(services):
    # OM14: the signatures were given for another text
    services.script(f"=== thinking signature=c2lnbmVk ===\nWhere?\n=== text ===\n{FIRST}")
    await say(services, "One.", ACT)
    assert "thinking" in await attributes(services, "assistant://1")
    rewritten = pb.UpdateMessage(message_id="assistant://1", content="Uno.")
    await services.client.submit(services.project, "r", update_message=rewritten)
    assert "thinking" not in await attributes(services, "assistant://1")
    assert FIRST in await past_bodies(services, "assistant://1")


async def test_a_reply_goes_with_the_results_of_its_commands(services):
    # RC03
    await two_loops(services)
    answer = await services.client.submit(
        services.project, "r", remove_message=pb.RemoveMessage(message_id="assistant://2")
    )
    left = await messages(services)
    assert not [path for path in left if "turn_2" in path or path == "assistant://2"]
    assert "prompt://2" in left
    assert answer.rewound.entries_closed >= 3
    # The answer says at which revision the list stands now, where nothing that is left does.
    place = left.index("prompt://2")
    command = pb.TruncateMessages(from_index=place, expected_revision=answer.run.revision)
    await services.client.submit(services.project, "r", truncate_messages=command)
    assert "prompt://2" not in await messages(services)


async def test_truncation_takes_the_run_back_to_the_turn_before_and_leaves_files_alone(services):
    # RC04; C49
    services.script(FIRST)
    await say(services, "One.", ACT)
    services.script(f"{SET}{SECOND}")
    await say(services, "Two.", ACT)
    before = await messages(services)
    place = before.index("prompt://2")
    command = pb.TruncateMessages(from_index=place, expected_revision=await revision(services))
    answer = await services.client.submit(services.project, "r", truncate_messages=command)
    assert answer.rewound.files_kept
    assert (services.files / "a.txt").read_text() == "new\n"
    after = await messages(services)
    assert after[:place] == before[:place]
    [told] = after[place:]
    notice = await services.entry(told)
    assert notice.body == (
        "The conversation was taken back to before prompt://2. Files of the project were not changed back."
    )
    assert await bodies(services) == {"known://one": "1"}


async def test_what_was_taken_away_comes_back(services):
    # RC08: the history of a run is kept, and shown again by the number of a turn
    await two_loops(services)
    before, was = await messages(services), await bodies(services)
    command = pb.TruncateMessages(from_index=0, expected_revision=await revision(services))
    await services.client.submit(services.project, "r", truncate_messages=command)
    assert await texts(services) == []
    assert await bodies(services) == {}
    await services.client.submit(services.project, "r", rewind_to_turn=pb.RewindToTurn(turn=2))
    assert (await messages(services))[: len(before)] == before
    assert await bodies(services) == was


async def test_an_edit_before_the_place_survives_the_truncation(services):
    await two_loops(services)
    update = pb.UpdateMessage(message_id="prompt://1", content="Uno.")
    await services.client.submit(services.project, "r", update_message=update)
    place = (await messages(services)).index("prompt://2")
    command = pb.TruncateMessages(from_index=place, expected_revision=await revision(services))
    await services.client.submit(services.project, "r", truncate_messages=command)
    assert (await texts(services))[0] == "Uno."


async def test_an_index_behind_the_end_does_nothing_and_a_stale_one_is_refused(services):
    # RC04; C40
    await two_loops(services)
    before, moment = await messages(services), await revision(services)
    behind = pb.TruncateMessages(from_index=len(before), expected_revision=moment)
    await services.client.submit(services.project, "r", truncate_messages=behind)
    assert await messages(services) == before
    negative = pb.TruncateMessages(from_index=-1, expected_revision=moment)
    assert (await refused(services, truncate_messages=negative)).reason is Reason.INVALID_FIELD
    update = pb.UpdateMessage(message_id="prompt://1", content="Uno.")
    await services.client.submit(services.project, "r", update_message=update)
    stale = pb.TruncateMessages(from_index=2, expected_revision=moment)
    assert (await refused(services, truncate_messages=stale)).reason is Reason.REVISION_CONFLICT
    ahead = pb.TruncateMessages(from_index=2, expected_revision=10**9)
    assert (await refused(services, truncate_messages=ahead)).reason is Reason.REVISION_CONFLICT
    assert await messages(services) == before


async def test_a_message_takes_the_place_of_another_one(services):
    # RC05, RS02
    await two_loops(services)
    place = (await messages(services)).index("prompt://2")
    command = pb.RetryFromIndex(
        from_index=place, expected_revision=await revision(services), message=user_message("Other.")
    )
    answer = await services.client.submit(services.project, "r", retry_from_index=command)
    await until_state(services, "idle", cursor=answer.event_cursor)
    assert await texts(services) == ["One.", FIRST, "Other.", "Third."]


async def test_the_latest_prompt_is_sent_again(services):
    # RC05
    await two_loops(services)
    answer = await services.client.submit(services.project, "r", regenerate=pb.Regenerate())
    assert answer.loop.prompt == "Two."
    await until_state(services, "idle", cursor=answer.event_cursor)
    assert await texts(services) == ["One.", FIRST, "Two.", "Third."]


@pytest.mark.parametrize(
    ("command", "left"),
    [
        ({"update_message": pb.UpdateMessage(message_id="prompt://1", content="Uno.", regenerate=True)}, ["Uno."]),
        ({"remove_message": pb.RemoveMessage(message_id="assistant://2", regenerate=True)}, ["One.", FIRST, "Two."]),
    ],
)
async def test_an_edit_may_send_the_prompt_again(services, command, left):
    # RC03
    await two_loops(services)
    answer = await services.client.submit(services.project, "r", **command)
    await until_state(services, "idle", cursor=answer.event_cursor)
    assert await texts(services) == [*left, "Third."]


EDITS = {
    "words behind": ("Fix it", "Fix it, and add docs"),
    "letters behind": ("Go", "Google it"),
    "words before": ("Fix it", "Please fix it"),
    "less": ("Fix it, and add docs", "Fix it"),
    "other words": ("Fix it", "Leave it"),
}
JSON = settings_pb2.ResponseFormat(schema='{"type": "object"}')


async def edit_and_send(services, content: str, way: str):
    """Edit the first prompt and send it again, at once or by another command."""
    update = pb.UpdateMessage(message_id="prompt://1", content=content, regenerate=way == "at once")
    await services.client.submit(services.project, "r", update_message=update)
    if way == "regenerate":
        await services.client.submit(services.project, "r", regenerate=pb.Regenerate())
    if way == "remove the reply":
        remove = pb.RemoveMessage(message_id="assistant://1", regenerate=True)
        await services.client.submit(services.project, "r", remove_message=remove)
    await services.client.wait_loop(services.project, "r", 2)


@pytest.mark.parametrize("way", ["at once", "regenerate", "remove the reply"])
@pytest.mark.parametrize("form", [None, JSON], ids=["free", "json"])
@pytest.mark.parametrize("edit", EDITS)
async def test_an_edited_prompt_is_sent_as_it_was_edited(services, edit, form, way):
    # RC03, RC05: what a response format appends is no part of what the user wrote
    before, after = EDITS[edit]
    services.script("{}", "{}")
    settings = settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT, response_format=form)
    await say(services, before, settings)
    appended = (await services.entry("prompt://1")).body.removeprefix(before)
    assert bool(appended) == (form is not None)
    await edit_and_send(services, after + appended if edit == "words before" else after, way)
    loop = await services.client.get_loop(services.project, "r", 2)
    body = (await services.entry(f"prompt://{loop.first_turn}")).body
    assert (loop.prompt, body) == (after, after + appended)
    assert loop.settings.HasField("response_format") == (form is not None)
    packet = await services.client.read_packet(services.project, "r", loop.first_turn)
    sent = "".join(text for _, pieces in packet for text in pieces)
    assert (after in sent, sent.count("is JSON and nothing else")) == (True, int(form is not None))


@pytest.mark.parametrize("way", ["regenerate", "remove the reply"])
async def test_an_edit_that_waits_is_sent_too(services, way):
    # RC03, RC05; C48
    services.script(f"{SET}{GO_ON}")
    await say(services, "Fix it", ASKING, until="paused")
    services.script(DONE, DONE)
    update = pb.UpdateMessage(message_id="prompt://1", content="Fix it, and add docs")
    await services.client.submit(services.project, "r", update_message=update)
    kind = {"regenerate": pb.Regenerate()}
    if way == "remove the reply":
        kind = {"remove_message": pb.RemoveMessage(message_id="assistant://1", regenerate=True)}
    again = await services.client.submit(services.project, "r", **kind)
    assert again.loop.prompt == "Fix it, and add docs"
    await services.client.abort(services.project, "r")
    loop = await services.client.wait_loop(services.project, "r", again.loop.sequence)
    assert (await services.entry(f"prompt://{loop.first_turn}")).body == "Fix it, and add docs"


async def test_a_branch_ends_with_a_message_of_its_source(services):
    # RC08
    await two_loops(services)
    branch = pb.BranchFromChat(source="r", up_to_message_id="assistant://1")
    answer = await services.client.submit(services.project, "b", branch_from_chat=branch)
    assert answer.run.run == "b"
    assert await texts(services, "b") == ["One.", FIRST]
    assert await texts(services) == ["One.", FIRST, "Two.", SECOND]
    assert await bodies(services, "b") == {}
    unknown = pb.BranchFromChat(source="r", up_to_message_id="assistant://9")
    with pytest.raises(TurnwrightError) as told:
        await services.client.submit(services.project, "c", branch_from_chat=unknown)
    assert told.value.reason is Reason.ENTRY_NOT_FOUND
    assert "r has no message" in told.value.message
    assert [run.run async for run in services.client.list_runs(services.project)] == ["b", "r"]


async def test_edits_and_messages_wait_in_one_order(own_services):
    # RS07, RC11; C48: the edit is carried out when the loop before it has ended, before the one behind it begins
    own_services.script(f"{SET}{GO_ON}", DONE)
    own_services.script("Two is done.", name="n")
    await say(own_services, "One.", ASKING, until="paused")
    other = settings_pb2.LoopSettings(model="scripted/n", mode=settings_pb2.MODE_ACT)
    queued = await own_services.client.submit(
        own_services.project, "r", "q1", user_message=user_message("Two.", settings=other)
    )
    remove = pb.RemoveMessage(message_id="prompt://1")
    edit = await own_services.client.submit(own_services.project, "r", "q2", remove_message=remove)
    again = await own_services.client.submit(own_services.project, "r", "q3", regenerate=pb.Regenerate())
    assert (queued.queued, edit.queued, again.queued) == (True, True, True)
    listed = await own_services.client.list_commands(own_services.project, "r")
    assert [(one.kind, one.command_id, one.loop, one.preview) for one in listed] == [
        (pb.QUEUED_COMMAND_KIND_USER_MESSAGE, "q1", 2, "Two."),
        (pb.QUEUED_COMMAND_KIND_REMOVE_MESSAGE, "q2", 0, "prompt://1"),
        (pb.QUEUED_COMMAND_KIND_REGENERATE, "q3", 3, ""),
    ]
    assert "prompt://1" in await messages(own_services)
    await own_services.restart("executor")
    await own_services.restart("store")
    await own_services.client.submit(own_services.project, "r", approve_tools=pb.ApproveTools(calls=[PROPOSAL]))
    await until_state(own_services, "idle")
    # The removed prompt was that of the first loop; the second loop was sent again in the place of its first answer.
    assert await texts(own_services) == [f"{SET}{GO_ON}", DONE, "Two.", "Two is done."]
    assert await own_services.client.list_commands(own_services.project, "r") == []


async def not_cancelled(services, command_id: str, reason: Reason) -> None:
    with pytest.raises(TurnwrightError) as told:
        await services.client.cancel_command(services.project, "r", command_id)
    assert told.value.reason is reason


async def test_a_queued_command_can_be_cancelled_and_one_too_many_is_refused(services):
    # RC11
    services.script(f"{SET}{GO_ON}", DONE)
    await say(services, "One.", ASKING, until="paused")
    for number in range(98):
        await services.client.submit(services.project, "r", f"m{number}", user_message=user_message(f"{number}."))
    remove = pb.RemoveMessage(message_id="prompt://1")
    await services.client.submit(services.project, "r", "edit", remove_message=remove)
    await services.client.submit(services.project, "r", "again", regenerate=pb.Regenerate())
    full = await refused(services, user_message=user_message("One more."))
    assert (full.reason, full.metadata["limit"]) == (Reason.QUEUE_FULL, "100")
    assert (await refused(services, remove_message=remove)).reason is Reason.QUEUE_FULL
    await services.client.submit(services.project, "r", set_draft=pb.SetDraft(text="Later."))
    # The second loop of another run: its command is not the one at the same place here.
    await services.client.act(services.project, "One.", run="s", settings=ASKING)
    await services.client.submit(services.project, "s", "elsewhere", user_message=user_message("Two.", settings=ACT))
    await not_cancelled(services, "elsewhere", Reason.ENTRY_NOT_FOUND)
    for name in ("m0", "edit", "again"):
        await services.client.cancel_command(services.project, "r", name)
    assert len(await services.client.list_commands(services.project, "r")) == 97
    await not_cancelled(services, "m0", Reason.ENTRY_NOT_FOUND)
    await not_cancelled(services, "", Reason.INVALID_FIELD)
    # Decisions and aborts never wait.
    await services.client.submit(services.project, "r", abort=pb.AbortSession())
    assert await state_of(services)


async def test_events_and_plans_cannot_be_edited(services):
    services.script(f"{SET}{GO_ON}", DONE)
    await say(services, "One.", ASKING, until="paused")
    await say(services, "", approve_tools=pb.ApproveTools(calls=[PROPOSAL]))
    [event] = [path for path in await messages(services) if path.startswith("event://")]
    for kind in (
        {"update_message": pb.UpdateMessage(message_id=event, content="No.")},
        {"remove_message": pb.RemoveMessage(message_id=event)},
    ):
        assert (await refused(services, **kind)).reason is Reason.INVALID_FIELD
    missing = {"remove_message": pb.RemoveMessage(message_id="log://turn_9/set/a")}
    assert (await refused(services, **missing)).reason is Reason.ENTRY_NOT_FOUND
    empty = {"update_message": pb.UpdateMessage(message_id="prompt://1", content=" ")}
    assert (await refused(services, **empty)).reason is Reason.INVALID_FIELD
