"""Limits of writes: each is refused before work starts, with the field, the limit, the figure and the unit."""

import asyncio
import hashlib

import pytest
import pytest_asyncio
from turnwright.types.v1 import model_pb2
from turnwright_values.store import CopyEntry, EntryWrite
from turnwright_values.types import Tier

from contract.store.harness import (
    FAILED,
    POSTGRESQL_ONLY,
    STREAMING,
    Client,
    append,
    new_project,
    remove,
    set_,
    start_store,
    working_run,
)
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import write_to_pb
from turnwright_store.config import StoreSettings
from turnwright_store.domain.limits import WriteLimits

pytestmark = pytest.mark.asyncio

MIB = 1024 * 1024


async def refused(call):
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


def over(field, limit, actual, unit, path=None):
    """What is said of a field; `path` is that of the write whose field it is."""
    of = {} if path is None else {"path": path}
    return {"field": field, "limit": str(limit), "actual": str(actual), "unit": unit, **of}


@pytest.mark.parametrize(
    ("write", "field", "reason"),
    [
        (set_("known://" + "x" * 2041, "x"), "path", Reason.LIMIT_EXCEEDED),
        (set_("", "x"), "path", Reason.INVALID_FIELD),
        (set_("known://a\nb", "x"), "path", Reason.INVALID_FIELD),
        (set_("known://a\x00b", "x"), "path", Reason.INVALID_FIELD),
        (set_("known://a", "é" * (8 * 1024 * 1024 + 1)), "body", Reason.LIMIT_EXCEEDED),
        (set_("known://a", "x", "[1]"), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", "{"), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", '{"n":NaN}'), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", '{"n":' * 200 + "1" + "}" * 200), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", '{"n":' + "[" * 5000 + "]" * 5000 + "}"), "attributes_json", Reason.INVALID_FIELD),
        (set_("known://a", "x", '{"n":"' + "x" * 1024 * 1024 + '"}'), "attributes_json", Reason.LIMIT_EXCEEDED),
        (append("known://a", "x" * (1024 * 1024 + 1)), "text", Reason.LIMIT_EXCEEDED),
    ],
    ids=[
        "path-too-long", "path-empty", "path-newline", "path-nul", "body-too-long", "attributes-list",
        "attributes-broken", "attributes-nan", "attributes-deep", "attributes-deeper", "attributes-too-long",
        "append-too-long",
    ],
)  # fmt: skip
async def test_a_write_over_a_limit_is_refused(run, write, field, reason):
    """RU049, RU051."""
    error = await refused(run.write(set_("known://first", "x"), write))
    assert (error.reason, error.metadata["field"]) == (reason, field)
    assert await run.entry("known://first") is None


# Only PostgreSQL has indexes that cannot hold every path; SQLite stores it.
@POSTGRESQL_ONLY
async def test_a_path_that_no_index_holds_is_refused_and_no_other_write_with_it(run):
    """Made of digests: nothing that can be compressed."""
    digest = b"".join(hashlib.sha256(bytes([number])).digest() for number in range(64))
    path = "known://" + "".join(chr(0x4E00 + byte) for byte in digest)[:2040]
    told, *others = await asyncio.gather(
        refused(run.write(set_(path, "x"))), *(run.write(set_(f"known://{number}", "y")) for number in range(8))
    )
    assert (told.reason, told.metadata["field"], told.metadata["limit"]) == (Reason.LIMIT_EXCEEDED, "path", "2704")
    assert [list(other.paths) for other in others] == [[f"known://{number}"] for number in range(8)]


@pytest.mark.parametrize(
    ("rpc", "fields", "field"),
    [
        ("WriteEntries", {"request_id": "a\0"}, "request_id"),
        ("WriteEntries", {"writes": [set_("known://a", "x", state=FAILED, outcome="a\0")]}, "outcome"),
        ("InitProject", {"root": "/a\0", "workspace_id": "w"}, "root"),
        ("InitProject", {"root": "/a", "workspace_id": "w\0"}, "workspace_id"),
        ("SetModel", {"model": model_pb2.Model(alias="a", vendor_model="a/b\0")}, "vendor_model"),
    ],
)
async def test_a_short_text_has_no_nul(run, rpc, fields, field):
    address = run.address if rpc == "WriteEntries" else {}
    error = await refused(run.client.call(rpc, **address, **fields))
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, field)


@pytest.mark.parametrize("what", ["project", "run"])
async def test_a_name_with_nul_is_nobodys(run, what):
    """Not found on one database; the other cannot even be asked."""
    error = await refused(run.client.call("GetRun", **run.address | {what: "a\0b"}))
    assert error.reason in (Reason.PROJECT_NOT_FOUND, Reason.RUN_NOT_FOUND, Reason.INVALID_FIELD)


