"""Sandbox hosts that answer wrongly: each answer is an error with a sentence, and nothing of it is kept."""

from __future__ import annotations

import asyncio
import errno
from math import inf

import grpc
import pytest
import pytest_asyncio
from turnwright.tool.v1 import result_pb2, tool_service_pb2, workspace_command_pb2
from turnwright.tool.v1 import workspace_pb2 as pb

from turnwright_client.tool_server import Fence, ToolServer
from turnwright_core.constraints import Constraints
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.peers.sandboxes import HostSettings
from turnwright_executor.tools.contract import OutcomeUnknownError

from .bench import hosts_at

TOOLS = ("locate", "normalise", "find", "gather", "scan", "replace", "run", "extend", "stop")
FILE = {"path": "a.txt", "text": "old\n", "hash": "h"}
asynchronous = pytest.mark.asyncio(loop_scope="module")


class WrongHost(ToolServer):
    """Answers what a test says: by tool, a result, or what makes one."""

    def __init__(self):
        super().__init__(lambda: self.shown_s)
        self.calls, self.pieces, self.output, self.answers, self.breaks = [], [], [], {}, []
        """`breaks`: the files that each of the next calls tells of before its connection breaks."""
        self.now_s = self.takes_s = self.ends_s = self.shown_s = 0.0
        """The executor's clock, what an answer takes by it, when its lease ends, and what the host's clock shows."""
        for name in TOOLS:
            self.tool(name, name, effect_class="outside")(self._answer)

    def restart(self, start=""):
        """Forget what a process forgets with its end."""
        self._fence = Fence(lambda: self.shown_s)
        self._fence._start = start or self._fence._start

    async def Dispatch(self, request, context):
        self.calls.append(request)
        self.now_s += self.takes_s
        if self.breaks:
            yield tool_service_pb2.DispatchResponse(progress={"text": "begun\n", "files": {"files": self.breaks.pop()}})
            await context.abort(grpc.StatusCode.UNAVAILABLE, "broken")
        async for message in super().Dispatch(request, context):
            yield message

    async def _answer(self, call):
        for channel, text in self.output:
            await call.progress(text, channel)
        for piece in self.pieces:
            await call.progress("", files=pb.ScanPiece(files=piece))
        answer = self.answers.get(call.request.tool, pb.WorkspaceResult())
        if isinstance(answer, asyncio.CancelledError):
            raise answer
        return answer if isinstance(answer, result_pb2.ToolResult) else result_pb2.ToolResult(workspace=answer)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory):
    """The host, and how an executor calls it."""
    home, host = tmp_path_factory.mktemp("box"), WrongHost()
    server = await host.serve(f"unix:{home}/box.sock")
    async with hosts_at(home, HostSettings(0.0, 10, 3, 5), lambda: host.now_s, lambda _: host.ends_s) as hosts:
        yield host, hosts
    await server.stop(0)


@pytest_asyncio.fixture(loop_scope="module")
async def host(made):
    host, _ = made
    host.restart()
    host.calls, host.pieces, host.output, host.breaks, host.takes_s = [], [], [], [], 0.0
    host.now_s, host.ends_s = 50.0, 150.0
    host.answers = {"locate": pb.WorkspaceResult(locate={"workspace": {"path": "/shop", "id": "i"}})}
    return host


async def place_on(made, epoch=1):
    place = await made[1].place(RunAddress("p", "r"), epoch, "box:/shop", Constraints(), lambda: inf)
    # Before it may be others, which name another start.
    del made[0].calls[:-1]
    return place


def unknown(message):
    """The message as a later release has it, which says something more."""
    return type(message).FromString(message.SerializeToString() + b"\xa2\x06\x03new")


@asynchronous
@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ({}, "what is not understood: nothing"),
        ({"normalise": {"path": "a.txt"}}, "what is not understood: normalise"),
        ({"find": {}}, "a path that no file has: ''"),
        ({"find": {"path": "../b.txt"}}, "a path that no file has"),
        ({"find": {"path": "/etc/passwd"}}, "a path that no file has"),
        ({"find": {"path": "a.txt", "file": {"text": "x" * 11, "hash": "h"}}}, "more than 10"),
        ({"find": {"path": "a.txt", "file": {"text": "x"}}}, "without its hash"),
    ],
)
async def test_a_file_that_was_not_asked_for_is_an_error(made, host, answer, says):
    place = await place_on(made)
    host.answers["find"] = pb.WorkspaceResult(**answer)
    with pytest.raises(OSError, match=says) as error:
        await place.workspace.find("a.txt")
    assert error.value.errno == errno.EPROTO
    host.answers["find"] = unknown(pb.WorkspaceResult(find={"path": "a.txt", "file": FILE}))
    assert (await place.workspace.find("a.txt"))[1].text == "old\n"


