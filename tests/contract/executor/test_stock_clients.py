"""Clients with gRPC's own limit of 4 MiB can read everything, or hear what to do."""

from __future__ import annotations

import contextlib

import grpc
import pytest
from turnwright.entries.v1 import entry_service_pb2, entry_service_pb2_grpc
from turnwright.executor.v1 import (
    executor_service_pb2,
    executor_service_pb2_grpc,
    task_pb2,
)
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.store.v1 import ledger_pb2, read_pb2, store_service_pb2_grpc, write_pb2
from turnwright.types.v1 import entry_pb2, settings_pb2

from services import SECRET, running
from sse_server import Answer, SseServer, chat, delta, events
from turnwright_client import RunView
from turnwright_client.client import loop_in
from turnwright_core.errors import Reason
from turnwright_core.limits import PERSONA_BYTES_MAX, PROMPT_BYTES_MAX, STOCK_MESSAGE_BYTES_MAX
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import RECEIVES, call_metadata
from turnwright_core.runs import COMPLETED

pytestmark = pytest.mark.asyncio

MIB = 1024 * 1024
TOKEN = call_metadata(SECRET)


@contextlib.asynccontextmanager
async def stock(address: str):
    """A channel without any option."""
    async with grpc.aio.insecure_channel(address) as channel:
        yield channel


async def write(services, bodies: dict[str, str], run: str = "r") -> None:
    await services.client.create_run(services.project, run, settings_pb2.RunSettings(model="m"))
    options = [("grpc.max_send_message_length", 32 * MIB)]
    async with grpc.aio.insecure_channel(services.addresses["store"], options=options) as channel:
        stub = store_service_pb2_grpc.StoreServiceStub(channel)
        for path, body in bodies.items():
            written = write_pb2.EntryWrite(path=path, writer=entry_pb2.TIER_PLUGIN, set=write_pb2.SetEntry(body=body))
            request = ledger_pb2.WriteEntriesRequest(project=services.project, run=run, writes=[written])
            await stub.WriteEntries(request, metadata=TOKEN)


async def whole_entry(stub, project: str, path: str, bytes_max: int = 0) -> str:
    """The body of an entry, read as the contract says."""
    parts, offset = [], 0
    while True:
        request = entry_service_pb2.GetEntryRequest(
            project=project, run="r", path=path, body_offset=offset, body_bytes_max=bytes_max
        )
        answer = await stub.GetEntry(request, metadata=TOKEN)
        parts.append(answer.entry.body)
        offset = answer.body_offset + len(answer.entry.body.encode())
        if offset >= answer.entry.body_size_bytes:
            return "".join(parts)


@pytest.mark.parametrize("body", ["x" * 9 * MIB, "ä€😀" * MIB, "x" + "😀" * MIB], ids=["ascii", "mixed", "odd"])
async def test_a_long_entry_is_read_in_parts_that_are_the_whole(services, body):
    await write(services, {"big.txt": body})
    async with stock(services.addresses["executor"]) as channel:
        stub = entry_service_pb2_grpc.EntryServiceStub(channel)
        assert await whole_entry(stub, services.project, "big.txt") == body
    assert (await services.client.get_entry(services.project, "r", "big.txt")).body == body


async def test_a_part_ends_and_begins_with_whole_characters(services):
    await write(services, {"small.txt": "aä€😀" * 3})
    async with stock(services.addresses["executor"]) as channel:
        stub = entry_service_pb2_grpc.EntryServiceStub(channel)
        for bytes_max in range(4, 12):
            assert await whole_entry(stub, services.project, "small.txt", bytes_max) == "aä€😀" * 3


async def test_pages_of_long_entries_are_read_to_the_end(services):
    bodies = {f"f{number:02}.txt": str(number) * MIB for number in range(12)} | {"z.txt": "z" * 9 * MIB}
    await write(services, bodies)
    found, token = {}, ""
    async with stock(services.addresses["executor"]) as channel:
        stub = entry_service_pb2_grpc.EntryServiceStub(channel)
        while True:
            request = entry_service_pb2.ListEntriesRequest(
                project=services.project, run="r", pattern="*.txt", page_size=1000, page_token=token
            )
            page = await stub.ListEntries(request, metadata=TOKEN)
            found.update((entry.path, entry) for entry in page.entries)
            token = page.next_page_token
            if not token:
                break
    assert {path: entry.body_size_bytes for path, entry in found.items() if path in bodies} == {
        path: len(body) for path, body in bodies.items()
    }
    assert all(bodies[path].startswith(found[path].body) and found[path].body for path in bodies)


async def test_a_snapshot_of_many_long_entries_and_a_runs_history_are_read(services):
    await write(services, {f"known://k{number:03}": str(number % 10) * 15_000 for number in range(400)})
    async with stock(services.addresses["executor"]) as channel:
        stub = executor_service_pb2_grpc.ExecutorServiceStub(channel)
        watch = stub.WatchRun(executor_service_pb2.WatchRunRequest(project=services.project, run="r"), metadata=TOKEN)
        entries = set()
        async for event in watch:
            entries.update(entry.path for entry in event.snapshot.entries)
            if event.snapshot.last:
                break
        watch.cancel()
        request = run_service_pb2.GetRunRequest(project=services.project, run="r", turns_max=100, history_max=1000)
        run = await run_service_pb2_grpc.RunServiceStub(channel).GetRun(request, metadata=TOKEN)
    assert {f"known://k{number:03}" for number in range(400)} <= entries
    assert run.run.run == "r"


