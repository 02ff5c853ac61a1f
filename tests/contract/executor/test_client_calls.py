"""Commands of clients go the way of the model's: gate, filters, dispatch, failure as data. Rows RU127, RU131, RU134."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import pytest
from turnwright.executor.v1 import control_pb2, executor_service_pb2_grpc
from turnwright.store.v1 import ledger_pb2, store_service_pb2_grpc, write_pb2
from turnwright.types.v1 import command_record_pb2
from turnwright.types.v1.stream_pb2 import STREAM_END_CANCELLED
from turnwright_values.types import Tier

from services import SECRET, running, token_for
from turnwright_core.errors import ExhaustedError, ExistsError, Reason, UnavailableError
from turnwright_kit.identity.caller import Kind
from turnwright_kit.peer import Peer

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'

GUARD = """
from turnwright_executor.hooks import ENTRY_CREATED, ENTRY_RECORDING, PROPOSAL_ACCEPTED, PROPOSAL_ACCEPTING, Command

HEARD = []


def register(registry):
    registry.filter(ENTRY_RECORDING, guard)
    registry.filter(PROPOSAL_ACCEPTING, accepting)
    for hook in (ENTRY_CREATED, PROPOSAL_ACCEPTED):
        registry.on(hook, told(hook.name))


def guard(recording, context):
    command = recording.command
    HEARD.append(("recording", context.principal, command.name))
    if command.name == "sh" and "rm " in command.attributes["command"]:
        return recording.refused("permission:403", "Nothing is removed here.")
    if command.attributes.get("path") == "b.txt":
        return recording.with_command(Command("get", {"path": "a.txt"}))
    return recording


def accepting(acceptance, proposal):
    return acceptance.vetoed("permission:403", "Not that file.") if proposal.command.body == "bad" else acceptance


def told(hook):
    return lambda event: HEARD.append((hook, getattr(event, "path", "") or event.proposal.path))
"""


async def worked(services) -> None:
    """A run that has taken a task to its end."""
    services.script(DONE, DONE)
    await services.until(await services.act())


async def listed(services, pattern):
    """The paths that match and hold something, or are records."""
    entries = services.client.list_entries(services.project, "r", pattern)
    return [one.path async for one in entries if one.body or one.path.startswith("log://")]


async def pid_in(services):
    file = services.files / "pid"
    return file.exists() and file.read_text().strip()


async def until(condition):
    """What the condition comes to; a test's own limit ends the wait."""
    while not (found := await condition()):  # noqa: ASYNC110 - it looks from outside, where nobody tells
        await asyncio.sleep(0.02)
    return found


async def test_a_filter_refuses_a_command_of_a_client_which_is_stored_and_never_dispatched(plugin, tmp_path) -> None:
    # RU127, RU131, RU155
    async with running(tmp_path, hooks=plugin("guard_of_calls", GUARD)) as services:
        (services.files / "keep").write_text("x")
        await worked(services)
        call = services.client.call_tool
        refused = await call(services.project, "r", "sh", {"command": "rm keep"})
        assert (refused.status, refused.outcome, refused.body) == (403, "permission:403", "Nothing is removed here.")
        assert (services.files / "keep").exists()
    heard = sys.modules["guard_of_calls"].HEARD
    assert ("recording", "", "update") in heard
    asked = [principal for what, principal, *tool in heard if what == "recording" and tool == ["sh"]]
    assert len(asked) == 1
    assert asked[0]


async def test_a_filter_gives_a_command_of_a_client_another_form_which_a_repeated_call_finds(plugin, tmp_path) -> None:
    # RU127, RU131
    async with running(tmp_path, hooks=plugin("guard_of_forms", GUARD)) as services:
        (services.files / "a.txt").write_text("text of a")
        await worked(services)
        call = services.client.call_tool
        record = await call(services.project, "r", "get", {"path": "b.txt"}, request_id="1")
        again = await call(services.project, "r", "get", {"path": "b.txt"}, request_id="1")
        assert (record.status, json.loads(record.attributes_json)["target"]) == (200, "a.txt")
        assert record == again
        with pytest.raises(ExistsError):
            await call(services.project, "r", "get", {"path": "a.txt"}, request_id="1")


