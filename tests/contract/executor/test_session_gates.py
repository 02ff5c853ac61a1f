"""Every command in every state of a chat: carried out, queued, or refused with the state (RS07)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright.types.v1 import settings_pb2

from contract.executor.proposing import ASK, DONE, GO_ON
from contract.executor.sessions import ACT, named, say, until_state
from turnwright_client.sessions import user_message
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio

STATES = (
    "idle", "generating", "executing_tools", "paused", "waiting_ide", "waiting_user_input", "completed", "error",
)  # fmt: skip
TOOL = settings_pb2.ToolDescription(name="open_file", description="Opens a file in the editor.")
ANYWHERE = "rrrrrrrr"
EDIT = "rqqqqqrr"
GATES = {
    "user_message": "rqqqqrrr",
    "set_params": ANYWHERE,
    "update_message": EDIT,
    "remove_message": EDIT,
    "truncate_messages": EDIT,
    "retry_from_index": EDIT,
    "abort": ANYWHERE,
    "approve_tools": "---r-r--",
    "reject_tools": "---r-r--",
    "branch_from_chat": ANYWHERE,
    "rewind_to_turn": EDIT,
    "restore_from_trajectory": EDIT,
    "set_draft": ANYWHERE,
    "regenerate": EDIT,
    "ide_tool_result": "----r---",
}
"""By state: r is carried out, q waits in the queue, - is refused."""


@pytest.fixture(autouse=True, params=["sqlite", "postgresql"])
def database(request, monkeypatch):
    """The database of the store."""
    if request.param == "postgresql":
        monkeypatch.setenv("TURNWRIGHT_DB", request.getfixturevalue("postgres_url"))


def loop(model: str, **more) -> settings_pb2.LoopSettings:
    return settings_pb2.LoopSettings(model=f"scripted/{model}", mode=settings_pb2.MODE_ACT, client_tools=[TOOL], **more)


def write_scripts(services) -> None:
    services.script(DONE)
    services.script("Just text.", name="idle")
    services.script(f"<sh>sleep 60</sh>{GO_ON}", name="executing_tools")
    services.script(f"<sh>echo one</sh>{GO_ON}", name="paused")
    services.script('<open_file path="a.txt"/>' + GO_ON, name="waiting_ide")
    services.script(f"{ASK}{GO_ON}", name="waiting_user_input")
    services.script(DONE, name="completed")
    (services.root / "generating.txt").write_text("=== reply chunk_chars=1 delay_ms=1000 ===\nA long answer.\n" * 2)


async def reach(services, state: str, run: str) -> None:
    """A run that has had one loop, and whose second one has brought it to a state."""
    await say(services, "One.", ACT, run=run)
    message = user_message("Two.", settings=loop(state, yolo=state == "executing_tools"))
    await say(services, "", until=state, run=run, user_message=message)


async def staged(services) -> str:
    """A document that can be restored."""

    async def parts() -> AsyncIterator[bytes]:
        yield b'{"id": "x", "messages": []}'

    return (await services.client.import_run(services.project, parts(), staged=True)).staged_id


async def payload(services, kind: str, run: str):
    """A command of a kind that fits the run."""
    revision = max([entry.revision async for entry in services.client.list_entries(services.project, run)])
    waiting = (await services.client.get_run(services.project, run)).proposals
    is_question = any("ask_user" in path for path in waiting)
    calls = waiting or ["log://turn_1/x"]
    return {
        "user_message": user_message("PostgreSQL."),
        "set_params": pb.SetParams(patch=settings_pb2.RunSettingsPatch(temperature=0.5)),
        "update_message": pb.UpdateMessage(message_id="prompt://1", content="Uno."),
        "remove_message": pb.RemoveMessage(message_id="prompt://1"),
        "truncate_messages": pb.TruncateMessages(from_index=0, expected_revision=revision),
        "retry_from_index": pb.RetryFromIndex(from_index=0, expected_revision=revision, message=user_message("Uno.")),
        "abort": pb.AbortSession(),
        "approve_tools": pb.ApproveTools(calls=calls, answer="PostgreSQL." if is_question else ""),
        "reject_tools": pb.RejectTools(calls=calls, reason="No."),
        "branch_from_chat": pb.BranchFromChat(source=run, up_to_message_id="prompt://1"),
        "rewind_to_turn": pb.RewindToTurn(turn=1),
        "restore_from_trajectory": pb.RestoreFromTrajectory(staged_id=await staged(services)),
        "set_draft": pb.SetDraft(text="Later."),
        "regenerate": pb.Regenerate(),
        "ide_tool_result": pb.IdeToolResult(call=calls[0], content="It is open."),
    }[kind]


async def outcome(services, kind: str, run: str, state: str) -> str:
    """What becomes of a command, by the letters of the table."""
    to = f"{run}-branch" if kind == "branch_from_chat" else run
    command = {kind: await payload(services, kind, run)}
    refusal = None
    try:
        answer = await services.client.submit(services.project, to, **command)
    except TurnwrightError as error:
        refusal = error
    if refusal is None:
        return "q" if answer.queued else "r"
    assert refusal.reason is Reason.COMMAND_GATED, (kind, state, refusal)
    assert refusal.metadata == {"run": run, "command": kind, "state": state}
    return "-"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("database", "state"),
    [
        *(("sqlite", state) for state in STATES),
        *(pytest.param("postgresql", state, marks=() if state == "paused" else pytest.mark.soak) for state in STATES),
    ],
    indirect=["database"],
)
async def test_every_command_in_a_state(services, state):
    # RS07, RC06: each command in 8 states
    write_scripts(services)
    found = {}
    for number, kind in enumerate(GATES):
        run = f"{state}-{number}".replace("_", "-")
        await reach(services, state, run)
        found[kind] = await outcome(services, kind, run, state)
    place = STATES.index(state)
    assert found == {kind: gates[place] for kind, gates in GATES.items()}


async def test_what_waits_is_done_once_the_work_before_it_has_ended(services):
    write_scripts(services)
    await reach(services, "paused", "r")
    await services.client.submit(services.project, "r", remove_message=pb.RemoveMessage(message_id="prompt://1"))
    answer = await services.client.submit(services.project, "r", abort=pb.AbortSession())
    await until_state(services, "idle", cursor=answer.event_cursor)
    paths = [message.path async for message in services.client.list_messages(services.project, "r")]
    assert "prompt://1" not in paths
    assert named((await services.client.get_run(services.project, "r")).run.state) == "idle"
