"""Tools of servers: offered by name, checked before they are recorded, proposed, carried out, and told of."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager

import grpc
import pytest
from turnwright.executor.v1 import tools_pb2
from turnwright.tool.v1 import result_pb2, tool_service_pb2, tool_service_pb2_grpc
from turnwright.types.v1 import grant_pb2, rule_pb2, settings_pb2

from contract.executor.proposing import DONE, GO_ON
from contract.executor.tool_servers import Breaking, Issues, served, stack
from services import LEASE_S, token_for
from turnwright_cli.tools import server_lines
from turnwright_client import Client
from turnwright_client.tool_server import PROGRESS_MAX, Fence, ToolServer
from turnwright_core.errors import TurnwrightError
from turnwright_executor.peers.tool_channels import CONNECT_S

pytestmark = pytest.mark.asyncio

CREATE = "log://turn_1/result/issues.create_issue/1"
LOOK = "log://turn_1/result/issues.look/1"


@pytest.fixture
def server():
    return Issues()


async def test_a_call_is_proposed_carried_out_and_read(tmp_path, monkeypatch, server):
    async with served(server) as address, stack(tmp_path, monkeypatch, {"issues": address}) as services:
        services.script(f'<issues.create_issue title="It leaks" count="2"/>{GO_ON}', DONE)
        queued = await services.act(yolo=False)
        assert (await services.until(queued, 202)).status == 202
        assert server.calls == []
        [proposal] = services.view().proposals.values()
        assert "It may destroy what was there." in proposal.body
        assert '"count": 2' in proposal.body
        await services.client.resolve(services.project, "r", proposal.path, accept=True, comment="Go.")
        assert (await services.until(queued)).status == 200
        [call] = server.calls
        assert call.arguments == {"title": "It leaks", "count": 2}
        assert (call.request.project, call.request.run) == (services.project, "r")
        assert (call.request.call_id, call.request.comment) == (CREATE, "Go.")
        assert call.request.epoch > 0
        # Of a server on this host, by whose clock it is told.
        assert 0 < call.request.lease_end.ToNanoseconds() / 1e9 <= time.monotonic() + LEASE_S
        assert len(call.request.idempotency_key) >= 16
        record = await services.entry(CREATE)
        assert (record.body, record.status) == ("opened It leaks", 200)


async def test_a_pure_tool_is_not_asked_about_and_its_progress_is_output(tmp_path, monkeypatch, server):
    async with served(server) as address, stack(tmp_path, monkeypatch, {"issues": address}) as services:
        services.script(f'<issues.look title="It leaks"/>{GO_ON}', DONE)
        assert (await services.until(await services.act(yolo=False))).status == 200
        record = await services.entry(LOOK)
        assert record.body.startswith('saw {"title": "It leaks"}')
        output = await services.entry("result://turn_1/issues.look/1_1")
        assert (output.body, output.status) == ("looking\nfound\n", 200)


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ('<issues.create_issue count="2"/>', "'title' is a required property"),
        ('<issues.create_issue title="x" count="two"/>', "$.count of the arguments: 'two' is not of type 'integer'"),
        ('<issues.create_issue title="x" more="y"/>', "'more' was unexpected"),
    ],
)
async def test_arguments_that_do_not_match_are_recorded_as_failed_and_never_sent(
    tmp_path, monkeypatch, server, written, told
):
    async with served(server) as address, stack(tmp_path, monkeypatch, {"issues": address}) as services:
        services.script(f"{written}{GO_ON}", DONE)
        await services.until(await services.act())
        record = await services.entry(CREATE)
        assert record.outcome == "invalid:400"
        assert told in record.body
        assert server.calls == []


async def test_native_calls_have_names_that_vendors_take(tmp_path, monkeypatch, server):
    async with served(server) as address, stack(tmp_path, monkeypatch, {"issues": address}) as services:
        services.script('=== call name=issues__create_issue ===\n{"title": "a", "count": 3}', DONE)
        run = settings_pb2.RunSettings(calls=settings_pb2.CALL_STYLE_NATIVE)
        wanted = settings_pb2.LoopSettings(model="m", yolo=True)
        task = {"run": "r", "settings": wanted, "run_settings": run}
        await services.until(await services.client.act(services.project, "Do it.", **task))
        [call] = server.calls
        assert call.arguments == {"title": "a", "count": 3}
        assert (await services.entry(CREATE)).body == "opened a"


async def test_the_list_tells_where_tools_come_from_and_what_they_cost(tmp_path, monkeypatch, server):
    async with served(server) as address, stack(tmp_path, monkeypatch, {"issues": address}) as services:
        answer = await services.client.list_tools(services.project, check=True)
        tools = {tool.name: tool for tool in answer.tools}
        assert tools["get"].source == tools_pb2.TOOL_SOURCE_BUILT_IN
        made = tools["issues.create_issue"]
        assert (made.source, made.origin, made.server_name) == (tools_pb2.TOOL_SOURCE_SERVER, "issues", "Create-Issue")
        assert made.asks
        assert not tools["issues.look"].asks
        assert made.tokens > 10
        [state] = answer.servers
        assert (state.name, state.shared, state.condition, state.tools) == (
            "issues",
            True,
            tools_pb2.TOOL_SERVER_CONDITION_READY,
            2,
        )


async def test_a_loop_keeps_the_tools_that_it_began_with(tmp_path, monkeypatch, server):
    async with served(server) as address, stack(tmp_path, monkeypatch, {"issues": address}) as services:
        services.script(f'<issues.create_issue title="a"/>{GO_ON}', f'<issues.create_issue title="b"/>{GO_ON}', DONE)
        queued = await services.act(yolo=False)
        await services.until(queued, 202)

        @server.tool("Create-Issue", "Opens another issue.", schema={"type": "object", "required": ["other"]})
        async def other(call):
            server.calls.append(call)
            return "another"

        await services.client.list_tools(services.project, check=True)
        await services.restart("executor")
        [proposal] = services.view().proposals.values()
        await services.client.configure_run(services.project, "r", settings_pb2.RunSettingsPatch(yolo=True))
        await services.client.resolve(services.project, "r", proposal.path, accept=True)
        assert (await services.until(queued)).status == 200
        assert [call.arguments for call in server.calls] == [{"title": "a"}, {"title": "b"}]


@pytest.mark.parametrize(("effect_class", "outcome"), [("outside", "indeterminate:500"), ("idempotent", "")])
async def test_a_server_that_dies_in_a_call_leaves_an_outside_call_unknown(
    tmp_path, monkeypatch, effect_class, outcome
):
    server = ToolServer()
    calls = []

    @server.tool("break", "Breaks.", effect_class=effect_class)
    async def breaks(call):
        calls.append(call.request.idempotency_key)
        if len(calls) == 1:
            breaking.break_now()
            await asyncio.sleep(0.05)
        return "done"

    breaking = Breaking(server)
    async with breaking.served() as address, stack(tmp_path, monkeypatch, {"t": address}) as services:
        services.script(f"<t.break/>{GO_ON}", DONE)
        assert (await services.until(await services.act())).status == 200
        record = await services.entry("log://turn_1/result/t.break/1")
        assert record.outcome == outcome
    # One that comes again is answered with what became of the first.
    assert len(calls) == 1


async def test_a_server_that_is_away_for_longer_than_a_connection_takes_gets_an_idempotent_call_again(
    tmp_path, monkeypatch
):
    began, address = asyncio.Event(), f"unix:{tmp_path}/t.sock"
    first, second = ToolServer(), ToolServer()

    @first.tool("keep", "Keeps.", effect_class="idempotent")
    async def hangs(call):
        began.set()
        await asyncio.Event().wait()

    @second.tool("keep", "Keeps.", effect_class="idempotent")
    async def keeps(call):
        return "kept"

    async with stack(tmp_path, monkeypatch, {"t": address}) as services:
        async with served(first, address):
            services.script(f"<t.keep/>{GO_ON}", DONE)
            queued = await services.act()
            await asyncio.wait_for(began.wait(), 60)
        await asyncio.sleep(CONNECT_S + 1)
        async with served(second, address):
            assert (await services.until(queued)).status == 200
        assert (await services.entry("log://turn_1/result/t.keep/1")).body == "kept"


def many(server: ToolServer, number: int) -> list[str]:
    called = []
    for place in range(number):

        @server.tool(f"tool_{place}", f"Does the thing number {place}. " * 20, effect_class="pure", open_world=False)
        async def handle(call):
            called.append(call.request.tool)
            return "done"

    return called


async def test_a_long_list_is_offered_by_names_and_searched(tmp_path, monkeypatch):
    server = ToolServer()
    called = many(server, 100)
    async with served(server) as address, stack(tmp_path, monkeypatch, {"t": address}) as services:
        services.script(f"<search_tools>number 42</search_tools>{GO_ON}", f"<t.tool_42/>{GO_ON}", DONE)
        assert (await services.until(await services.act())).status == 200
        found = await services.entry("log://turn_1/search_tools/1")
        assert "## <t.tool_42/> - Does the thing number 42." in found.body
        system = await services.entry("instructions://system")
        docs = json.loads(system.attributes_json)["tool_docs"]
        assert "t.tool_42" not in docs
        assert "t.tool_41, t.tool_42" in docs["search_tools"]
        assert called == ["tool_42"]


async def test_a_long_list_is_called_natively_by_the_name_in_a_call(tmp_path, monkeypatch):
    server = ToolServer()
    called = many(server, 100)
    async with served(server) as address, stack(tmp_path, monkeypatch, {"t": address}) as services:
        services.script('=== call name=call_tool ===\n{"name": "t.tool_7", "arguments": {}}', DONE)
        run = settings_pb2.RunSettings(calls=settings_pb2.CALL_STYLE_NATIVE)
        wanted = settings_pb2.LoopSettings(model="m", yolo=True)
        task = {"run": "r", "settings": wanted, "run_settings": run}
        await services.until(await services.client.act(services.project, "Do it.", **task))
        assert called == ["tool_7"]
        system = json.loads((await services.entry("instructions://system")).attributes_json)
        names = [tool["name"] for tool in system["native_tools"]]
        assert {"search_tools", "call_tool"} <= set(names)
        assert not any(name.startswith("t__") for name in names)


async def waits(services, path: str, body: str) -> None:
    """Until a proposal with this body waits."""
    async with asyncio.timeout(60):
        while True:
            proposals = [one async for one in services.client.list_proposals(services.project)]
            if [one.proposal.body for one in proposals if one.proposal.path == path] == [body]:
                return
            await asyncio.sleep(0.05)


async def test_a_proposal_of_a_server_waits_and_goes_on_with_its_state(tmp_path, monkeypatch):
    server = ToolServer()
    states = []

    @server.tool("pay", "Pays.", proposes=True)
    async def pay(call):
        states.append((call.state, call.request.comment))
        if call.state is None:
            return result_pb2.ToolProposal(body="pay 3 to Ada", state=b"first")
        if call.state == b"first":
            return result_pb2.ToolProposal(body="really?", state=b"second")
        return "paid"

    async with served(server) as address, stack(tmp_path, monkeypatch, {"t": address}) as services:
        services.script(f"<t.pay/>{GO_ON}", DONE)
        queued = await services.act(yolo=False)
        await services.until(queued, 202)
        path = "log://turn_1/result/t.pay/1"
        await services.restart("executor")
        await waits(services, path, "pay 3 to Ada")
        await services.client.resolve(services.project, "r", path, accept=True, comment="Yes.")
        await waits(services, path, "really?")
        await services.client.resolve(services.project, "r", path, accept=True)
        assert (await services.until(queued)).status == 200
        assert (await services.entry(path)).body == "paid"
    assert states == [(None, ""), (b"first", "Yes."), (b"second", "")]


class Held(ToolServer):
    """A server that keeps something for what it has proposed, and is told of what is not carried out."""

    def __init__(self) -> None:
        super().__init__()
        self.told: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

        @self.tool("pay", "Pays.", proposes=True)
        async def pay(call):
            return "paid" if call.state else result_pb2.ToolProposal(body="pay 3 to Ada", state=b"held")

        @self.tool("fill", "Fills.", proposes=True)
        async def fill(call):
            return result_pb2.ToolProposal(body="fill", state=b"x" * 100_000)

    async def cancelled(self, request):
        self.told.put_nowait((request.run, request.call_id))

    async def tells(self) -> tuple[str, str]:
        return await asyncio.wait_for(self.told.get(), 60)


PAY = "log://turn_1/result/t.pay/1"


async def test_a_server_is_told_that_nobody_carries_out_what_it_has_proposed(tmp_path, monkeypatch):
    server = Held()
    async with served(server) as address, stack(tmp_path, monkeypatch, {"t": address}) as services:

        async def proposed(run: str, reply: str = "<t.pay/>"):
            services.script(f"{reply}{GO_ON}", DONE)
            queued = await services.act(run=run, yolo=False)
            await services.until(queued, 202)
            return queued

        accepted = await proposed("accepted")
        await services.client.resolve(services.project, "accepted", PAY, accept=True)
        await services.until(accepted)

        await proposed("rejected")
        await services.client.resolve(services.project, "rejected", PAY, accept=False)
        assert await server.tells() == ("rejected", PAY)

        await proposed("aborted")
        await services.client.abort(services.project, "aborted")
        assert await server.tells() == ("aborted", PAY)

        # By an executor that knows of the proposal from the store alone.
        await proposed("taken_over")
        await services.restart("executor")
        await services.client.abort(services.project, "taken_over")
        assert await server.tells() == ("taken_over", PAY)

        services.script(f"<t.fill/>{GO_ON}", DONE)
        await services.until(await services.act(run="too_much"))
        assert await server.tells() == ("too_much", PAY.replace("pay", "fill"))

        deny = rule_pb2.Rule(level=rule_pb2.RULE_LEVEL_PROJECT, verdict=rule_pb2.RULE_VERDICT_DENY, tool="t.pay")
        await services.client.set_rule(services.project, deny)
        services.script(f"<t.pay/>{GO_ON}", DONE)
        await services.until(await services.act(run="denied", yolo=False))
        assert await server.tells() == ("denied", PAY)
        assert server.told.empty()


async def test_a_server_is_told_of_what_nobody_has_decided_on_in_time(tmp_path, monkeypatch):
    server = Held()
    monkeypatch.setenv("TURNWRIGHT_PROPOSAL_EXPIRE_S", "0.4")
    async with served(server) as address, stack(tmp_path, monkeypatch, {"t": address}) as services:
        services.script(f"<t.pay/>{GO_ON}", DONE)
        assert (await services.until(await services.act(yolo=False))).reason == "expired"
        assert await server.tells() == ("r", PAY)


async def test_a_server_that_asks_for_ever_is_not_asked_for_ever(tmp_path, monkeypatch):
    server = ToolServer()
    asked = []

    @server.tool("pay", "Pays.", proposes=True)
    async def pay(call):
        asked.append(call)
        return result_pb2.ToolProposal(body="again?", state=b"x")

    async with served(server) as address, stack(tmp_path, monkeypatch, {"t": address}) as services:
        services.script(f"<t.pay/>{GO_ON}", DONE)
        await services.until(await services.act())
        assert (await services.entry("log://turn_1/result/t.pay/1")).outcome == "asked_again:500"
    assert len(asked) == 21


async def comes(services) -> None:
    """Until the executor has read its file again."""
    async with asyncio.timeout(60):
        while True:
            if (await services.client.list_tools(services.project, check=True)).servers:
                return
            await asyncio.sleep(0.1)


async def test_a_server_that_is_away_fails_the_call_and_says_what_to_do(tmp_path, monkeypatch, server):
    async with stack(tmp_path, monkeypatch, {}) as services:
        async with served(server) as address:
            (tmp_path / "servers.toml").write_text(f'[[server]]\nname = "issues"\naddress = "{address}"\n')
            await comes(services)
        services.script(f'<issues.create_issue title="a"/>{GO_ON}', DONE)
        assert (await services.until(await services.act())).status == 200
        record = await services.entry(CREATE)
        assert record.outcome == "unavailable:503"
        assert "see that it runs" in record.body


@pytest.fixture
def restarted():
    return Issues()


async def test_an_older_epoch_is_refused_before_and_after_a_restart(tmp_path, server, restarted):
    server._fence = Fence(runs_max=2)
    address = f"unix:{tmp_path}/issues.sock"
    async with grpc.aio.insecure_channel(address) as channel:
        stub = tool_service_pb2_grpc.ToolServiceStub(channel)

        async def dispatch(epoch: int, start: str, run: str = "r"):
            request = tool_service_pb2.DispatchRequest(
                project="p", run=run, call_id=f"c{epoch}", tool="look", arguments='{"title": "a"}', epoch=epoch,
                idempotency_key="k" * 16, start=start,
            )  # fmt: skip
            return [answer async for answer in stub.Dispatch(request, wait_for_ready=True)][-1]

        async with served(server, address):
            start = (await dispatch(5, "")).other_start.id
            await dispatch(5, start)
            with pytest.raises(grpc.aio.AioRpcError) as error:
                await dispatch(4, start)
            assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION
            with pytest.raises(grpc.aio.AioRpcError):
                await stub.Cancel(tool_service_pb2.CancelRequest(project="p", run="r", call_id="c5", epoch=4))
            for epoch, run in ((4, "other"), (5, "r"), (0, "r")):
                assert (await dispatch(epoch, start, run)).result.parts[0].text.startswith("saw")
            assert len(server.calls) == 4
            # A third run: the epochs of the first two are forgotten, and with them the start.
            await dispatch(1, start, "third")
            assert (await dispatch(4, start)).other_start.id not in ("", start)
            assert len(server.calls) == 5
        async with served(restarted, address):
            # Its executor has lost the run, and does not know that the server has been restarted since.
            other = await dispatch(4, start)
            assert restarted.calls == []
            assert (await dispatch(5, other.other_start.id)).HasField("result")


async def test_a_call_that_comes_again_ends_though_nobody_has_read_its_progress(tmp_path):
    server, calls, lost = ToolServer(), [], asyncio.Event()

    @server.tool("count", "Counts.", effect_class="idempotent")
    async def count(call):
        calls.append(call)
        await call.progress("begun\n")
        await lost.wait()
        for number in range(PROGRESS_MAX + 2):
            await call.progress(f"{number}\n")
        return "counted"

    address = f"unix:{tmp_path}/count.sock"
    async with served(server, address), grpc.aio.insecure_channel(address) as channel:
        stub = tool_service_pb2_grpc.ToolServiceStub(channel)
        request = tool_service_pb2.DispatchRequest(project="p", run="r", call_id="c", tool="count", idempotency_key="k")
        first = stub.Dispatch(request, timeout=60)
        assert (await first.read()).progress.text == "begun\n"
        first.cancel()
        # Whether the server has heard of that or not: the call goes on, and answers the next one.
        again = stub.Dispatch(request, timeout=60)
        lost.set()
        assert [one async for one in again][-1].result.parts[0].text == "counted"
    assert len(calls) == 1


async def test_a_call_that_goes_on_without_its_reader_is_cancelled(tmp_path):
    left, stopped = asyncio.Event(), asyncio.Event()

    class Left(ToolServer):
        async def Dispatch(self, request, context):
            async with aclosing(super().Dispatch(request, context)) as answers:
                try:
                    async for one in answers:
                        yield one
                finally:
                    await answers.aclose()
                    left.set()

    server = Left()

    @server.tool("wait", "Waits.", effect_class="idempotent")
    async def wait(call):
        await call.progress("begun\n")
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    address = f"unix:{tmp_path}/wait.sock"
    async with (
        asyncio.timeout(60),
        served(server, address),
        grpc.aio.insecure_channel(address) as channel,
    ):
        stub = tool_service_pb2_grpc.ToolServiceStub(channel)
        names = {"project": "p", "run": "r", "call_id": "c"}
        reading = stub.Dispatch(tool_service_pb2.DispatchRequest(**names, tool="wait", idempotency_key="k"))
        assert (await reading.read()).progress.text == "begun\n"
        reading.cancel()
        await left.wait()
        assert not stopped.is_set()
        await stub.Cancel(tool_service_pb2.CancelRequest(**names))
        await stopped.wait()


async def test_a_long_result_is_an_entry_that_is_read_in_parts(tmp_path, monkeypatch):
    server = ToolServer()

    @server.tool("big", "Says much.", effect_class="pure", open_world=False)
    async def big(call):
        return "".join(f"line {number}\n" for number in range(1, 5001))

    async with served(server) as address, stack(tmp_path, monkeypatch, {"t": address}) as services:
        entry = "result://turn_1/t.big/1_3"
        services.script(f"<t.big/>{GO_ON}", f'<get path="{entry}" line="4000" limit="2"/>{GO_ON}', DONE)
        assert (await services.until(await services.act())).status == 200
        assert entry in (await services.entry("log://turn_1/result/t.big/1")).body
        read = [one async for one in services.client.list_entries(services.project, "r", "log://turn_2/get/**")]
        assert "line 4000" in read[0].body
        assert "line 4002" not in read[0].body


async def reason_of(step) -> str:
    """What a step is refused with; empty: it was not."""
    try:
        await step
    except TurnwrightError as error:
        return error.reason.name
    return ""


async def read_on(events: AsyncIterator) -> None:
    async for _ in events:
        pass


@asynccontextmanager
async def asked_by_an_owner(services):
    """A project of alice's, and alice."""
    mine = await services.with_project("mine")
    await services.client.set_grant(mine.project, "user:alice", grant_pb2.GRANT_ROLE_OWNER)
    async with Client.connect(services.addresses["executor"], token_for("alice")) as alice:
        yield mine, alice