@asynchronous
@pytest.mark.parametrize("content", [{"../b": b""}, {str(n): b"" for n in range(3)}, {"b": b"123456"}])
async def test_more_than_was_asked_for_is_not_gathered(made, host, content):
    place = await place_on(made)
    host.answers["gather"] = pb.WorkspaceResult(gather={"files": {"content": content}})
    with pytest.raises(OSError, match="answers with"):
        await place.workspace.gather("folder", 2, 5)


@asynchronous
@pytest.mark.parametrize(
    "wrong",
    [
        {"path": ""},
        {"path": "../b.txt"},
        {"path": "log://turn_1/sh/a"},
        {"path": ".git/config"},
        {"path": "a\nb.txt"},
        {"path": "x" * 3000},
        {"text": "x" * 11},
        {"hash": ""},
    ],
)
async def test_a_scan_that_fails_has_found_nothing_and_the_next_one_finds_all(made, host, wrong):
    scanner = (await place_on(made)).scanner()
    host.answers["scan"] = pb.WorkspaceResult(scan={"generation": 1, "complete": True})
    host.pieces = [[FILE], [{**FILE, "path": "b.txt", **wrong}]]
    with pytest.raises(OSError, match="The sandbox host box answers with"):
        await scanner.scan()
    assert not scanner.files
    host.pieces = [[FILE]]
    assert [file.path for file in (await scanner.scan()).changed] == ["a.txt"]
    assert [call.workspace.scan.generation for call in host.calls if call.tool == "scan"] == [0, 0]


@asynchronous
async def test_scans_are_bounded_by_the_executor_whatever_the_host_tells(made, host):
    scanner = (await place_on(made)).scanner()
    host.answers["scan"] = pb.WorkspaceResult(scan={"generation": 1})
    host.pieces = [[{**FILE, "path": f"{number}.txt"}] for number in range(3)]
    assert len((await scanner.scan()).changed) == 3
    asked = host.calls[-1].workspace.place
    assert (asked.file_bytes_max, asked.files_max) == (10, 3)
    four = [{**FILE, "path": f"n{number}.txt"} for number in range(4)]
    for pieces, complete in (([[{**FILE, "path": "4.txt"}]], False), ([four], True)):
        host.pieces, host.answers["scan"].scan.complete = pieces, complete
        with pytest.raises(OSError, match="more than the 3 files"):
            await scanner.scan()
        assert len(scanner.files) == 3


@asynchronous
async def test_a_host_is_to_remember_the_scanners_of_loops_alone(made, host):
    host.answers["scan"] = pb.WorkspaceResult(scan={"generation": 1, "complete": True})
    for epoch in (0, 1):
        await (await place_on(made, epoch=epoch)).scanner().scan()
        assert bool(host.calls[-1].workspace.scan.scanner) is bool(epoch)


@asynchronous
async def test_reads_are_repeated_as_a_whole_and_commands_are_not(made, host):
    place = await place_on(made)
    host.pieces, host.breaks = [[FILE]], [[{**FILE, "path": "b.txt"}], [{**FILE, "path": "c.txt"}]]
    host.answers["scan"] = pb.WorkspaceResult(scan={"generation": 1, "complete": True})
    assert [file.path for file in (await place.scanner().scan()).changed] == ["a.txt"]
    host.answers["find"] = pb.WorkspaceResult(find={"path": "a.txt", "file": FILE})
    host.breaks = [[]]
    assert (await place.workspace.find("a.txt"))[1].text == "old\n"
    host.breaks, output = [[]], []

    async def on_output(channel, text):
        output.append((channel, text))

    with pytest.raises(OutcomeUnknownError):
        await place.shell.run("touch made", 5.0, on_output)
    assert output == [(1, "begun\n")]
    assert [call.tool for call in host.calls] == ["locate", *["scan"] * 3, *["find"] * 2, "run"]


