"""What a sandbox host does for whoever calls it: by its messages, without an executor."""

from __future__ import annotations

import asyncio
import hashlib
import time
from contextlib import suppress

import grpc
import pytest
from google.protobuf import duration_pb2
from turnwright.tool.v1 import tool_service_pb2, tool_service_pb2_grpc, workspace_pb2

from contract.executor.sandboxes import SHOP, TOKEN, dispatched, host, refused
from turnwright_sandbox.host import SCANNERS_MAX


async def started(root):
    """What a host says of itself: which start of it this is, and its clock."""
    [answer] = await dispatched(root, "locate", epoch=1)
    return answer.other_start


@pytest.mark.asyncio
async def test_an_executor_that_has_lost_a_run_is_refused_before_and_after_the_host_restarts(tmp_path, shop):
    wanted = {"path": "a.txt", "content": "new\n", "base_hash": hashlib.sha256(b"old\n").hexdigest()}
    run = {"command": "touch made", "timeout": {"seconds": 60}}
    async with host(tmp_path):
        known = (await started(tmp_path)).id
        await dispatched(tmp_path, "locate", epoch=2, start=known)
        for tool, arguments in (("replace", wanted), ("run", run)):
            error = await refused(tmp_path, tool, epoch=1, start=known, **arguments)
            assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
    async with host(tmp_path):
        for tool, arguments in (("replace", wanted), ("run", run)):
            [answer] = await dispatched(tmp_path, tool, epoch=1, start=known, **arguments)
            assert answer.other_start.id not in ("", known)
        assert (shop / "a.txt").read_text() == "old\n"
        assert not (shop / "made").exists()
        [answer] = await dispatched(tmp_path, "replace", epoch=2, start=answer.other_start.id, **wanted)
        assert answer.result.workspace.replace.replaced
        assert (shop / "a.txt").read_text() == "new\n"


@pytest.mark.asyncio
async def test_a_command_ends_with_its_lease_by_the_clock_of_its_host_unless_that_is_renewed(tmp_path, shop):
    def soon():
        end = duration_pb2.Duration()
        end.FromNanoseconds(known.clock.ToNanoseconds() + time.monotonic_ns() - began_ns + 1_000_000_000)
        return end

    wanted = {"command": "echo $$; sleep 600", "timeout": {"seconds": 600}}
    async with host(tmp_path):
        began_ns, known = time.monotonic_ns(), await started(tmp_path)
        ours = {"epoch": 1, "start": known.id}
        # However late it comes: it is for a moment, and not for a time from now on.
        error = await refused(tmp_path, "run", **ours, lease_end=known.clock, **wanted)
        assert error.code() is grpc.StatusCode.FAILED_PRECONDITION
        output = {"command": "head -c 100000 /dev/zero", "timeout": {"seconds": 60}, "output_bytes_max": 1000}
        *pieces, end = await dispatched(tmp_path, "run", **ours, **output)
        assert end.result.workspace.run.output_cut
        assert sum(len(one.progress.text) for one in pieces) < 2000
        running = asyncio.create_task(dispatched(tmp_path, "run", call_id="long", **ours, **wanted))
        is_running = False
        while not is_running:
            # Of a moment that is over when it arrives, it is refused.
            with suppress(grpc.aio.AioRpcError):
                [answer] = await dispatched(tmp_path, "extend", call="long", **ours, lease_end=soon())
                is_running = answer.result.workspace.extend.running
        *_, end = await running
        assert end.result.workspace.run.exit_code == -9


@pytest.mark.asyncio
async def test_fields_of_another_release_are_passed_over_and_other_tools_refused(tmp_path, shop):
    place = workspace_pb2.WorkspacePlace.FromString(SHOP.SerializeToString() + b"\xa2\x06\x03new")
    async with host(tmp_path):
        [answer] = await dispatched(tmp_path, "find", place=place, path="a.txt")
        assert answer.result.workspace.find.file.text == "old\n"
        async with grpc.aio.insecure_channel(f"unix:{tmp_path}/box.sock") as channel:
            request = tool_service_pb2.DispatchRequest(tool="find", workspace={"place": SHOP, "stop": {"call": "c"}})
            metadata = (("authorization", f"Bearer {TOKEN}"),)
            stub = tool_service_pb2_grpc.ToolServiceStub(channel)
            [answer] = [one async for one in stub.Dispatch(request, metadata=metadata, timeout=60)]
            assert (answer.result.status, answer.result.parts[0].text) == (400, "`workspace` has no arguments of find.")


@pytest.mark.asyncio
async def test_readings_of_clients_take_no_place_from_scanners_of_loops(tmp_path, shop):
    async with host(tmp_path):
        *_, end = await dispatched(tmp_path, "scan", scanner="of a loop")
        scanned = end.result.workspace.scan
        assert (scanned.generation, scanned.complete) == (1, True)
        piece, end = await dispatched(tmp_path, "scan", times=SCANNERS_MAX)
        assert end.result.workspace.scan.complete
        assert [file.path for file in piece.progress.files.files] == ["a.txt", "guide.md"]
        [end] = await dispatched(tmp_path, "scan", scanner="of a loop", generation=1)
        assert not end.result.workspace.scan.complete


@pytest.mark.asyncio
async def test_the_limits_of_a_caller_hold_beside_those_of_the_host(tmp_path, shop):
    asked = workspace_pb2.WorkspacePlace(path="/shop", file_bytes_max=5, files_max=1)
    async with host(tmp_path):
        piece, _ = await dispatched(tmp_path, "scan", place=asked)
        [file] = piece.progress.files.files
        assert (file.path, file.text) == ("a.txt", "old\n")
        [answer] = await dispatched(tmp_path, "find", place=asked, path="guide.md")
        found = answer.result.workspace.find.file
        assert (found.HasField("text"), found.size_bytes) == (False, 16)