async def test_a_call_may_read_its_project_while_it_lasts_and_neither_decide_nor_start_anything(tmp_path, monkeypatch):
    server, found, watching = ToolServer(), {}, []

    @server.tool("use", "Uses what it gets.")
    async def use(call):
        given, project = call.request.callback, call.request.project
        tool = await clients.enter_async_context(Client.connect(given.address, given.token))
        yolo = settings_pb2.LoopSettings(model="m", yolo=True)
        steps = {
            "read": tool.get_run(project, "r"),
            "files": tool.call_tool(project, "r", "set", {"path": "note.txt"}, "noted"),
            "elsewhere": tool.get_run(other.project, "r"),
            "decide": tool.resolve(project, "r", call.request.call_id, accept=True),
            "command": tool.call_tool(project, "r", "sh", body="id"),
            "ask": tool.ask(project, "Think.", settings=settings_pb2.LoopSettings(model="m")),
            "act": tool.act(project, "Do.", settings=yolo),
            "tokens": tool.revoke_token("another"),
            "grant": tool.set_grant(project, "user:bob", grant_pb2.GRANT_ROLE_OWNER),
        }
        found.update({name: await reason_of(step) for name, step in steps.items()})
        events = tool.watch(project, "r")
        await anext(events)
        watching.append((tool, asyncio.create_task(reason_of(read_on(events)))))
        return "used"

    async with (
        served(server) as address,
        stack(tmp_path, monkeypatch, {"t": address}) as services,
        AsyncExitStack() as clients,
    ):
        other = await services.with_project("other")
        async with asked_by_an_owner(services) as (mine, alice):
            mine.script(f"<t.use/>{GO_ON}", DONE)
            yolo = settings_pb2.LoopSettings(model="m", yolo=True)
            assert (await mine.until(await alice.act(mine.project, "Do it.", run="r", settings=yolo))).status == 200
        refused = dict.fromkeys(("decide", "command", "ask", "act", "tokens", "grant"), "RIGHT_MISSING")
        assert found == {"read": "", "files": "", "elsewhere": "PROJECT_NOT_FOUND", **refused}
        [(tool, watch)] = watching
        assert await asyncio.wait_for(watch, 60) == "UNAUTHENTICATED"
        assert await reason_of(tool.get_run(mine.project, "r")) == "UNAUTHENTICATED"