async def test_a_path_of_2048_characters_is_stored(run):
    """RU049."""
    path = "known://" + "é" * 2040
    await run.write(set_(path, "x"))
    assert (await run.entry(path)).body == "x"


@pytest_asyncio.fixture
async def tight(tmp_path):
    """A run of a store with limits below the contract's."""
    server = await start_store(
        tmp_path,
        write_limits=WriteLimits(
            body_bytes_max=2048,
            attributes_bytes_max=1024,
            path_chars_max=64,
            append_bytes_max=1024,
            writes_max=4,
            run_entries_max=6,
            bodies_bytes_max=16 * MIB,
        ),
    )
    client = Client(server.address)
    yield await working_run(client, await new_project(client), "r1")
    await client.close()
    await server.stop()


TIGHT = [
    ("body", [set_("known://a", "é" * 1025)], over("body", 2048, 2050, "bytes", "known://a")),
    (
        "attributes",
        [set_("known://b", ""), set_("known://a", "", f'{{"n":"{"x" * 1020}"}}')],
        over("attributes_json", 1024, 1028, "bytes", "known://a"),
    ),
    ("path", [set_("known://" + "x" * 57, "")], over("path", 64, 65, "characters", "known://" + "x" * 57)),
    ("append", [append("known://old", "x" * 1025)], over("text", 1024, 1025, "bytes", "known://old")),
    ("writes", [set_(f"known://{n}", "") for n in range(5)], over("writes", 4, 5, "items")),
    (
        "entries",
        [set_(f"known://{n}", "") for n in range(4)],
        # The run's own entry and known://old are there.
        over("run_entries", 5, 6, "entries") | {"limit": "6", "actual": "7"},
    ),
]


@pytest.mark.parametrize(("writes", "metadata"), [row[1:] for row in TIGHT], ids=[row[0] for row in TIGHT])
async def test_a_limit_bounds_what_is_written(tight, writes, metadata):
    await tight.write(set_("known://old", "x" * 2000, state=STREAMING), set_("known://gone", "x"))
    before = await tight.view()
    error = await refused(tight.write(*writes))
    assert (error.reason, error.metadata) == (Reason.LIMIT_EXCEEDED, metadata)
    assert await tight.view() == before


async def test_a_merge_is_bounded_by_what_it_comes_to(tight):
    await tight.write(set_("known://a", "", f'{{"a":"{"x" * 600}"}}'))
    error = await refused(tight.write(set_("known://a", merge_attributes_json=f'{{"b":"{"x" * 600}"}}')))
    assert (error.reason, error.metadata) == (
        Reason.LIMIT_EXCEEDED,
        over("merge_attributes_json", 1024, 1215, "bytes", "known://a"),
    )


async def test_an_entry_that_left_the_view_still_counts(tight):
    """What ever entered the view has a place in the timeline, which no other entry gets."""
    for number in range(5):
        await tight.write(set_(f"known://{number}", "x"))
        await tight.write(remove(f"known://{number}"))
    error = await refused(tight.write(set_("known://new", "x")))
    assert error.metadata == over("run_entries", 6, 7, "entries")
    await tight.write(set_("run://r1", visibility=2, writer=Tier.PLUGIN))


async def test_copies_in_one_request_are_bounded_by_their_bytes(run):
    """A copy costs the caller a path, and the store a body."""
    body = "x" * 15 * MIB
    await run.write(set_("known://a", body))
    copies = [write_to_pb(EntryWrite("known://a", CopyEntry(f"known://c{n}"), Tier.MODEL)) for n in range(5)]
    error = await refused(run.write(*copies))
    assert (error.reason, error.metadata) == (
        Reason.LIMIT_EXCEEDED,
        over("writes", 64 * MIB, 75 * MIB, "bytes of bodies", "known://a"),
    )
    assert await run.entry("known://c0") is None


CONTRACT = {
    "body_bytes_max": 16 * MIB,
    "attributes_bytes_max": MIB,
    "path_chars_max": 2048,
    "append_bytes_max": MIB,
    "writes_max": 10_000,
}


@pytest.mark.parametrize(("name", "limit"), CONTRACT.items())
async def test_a_limit_is_what_the_contract_says(tmp_path, monkeypatch, name, limit):
    monkeypatch.setenv(f"TURNWRIGHT_{name.upper()}", str(limit + 1))
    assert getattr(StoreSettings(home=tmp_path).write_limits, name) == limit