@asynchronous
async def test_output_is_bounded_by_the_executor_whatever_the_host_sends(made, host):
    place, output = await place_on(made), []

    async def on_output(channel, text):
        output.append((channel, len(text)))

    host.output = [(1, "x" * 1000), (2, "y" * 10), (1, "x" * 1000), (1, "x")]
    host.answers["run"] = pb.WorkspaceResult(run={"exit_code": 0})
    assert (await place.shell.run("yes", 5.0, on_output)).output_cut
    assert host.calls[-1].workspace.run.output_bytes_max == 5
    assert output == [(1, 1000), (2, 10), (1, 29)]


async def ignored(_channel, _text):
    """Takes the output of a command."""


@asynchronous
@pytest.mark.parametrize(
    "answer",
    [
        pb.WorkspaceResult(),
        pb.WorkspaceResult(run={"timed_out": True}),
        pb.WorkspaceResult(stop={"running": True}),
        result_pb2.ToolResult(status=499, parts=[{"text": "The command was stopped."}]),
        asyncio.CancelledError(),
    ],
)
async def test_a_command_without_a_readable_result_is_of_unknown_outcome(made, host, answer):
    place = await place_on(made)
    host.answers["run"] = answer
    with pytest.raises(OutcomeUnknownError):
        await place.shell.run("touch made", 5.0, ignored)
    assert [call.tool for call in host.calls].count("run") == 1
    host.answers["run"] = unknown(pb.WorkspaceResult(run={"exit_code": 0, "changes": {"files": [{"kind": "odd"}]}}))
    end = await place.shell.run("touch made", 5.0, ignored)
    assert (end.exit_code, end.changed) == (0, ())


@asynchronous
async def test_only_who_still_has_the_lease_goes_on_with_a_host_that_has_restarted(made, host):
    place = await place_on(made)
    host.answers["replace"] = pb.WorkspaceResult(replace={"replaced": True})
    known = host.calls[0].start
    host.restart()
    host.calls.clear()
    assert await place.workspace.replace("a.txt", "new", None)
    assert [call.start == known for call in host.calls] == [True, False]
    host.restart()
    host.calls.clear()
    host.ends_s = host.now_s
    with pytest.raises(OSError, match="no lease of the run r any more") as error:
        await place.workspace.replace("a.txt", "new", None)
    assert error.value.errno == errno.EPROTO
    assert host.calls == []


@asynchronous
async def test_a_lease_that_ends_while_a_host_says_that_it_has_restarted_is_not_used(made, host):
    place = await place_on(made)
    host.answers["replace"] = pb.WorkspaceResult(replace={"replaced": True})
    host.restart()
    host.calls.clear()
    host.takes_s = 200.0
    with pytest.raises(OSError, match="no lease of the run r any more"):
        await place.workspace.replace("a.txt", "new", None)
    assert [call.tool for call in host.calls] == ["replace"]


@asynchronous
async def test_a_start_with_too_long_an_id_is_not_kept(made, host):
    place = await place_on(made)
    host.restart("x" * 65)
    host.calls.clear()
    with pytest.raises(OSError, match="has named 3 starts for one call"):
        await place.workspace.replace("a.txt", "new", None)
    assert [len(call.start) for call in host.calls] == [32, 64, 64]


@asynchronous
async def test_a_lease_is_sent_as_a_moment_of_the_hosts_clock(made, host):
    host.shown_s, host.takes_s = host.now_s + 4950.0, 3.0
    place = await place_on(made)
    host.answers["run"] = pb.WorkspaceResult(run=workspace_command_pb2.RunResult(exit_code=0))
    await place.shell.run("true", 5.0, ignored)
    # It showed that moment 3 seconds before it was heard at the earliest, and the lease may not last longer.
    assert host.calls[-1].lease_end.seconds == host.ends_s + 4947
    # Clocks drift apart: a minute later it is asked again.
    host.now_s, host.ends_s = host.now_s + 61, host.ends_s + 61
    await place.shell.run("true", 5.0, ignored)
    assert [call.start == "" for call in host.calls] == [False, False, True, False]
