"""A run as one document. Rows RT01, OM38."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.json_format import ParseDict
from turnwright.documents.v1 import document_service_pb2 as documents

from contract.store.harness import (
    ARCHIVED,
    RESOLVED,
    STREAMING,
    Client,
    Run,
    append,
    new_project,
    remove,
    set_,
    working_run,
)
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio


async def exported(run: Run, **fields: Any) -> documents.RunDocument:
    """The document, which must be JSON that the contract describes."""
    parts = [part async for part in run.client.stream("ExportRun", **run.address, **fields)]
    assert [part.last for part in parts] == [False] * (len(parts) - 1) + [True]
    assert max(len(part.data) for part in parts) <= 512 * 1024
    return ParseDict(json.loads(b"".join(part.data for part in parts)), documents.RunDocument())


async def turn(run: Run, *writes: Any, **result: Any) -> int:
    number = (await run.begin()).next.number
    await run.end(number, *writes, **result)
    return number


async def busy_run(client: Client, project: str) -> Run:
    """A run at rest that has seen a file change, a stream grow, a plan, an entry removed and one brought back."""
    run = await working_run(client, project, "r1")
    await run.write(set_("src/a.py", "one\n"), set_("known://fact", "It is so."), set_("known://gone", "Wrong."))
    await turn(run, set_("assistant://1", "Hello."), packet_digest="a" * 64)
    await run.write(set_("sh://turn_1/out", "1\n", state=STREAMING))
    for text in ("2\n", "3\n"):
        await run.write(append("sh://turn_1/out", text))
    await run.write(set_("src/a.py", "two\n"), remove("known://gone"), set_("known://fact", visibility=ARCHIVED))
    await turn(run, set_("assistant://2", "Zwei \u00e4\U0001f600."), packet_digest="b" * 64)
    await client.call("SetPlan", **run.address, plan={"body": "Do it."})
    await client.call("UpdatePlan", **run.address, delta="And that.")
    await run.write(set_("sh://turn_1/out", state=RESOLVED), set_("known://gone", "Right."))
    await run.end(0, loop=(200, "update", "Done."))
    return run


def history(document: documents.RunDocument) -> dict[str, list[tuple[int, int, str]]]:
    """By path, what was seen from which revision to which, the latest first; bodies where they stand."""
    found: dict[str, list[tuple[int, int, str]]] = {}
    bodies: dict[tuple[str, int], str] = {}
    for one in document.entries:
        entry = one.entry
        if not one.content_revision:
            bodies[entry.path, entry.revision] = entry.body
        body = bodies[entry.path, one.content_revision or entry.revision].encode()[: entry.body_size_bytes].decode()
        found.setdefault(entry.path, []).append((entry.revision, one.end_revision, body))
    return found


async def test_a_document_has_all_that_a_run_has_seen(client, project) -> None:
    run = await busy_run(client, project)
    document = await exported(run)
    assert (document.schema_version, document.complete, document.run.run) == (1, True, "r1")
    assert [(loop.sequence, loop.status, loop.prompt) for loop in document.loops] == [(1, 200, "do it")]
    assert [(one.number, one.request.model, one.result.packet_digest) for one in document.turns] == [
        (2, "fast", "b" * 64),
        (1, "fast", "a" * 64),
    ]
    view = await run.view()
    seen = history(document)
    assert {path: ones[0][2] for path, ones in seen.items() if not ones[0][1]} == view.bodies
    assert [body for *_, body in seen["src/a.py"]] == ["two\n", "one\n"]
    assert [body for *_, body in seen["known://gone"]] == ["Right.", "Wrong."]
    assert [body for *_, body in seen["sh://turn_1/out"]] == ["1\n2\n3\n", "1\n2\n3\n", "1\n2\n", "1\n"]
    assert sum(bool(one.entry.body) for one in document.entries if one.entry.path == "sh://turn_1/out") == 1
    for ones in seen.values():
        assert all(0 < end <= later for (later, *_), (_, end, _) in pairwise(ones))
    listed = await client.call("ListMessages", **run.address)
    assert list(document.messages) == list(listed.messages)
    assert list(document.plans) == list((await client.call("ListPlans", **run.address)).plans)


async def test_a_document_shows_one_moment_though_the_run_goes_on(client, project) -> None:
    run = await working_run(client, project, "r1")
    number = (await run.begin(*(set_(f"known://{index}", "x" * 300_000) for index in range(20)))).next.number
    before = await run.view()
    parts = client.stream("ExportRun", **run.address)
    first = await anext(parts)
    await run.end(number, *(set_(f"known://{index}", "y") for index in range(20)), loop=(200, "text", "Done."))
    data = first.data + b"".join([part.data async for part in parts])
    document = ParseDict(json.loads(data), documents.RunDocument())
    assert {path: ones[0][2] for path, ones in history(document).items()} == before.bodies
    assert [(one.number, one.HasField("result")) for one in document.turns] == [(number, False)]
    assert [(loop.status, loop.reason, loop.HasField("end_time")) for loop in document.loops] == [(102, "", False)]


async def test_the_document_of_a_fork_has_what_it_inherited(client, project) -> None:
    run = await busy_run(client, project)
    forked = await client.call("ForkRun", **run.address, new_run="child", turn=1)
    child = Run(client, project, forked.run.run)
    document = await exported(child)
    assert [(one.number, one.revision, one.result.packet_digest) for one in document.turns] == [(1, 0, "a" * 64)]
    assert document.run.forked_from.run == "r1"
    assert {path: ones[0][2] for path, ones in history(document).items()} == (await child.view()).bodies


async def test_files_are_left_out_on_request(client, project) -> None:
    run = await busy_run(client, project)
    paths = {one.entry.path for one in (await exported(run)).entries}
    left = {one.entry.path for one in (await exported(run, without_files=True)).entries}
    assert paths - left == {"src/a.py"}


async def test_a_run_that_is_deleted_meanwhile_has_no_document(client) -> None:
    project = await new_project(client)
    run = await working_run(client, project, "r1")
    await run.write(*(set_(f"known://{index}", "x" * 300_000) for index in range(20)))
    await run.end(0, loop=(200, "text", "Done."))
    parts = client.stream("ExportRun", **run.address)
    await anext(parts)
    await client.call("DeleteRun", **run.address)
    with pytest.raises(TurnwrightError) as caught:
        _ = [part async for part in parts]
    assert caught.value.reason is Reason.RUN_NOT_FOUND
