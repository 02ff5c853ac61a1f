"""Tools that a client executes: calls wait for a result, outlive everybody, and are not for people."""

from __future__ import annotations

import json

import pytest
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright.types.v1 import settings_pb2

from contract.executor.proposing import DONE, GO_ON, listed
from contract.executor.sessions import say, state_of, until_state
from contract.executor.shared_stack import ON_BOTH_DATABASES, SHARED_SERVICES
from turnwright_client.sessions import user_message
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_BOTH_DATABASES
services = SHARED_SERVICES

TOOL = settings_pb2.ToolDescription(
    name="open_file",
    description="Opens a file in the editor.",
    parameters=json.dumps({"type": "object", "properties": {"file": {"type": "string"}}}),
)
ASKED = '<open_file file="a.txt"/>'
CALL = "log://turn_1/open_file/a.txt"


def settings(*tools, **more) -> settings_pb2.LoopSettings:
    return settings_pb2.LoopSettings(model="m", mode=settings_pb2.MODE_ACT, client_tools=tools or [TOOL], **more)


async def waiting(services, **more) -> None:
    services.script(f"{ASKED}{GO_ON}", DONE)
    await say(services, "Open it.", settings(**more), until="waiting_ide")


async def refused(services, **kind) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as error:
        await services.client.submit(services.project, "r", **kind)
    return error.value


async def test_a_call_waits_for_its_client_whatever_restarts_and_its_result_is_read(own_services):
    # RS04, RS06, RS08: waiting_ide is reachable, with yolo too, and survives
    await waiting(own_services, yolo=True)
    assert await listed(own_services.client, own_services.project) == []
    [proposal] = own_services.view().proposals.values()
    assert json.loads(proposal.client_tool.arguments_json) == {"file": "a.txt"}
    await own_services.restart("executor")
    await own_services.restart("store")
    assert await state_of(own_services) == {"waiting_ide"}
    result = pb.IdeToolResult(call=proposal.path, content="It is open.")
    await say(own_services, "", ide_tool_result=result, until="completed")
    record = await own_services.entry(proposal.path)
    assert (record.body, record.status) == ("It is open.", 200)
    events = [entry async for entry in own_services.client.list_entries(own_services.project, "r", "event://**")]
    assert [entry.path for entry in events] == [f"event://turn_1/ide_callback/{proposal.path[len('log://turn_1/') :]}"]


async def test_a_tool_that_failed_is_a_failed_command(services):
    await waiting(services)
    [proposal] = services.view().proposals.values()
    result = pb.IdeToolResult(call=proposal.path, content="No such file.", failed=True)
    await say(services, "", ide_tool_result=result)
    record = await services.entry(proposal.path)
    assert (record.body, record.outcome) == ("No such file.", "client_tool:500")


async def test_only_the_client_goes_on_and_only_once(services):
    # RS07; bad input: a result for an unknown call, a result twice, a decision of people
    await waiting(services)
    [proposal] = services.view().proposals.values()
    for kind in (
        {"approve_tools": pb.ApproveTools(calls=[proposal.path])},
        {"reject_tools": pb.RejectTools(calls=[proposal.path])},
    ):
        error = await refused(services, **kind)
        assert (error.reason, error.metadata["state"]) == (Reason.COMMAND_GATED, "waiting_ide")
    unknown = {"ide_tool_result": pb.IdeToolResult(call="log://turn_1/x/y", content="x")}
    assert (await refused(services, **unknown)).reason is Reason.ENTRY_NOT_FOUND
    long = {"ide_tool_result": pb.IdeToolResult(call=proposal.path, content="x" * (512 * 1024 + 1))}
    assert (await refused(services, **long)).reason is Reason.LIMIT_EXCEEDED
    with pytest.raises(TurnwrightError):
        await services.client.resolve(services.project, "r", proposal.path, accept=True)
    result = pb.IdeToolResult(call=proposal.path, content="It is open.")
    once = await services.client.submit(services.project, "r", "1", ide_tool_result=result)
    again = await services.client.submit(services.project, "r", "1", ide_tool_result=result)
    assert (once.duplicate, again.duplicate) == (False, True)
    await until_state(services, "completed")
    error = await refused(services, ide_tool_result=result)
    assert (error.reason, error.metadata["state"]) == (Reason.COMMAND_GATED, "completed")


async def test_an_abort_ends_the_wait(services):
    # RS06
    await waiting(services)
    await say(services, "", abort=pb.AbortSession(), until="idle")
    assert await state_of(services) == {"idle"}


@pytest.mark.parametrize(
    "tool",
    [
        settings_pb2.ToolDescription(name="Open", description="x"),
        settings_pb2.ToolDescription(name="open", description=" "),
        settings_pb2.ToolDescription(name="open", description="x", parameters="[]"),
    ],
)
async def test_a_tool_that_no_model_could_be_offered_is_refused(services, tool):
    kind = {"user_message": user_message("Open it.", settings=settings(tool))}
    assert (await refused(services, **kind)).reason is Reason.INVALID_FIELD


async def test_a_name_that_is_taken_ends_the_loop(services):
    taken = settings_pb2.ToolDescription(name="sh", description="Runs a command.")
    services.script(DONE)
    await say(services, "Open it.", settings(taken), until="error")
    run = (await services.client.get_run(services.project, "r")).run
    assert "There is a tool sh already" in run.loop.reason