async def test_a_call_that_changes_nothing_may_not_call_back(tmp_path, monkeypatch, server):
    asked = []

    @server.tool("pay", "Pays.", proposes=True)
    async def pay(call):
        asked.append(call.request.HasField("callback"))
        return "paid" if call.state else result_pb2.ToolProposal(body="pay 3 to Ada", state=b"first")

    async with (
        served(server) as address,
        stack(tmp_path, monkeypatch, {"issues": address}) as services,
        asked_by_an_owner(services) as (mine, alice),
    ):
        mine.script(f'<issues.look title="a"/><issues.pay/>{GO_ON}', DONE, f'<issues.look title="b"/>{GO_ON}', DONE)
        yolo = settings_pb2.LoopSettings(model="m", yolo=True)
        await mine.until(await alice.act(mine.project, "Do it.", run="r", settings=yolo))
        asks = settings_pb2.LoopSettings(model="m")
        await mine.until(await alice.ask(mine.project, "Look.", run="r", settings=asks))
    assert [(call.request.principal, call.request.HasField("callback")) for call in server.calls] == [
        ("alice", False)
    ] * 2
    assert asked == [False, True]


@pytest.mark.parametrize(("verdict", "calls"), [("DENY", 0), ("ALLOW", 1)])
async def test_rules_hold_for_tools_of_servers(tmp_path, monkeypatch, server, verdict, calls):
    async with served(server) as address, stack(tmp_path, monkeypatch, {"issues": address}) as services:
        rule = rule_pb2.Rule(
            level=rule_pb2.RULE_LEVEL_PROJECT,
            verdict=rule_pb2.RuleVerdict.Value(f"RULE_VERDICT_{verdict}"),
            tool="issues.create_issue",
        )
        await services.client.set_rule(services.project, rule)
        services.script(f'<issues.create_issue title="a"/>{GO_ON}', DONE)
        await services.until(await services.act(yolo=verdict == "DENY"))
        assert len(server.calls) == calls