async def test_an_answer_that_nobody_cuts_says_what_to_do(services):
    """The store gives whole bodies; who takes more than 4 MiB says so."""
    await write(services, {"big.txt": "x" * 5 * MIB})
    request = read_pb2.GetEntriesRequest(project=services.project, run="r", paths=["big.txt"])
    address = services.addresses["store"]
    async with stock(address) as channel:
        stub = store_service_pb2_grpc.StoreServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as told:
            await stub.GetEntries(request, metadata=TOKEN)
    error = from_rpc(told.value, "store", address)
    assert (told.value.code(), error.reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, Reason.MESSAGE_TOO_LARGE)
    assert RECEIVES in error.message
    options = [("grpc.max_receive_message_length", 6 * MIB)]
    async with grpc.aio.insecure_channel(address, options=options) as channel:
        stub = store_service_pb2_grpc.StoreServiceStub(channel)
        answer = await stub.GetEntries(request, metadata=(*TOKEN, (RECEIVES, str(6 * MIB))))
    assert answer.entries[0].body_size_bytes == 5 * MIB


@contextlib.asynccontextmanager
async def talking(root, monkeypatch, *answers):
    """The services with a model that gives these answers and takes the longest prompts."""
    async with SseServer(answers) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("TURNWRIGHT_MODEL_m", "openai/m")
        monkeypatch.setenv("TURNWRIGHT_CONTEXT_m", "10000000")
        async with running(root) as services, stock(services.addresses["executor"]) as channel:
            yield services, channel


async def test_a_run_with_the_longest_prompts_and_answers_is_followed_and_read(tmp_path, monkeypatch):
    prompt, answer = "p" * PROMPT_BYTES_MAX, "s" * PROMPT_BYTES_MAX
    answers = [chat(answer, chunk_chars=50_000)] * 2
    async with talking(tmp_path, monkeypatch, *answers) as (services, channel):
        stub = executor_service_pb2_grpc.ExecutorServiceStub(channel)
        key = {"project": services.project, "run": "r"}
        for sequence in (1, 2):
            task = task_pb2.Task(**key, prompt=prompt, settings=settings_pb2.LoopSettings(model="m"))
            queued = (await stub.Ask(task_pb2.AskRequest(task=task), metadata=TOKEN)).queued
            request = executor_service_pb2.WatchRunRequest(**key, after=queued.cursor)
            async for event in stub.WatchRun(request, metadata=TOKEN):
                assert event.ByteSize() < STOCK_MESSAGE_BYTES_MAX
                loop = loop_in(event)
                if loop and loop.sequence == sequence and loop.end_time.seconds:
                    break
            assert event.WhichOneof("event") == "run_state"
        watch = stub.WatchRun(executor_service_pb2.WatchRunRequest(**key), metadata=TOKEN)
        first = await anext(aiter(watch))
        watch.cancel()
        request = run_service_pb2.GetRunRequest(**key, turns_max=100, history_max=1000)
        run = (await run_service_pb2_grpc.RunServiceStub(channel).GetRun(request, metadata=TOKEN)).run
    assert (run.loop.status, run.loop.prompt) == (COMPLETED, prompt)
    assert (first.snapshot.run.loop.prompt, first.snapshot.run.summary) == (prompt, run.summary)
    assert answer.startswith(run.summary)


async def test_a_long_message_that_is_being_streamed_comes_in_pieces_beside_long_texts(tmp_path, monkeypatch):
    content, thought = "\N{GRINNING FACE}" * 524_200, "\N{THINKING FACE}" * 524_200
    streamed = events(delta(reasoning_content=thought), delta(content=content), done=False)
    answers = [chat("s" * PROMPT_BYTES_MAX, chunk_chars=50_000), Answer(chunks=streamed, end="hang")]
    async with talking(tmp_path, monkeypatch, *answers) as (services, channel):
        stub = executor_service_pb2_grpc.ExecutorServiceStub(channel)
        settings = settings_pb2.RunSettings(model="m", persona="o" * PERSONA_BYTES_MAX)
        await services.client.create_run(services.project, "r", settings)
        await services.until(await services.ask("p" * PROMPT_BYTES_MAX))
        queued = await services.ask("p" * PROMPT_BYTES_MAX)
        async with contextlib.aclosing(services.client.watch(queued.project, "r", queued.cursor)) as watch:
            came = 0
            while came < len(content):
                came += sum(len(delta.append_content) for delta in (await anext(watch)).stream_delta.deltas)
        view = RunView()
        request = executor_service_pb2.WatchRunRequest(project=queued.project, run="r")
        async for event in stub.WatchRun(request, metadata=TOKEN):
            view.apply(event)
            if event.snapshot.last:
                break
    assert (view.partial.content, view.partial.reasoning) == (content, thought)