async def test_the_body_of_a_command_of_a_client_may_be_in_the_shape_of_tags(services) -> None:
    # RU127
    await worked(services)
    for body in ("echo hi", "<command>echo hi</command>", "<sh>echo hi</sh>", '<sh command="echo hi"/>'):
        record = await services.client.call_tool(services.project, "r", "sh", {}, body)
        assert (record.status, record.body.partition(",")[0]) == (200, "ran 'echo hi'"), body
    await services.client.call_tool(services.project, "r", "set", {"path": "a.xml"}, "<path>b</path>")
    assert (services.files / "a.xml").read_text() == "<path>b</path>"


async def test_a_veto_holds_for_what_a_client_changes_and_observers_hear_of_the_rest(plugin, tmp_path) -> None:
    # RU127, RU252
    async with running(tmp_path, hooks=plugin("guard_of_files", GUARD)) as services:
        (services.files / "a.txt").write_text("old\n")
        await worked(services)
        call = services.client.call_tool
        vetoed = await call(services.project, "r", "set", {"path": "a.txt"}, "bad")
        assert (vetoed.status, vetoed.body, (services.files / "a.txt").read_text()) == (403, "Not that file.", "old\n")
        written = await call(services.project, "r", "set", {"path": "a.txt"}, "good")
        assert (written.status, (services.files / "a.txt").read_text()) == (200, "good\n")
    heard = sys.modules["guard_of_files"].HEARD
    made = [path for hook, path, *_ in heard if hook == "entry.created" and path.startswith("log://call_")]
    accepted = [path for hook, path, *_ in heard if hook == "proposal.accepted"]
    assert (made, accepted) == ([vetoed.path, written.path], [written.path])


async def test_the_record_of_a_client_says_what_its_interruption_would_mean(services) -> None:
    # RU127; architecture 11
    await worked(services)
    call = services.client.call_tool
    shell = await call(services.project, "r", "sh", {"command": "true"})
    entry = await call(services.project, "r", "set", {"path": "known://a"}, "x")
    classes = [one.record.effect_class for one in (shell, entry)]
    assert classes == [command_record_pb2.EFFECT_CLASS_OUTSIDE, command_record_pb2.EFFECT_CLASS_IDEMPOTENT]


async def test_a_command_of_a_client_that_is_longer_than_a_record_fails_as_data(services) -> None:
    # RU127, RU137
    await worked(services)
    call = services.client.call_tool
    first = await call(services.project, "r", "set", {"path": "known://a"}, '"' * 400_000, request_id="1")
    again = await call(services.project, "r", "set", {"path": "known://a"}, '"' * 400_000, request_id="1")
    assert (first.status, first.outcome, again) == (413, "too_large:413", first)


async def test_output_that_somebody_cancels_ends_the_command_of_a_client(services) -> None:
    # RU127, RU237
    await worked(services)
    command = {"command": "echo begun; sleep 30"}
    calling = asyncio.create_task(services.client.call_tool(services.project, "r", "sh", command, request_id="1"))
    await until(lambda: listed(services, "sh://**"))
    [path] = await listed(services, "log://call_*/**")
    await services.client.end_stream(services.project, "r", path, STREAM_END_CANCELLED)
    record = await calling
    assert (record.outcome, "it may have had effects" in record.body) == ("stopped:499", True)