ODD = {
    "Two words": {},
    "two_words": {},
    "n" * 100: {},
    "n" * 99 + "m": {},
    "x" * 200: {},
    "loop": {"properties": {"a": {"$ref": "#/properties/a"}}},
    "wrong": {"properties": {"a": {"type": "nothing"}}},
    "huge": {"description": "x" * 1_000_000},
    "large": {"properties": {f"p{number}": {"description": "y" * 500} for number in range(100)}},
}


WORDS = "'nothing' is not valid under any of the given schemas"


async def test_people_are_told_what_became_of_odd_tools_by_one_line_each(tmp_path, monkeypatch):
    server = ToolServer()
    for name, more in ODD.items():
        server.tool(name, "Does it.", schema={"type": "object", **more})(_nothing)
    server.tool("bare", "Does it.")(_nothing)
    servers = {"wild": {"mcp": {"command": "nothing-there"}}}
    async with served(server) as address, stack(tmp_path, monkeypatch, {"odd": address, **servers}) as services:
        status = await services.client.get_status(check_models=True)
        odd, *problems = (str(line).strip() for line in server_lines(status.tool_servers[:1]))
        [wild] = (str(line).strip() for line in server_lines(status.tool_servers[1:]))
        listed = await services.client.list_tools(services.project, server="odd")
    assert odd == f"odd: 6 tools, 4 refused, of the deployment, at {address}"
    assert wild == "wild: it is started for each project: `turnwright mcp check wild` in one asks what it brings"
    until = "It is not offered until its server says another schema."
    assert [re.sub("_[0-9a-f]{8}:", "_DIGEST:", problem) for problem in problems] == [
        f"odd.{'x' * 50}_DIGEST: Its name has 200 characters, and 1 to 128 are allowed.",
        f"odd.loop: The schema refers to itself without an end, with no property or item in between. {until}",
        f"odd.wrong: It is not a JSON Schema, at $.properties.a.type: {WORDS}. {until}",
        f"odd.huge: Its schema has more than 262144 bytes. {until}",
        "odd.two_words_DIGEST: Its server calls it 'Two words'.",
        f"odd.{'n' * 50}_DIGEST: Its server calls it '{'n' * 100}'.",
        f"odd.{'n' * 50}_DIGEST: Its server calls it '{'n' * 99}m'.",
        "odd.large: Its schema has 52824 bytes: models are shown its outermost level.",
    ]
    assert [one.name for one in listed.tools if one.offered and not one.problem] == ["odd.two_words", "odd.bare"]


async def _nothing(_call):
    return ""
