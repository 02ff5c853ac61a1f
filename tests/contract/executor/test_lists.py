"""Lists of clients, page by page: runs, models, entries. Rows RU227, RU229, RU238."""

from __future__ import annotations

import pytest
from turnwright.entries.v1 import entry_service_pb2, entry_service_pb2_grpc
from turnwright.executor.v1 import executor_service_pb2_grpc
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.types.v1 import model_pb2

from services import SECRET
from turnwright_kit.peer import Peer

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'


async def pages(services, method, request, field, stub=executor_service_pb2_grpc.ExecutorServiceStub):
    """Every page of a list: what it holds, two at a time."""
    peer = Peer("executor", services.addresses["executor"], SECRET, 10.0)
    call = getattr(stub(peer.channel), method)
    request.page_size, found = 2, []
    while not found or request.page_token:
        page = await peer.call(call, request)
        found.append(list(getattr(page, field)))
        request.page_token = page.next_page_token
    await peer.close()
    return found


async def worked(services, run, *replies):
    services.script(*replies or (DONE,))
    await services.until(await services.act(run=run))


async def test_runs_are_listed_in_pages_the_latest_written_first(services):
    """RU238."""
    for run in ("a", "b", "c"):
        await worked(services, run)
    request = run_service_pb2.ListRunsRequest(project=services.project)
    found = await pages(services, "ListRuns", request, "runs", run_service_pb2_grpc.RunServiceStub)
    assert [[run.run for run in page] for page in found] == [["c", "b"], ["a"]]


async def test_models_are_listed_in_pages_by_alias(services):
    """RU227."""
    for alias in ("z", "k"):
        await services.client.set_model(
            model_pb2.Model(alias=alias, vendor_model=f"scripted/{alias}", context_length=4096)
        )
    models = model_service_pb2_grpc.ModelServiceStub
    found = await pages(services, "ListModels", model_service_pb2.ListModelsRequest(), "models", models)
    assert [[model.alias for model in page] for page in found] == [["k", "m"], ["z"]]
    assert (found[0][0].vendor_model, found[0][0].context_length) == ("scripted/k", 4096)


async def test_entries_are_those_of_the_run_that_was_written_last_unless_one_is_named(services):
    """RU229: by pattern and body, in pages."""
    notes = "".join(f'<set path="known://{name}">{name} of r</set>' for name in "abc")
    await worked(services, "r", notes + DONE)
    await worked(services, "later", '<set path="known://d">d of later</set>' + DONE)

    async def known(**fields):
        request = entry_service_pb2.ListEntriesRequest(project=services.project, pattern="known://*", **fields)
        found = await pages(services, "ListEntries", request, "entries", entry_service_pb2_grpc.EntryServiceStub)
        return [[one.body for one in page] for page in found]

    assert await known() == [["d of later"]]
    assert await known(run="r") == [["a of r", "b of r"], ["c of r"]]
    assert await known(run="r", body_pattern="b of") == [["b of r"]]