async def test_a_command_of_a_client_may_be_silent_for_long(tmp_path, monkeypatch) -> None:
    # RU127, RU237: no lease holds it, so it says itself that it lives
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    # A beat may come late on a slow machine; then there is more time for the next.
    for number, grace_s in enumerate((0.4, 4.0, 20.0)):
        root = tmp_path / str(number)
        root.mkdir()
        async with running(root, store_settings={"stream_grace_s": grace_s}, sh_beat_s=0.1) as services:
            await worked(services)
            command = {"command": f"sleep {grace_s * 2.5}; echo done"}
            record = await services.client.call_tool(services.project, "r", "sh", command)
        if record.status == 200:
            break
    assert (record.status, "exit=0" in record.body) == (200, True)


async def test_an_executor_that_ends_tells_whoever_calls_a_tool_and_ends_the_command(services) -> None:
    # RU127; architecture 11
    await worked(services)
    command = {"command": "echo $$ > pid; exec sleep 600"}
    # Clients of ours call again by themselves.
    peer = Peer("executor", services.addresses["executor"], SECRET, 30.0)
    request = control_pb2.CallToolRequest(
        project=services.project, run="r", tool="sh", attributes=command, request_id="1"
    )
    stub = executor_service_pb2_grpc.ExecutorServiceStub(peer.channel)
    calling = asyncio.create_task(peer.call(stub.CallTool, request))
    await until(lambda: pid_in(services))
    await services.restart("executor")
    with pytest.raises(UnavailableError, match="retry"):
        await calling
    await peer.close()
    with pytest.raises(ProcessLookupError):
        os.kill(int((services.files / "pid").read_text()), 0)
    again = await services.client.call_tool(services.project, "r", "sh", command, request_id="1")
    assert (again.status, again.outcome) == (499, "stopped:499")


@pytest.mark.parametrize("request_id", ["", "1"], ids=["once", "repeatable"])
async def test_the_command_of_a_client_that_goes_away_ends_and_its_record_says_so(services, request_id) -> None:
    # RU127; architecture 11
    await worked(services)
    command = {"command": "echo $$ > pid; exec sleep 600"}
    call = services.client.call_tool(services.project, "r", "sh", command, request_id=request_id)
    calling = asyncio.create_task(call)
    await until(lambda: pid_in(services))
    calling.cancel()
    [path] = await until(lambda: listed(services, "log://call_*/**"))

    async def ended():
        return await services.status(path) == 499

    await until(ended)
    with pytest.raises(ProcessLookupError):
        os.kill(int((services.files / "pid").read_text()), 0)


async def test_a_plugin_writes_to_the_store_itself_and_no_tool_hears_of_it(services) -> None:
    # RU127
    await worked(services)
    token = token_for("indexer", Kind.PLUGIN, audience="store")
    peer = Peer("store", services.addresses["store"], token, 5.0)
    write = write_pb2.EntryWrite(path="known://fact", set=write_pb2.SetEntry(body="Written."), writer=Tier.PLUGIN)
    request = ledger_pb2.WriteEntriesRequest(project=services.project, run="r", writes=[write])
    before = await listed(services, "log://**")
    await peer.call(store_service_pb2_grpc.StoreServiceStub(peer.channel).WriteEntries, request)
    await peer.close()
    assert ((await services.entry("known://fact")).body, await listed(services, "log://**")) == ("Written.", before)


async def test_more_commands_of_clients_than_the_executor_takes_are_refused_until_one_has_ended(
    tmp_path, monkeypatch
) -> None:
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, tool_calls_max=1) as services:
        await worked(services)
        call = services.client.call_tool
        waits = "echo $$ > pid; while [ ! -e go ]; do sleep 0.02; done"
        first = asyncio.create_task(call(services.project, "r", "sh", {"command": waits}))
        await until(lambda: pid_in(services))
        with pytest.raises(ExhaustedError) as refused:
            await call(services.project, "r", "think", {}, "More.")
        assert (refused.value.reason, refused.value.metadata) == (Reason.QUEUE_FULL, {"limit": "1"})
        (services.files / "go").touch()
        assert (await first).status == 200
        assert (await call(services.project, "r", "think", {}, "More.")).status == 200
