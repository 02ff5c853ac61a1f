"""Streaming bodies: what appends, closes and folds come to for whoever reads them."""

import asyncio
import hashlib

import pytest

from contract.store.harness import (
    ARCHIVED,
    FAILED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    append,
    new_run,
    remove,
    set_,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

PATH = "sh://turn_1/x_1"
BODY = "aéézz"
DIGEST = hashlib.sha256(BODY.encode()).hexdigest()


async def refused(call):
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def stream(run):
    """BODY at PATH, in several appends."""
    await run.write(set_(PATH, "a", state=STREAMING))
    for text in ("é", "", "z"):
        await run.write(append(PATH, text), append(PATH, text))


async def folded(run, path=PATH):
    """The entry once it has its digest."""
    async with asyncio.timeout(60):
        while not (entry := await run.entry(path)).hash:  # noqa: ASYNC110 - the fold wakes nobody
            await asyncio.sleep(0.05)
    return entry


async def test_a_streaming_body_grows(run):
    await stream(run)
    growing = await run.entry(PATH)
    assert (growing.body, growing.body_size_bytes, growing.hash, growing.state) == (BODY, 7, "", STREAMING)


async def test_a_closed_body_is_folded_without_anybody_seeing_a_change(run):
    """The digest comes with the fold; neither the body nor a revision changes."""
    await stream(run)
    cursor = (await run.write(set_(PATH, state=RESOLVED))).cursor
    closed = await run.entry(PATH)
    assert (closed.body, closed.state, closed.body_size_bytes) == (BODY, RESOLVED, 7)
    whole = await folded(run)
    assert whole.hash == DIGEST
    closed.hash = whole.hash
    assert whole == closed
    assert await run.view(after=cursor) == await run.view(after=(await run.view()).cursor)


async def test_a_body_that_goes_on_after_a_fold_is_whole(run):
    await stream(run)
    await run.write(set_(PATH, state=RESOLVED))
    await folded(run)
    await run.write(set_(PATH, state=STREAMING))
    await run.write(append(PATH, "more"))
    assert (await run.entry(PATH)).body == BODY + "more"
    await run.write(set_(PATH, state=FAILED))
    again = await folded(run)
    assert (again.body, again.hash) == (BODY + "more", hashlib.sha256((BODY + "more").encode()).hexdigest())


async def test_a_folded_body_that_is_set_to_itself_makes_no_version(run):
    await stream(run)
    await run.write(set_(PATH, visibility=ARCHIVED, state=RESOLVED))
    first = await folded(run)
    await run.write(set_(PATH, attributes="{}"))
    second = await run.entry(PATH)
    assert (second.hash, second.update_time) == (first.hash, second.update_time)
    assert second.write_count == first.write_count + 1


@pytest.mark.parametrize("is_folded", [False, True])
async def test_a_removed_stream_comes_back_whole(run, is_folded):
    """RU095: the content stays; what was appended is part of it, folded or not."""
    await stream(run)
    await run.write(append(PATH, "!"), remove(PATH))
    assert await run.entry(PATH) is None
    if is_folded:
        await asyncio.sleep(2.5)
    await run.write(set_(PATH, state=STREAMING))
    await run.write(append(PATH, "?"))
    assert (await run.entry(PATH)).body == BODY + "!?"


async def test_attributes_of_a_stream_change_without_loss(run):
    await stream(run)
    await run.write(set_(PATH, attributes='{"n":1}'))
    await run.write(append(PATH, "more"))
    entry = await run.entry(PATH)
    assert (entry.body, entry.attributes_json) == (BODY + "more", '{"n":1}')


async def test_a_stream_that_is_set_anew_begins_again(run):
    await stream(run)
    await run.write(set_(PATH, "new"), append(PATH, "er"))
    assert (await run.entry(PATH)).body == "newer"
    await run.write(append(PATH, "!"))
    assert (await run.entry(PATH)).body == "newer!"


async def test_an_append_past_the_longest_body_is_refused(run):
    """The limit holds for the whole body, whatever the pieces."""
    piece = "x" * 1024 * 1024
    await run.write(set_(PATH, piece * 15, state=STREAMING))
    await run.write(append(PATH, piece))
    error = await refused(run.write(append(PATH, "y")))
    limit = 16 * 1024 * 1024
    metadata = {"field": "body", "limit": str(limit), "actual": str(limit + 1), "unit": "bytes", "path": PATH}
    assert (error.reason, error.metadata) == (Reason.LIMIT_EXCEEDED, metadata)
    assert (await run.entry(PATH)).body_size_bytes == 16 * 1024 * 1024


async def test_a_streaming_body_survives_every_order_of_writes(run):
    path = "sh://turn_1/x_1"
    await run.write(set_(path, "a", state=STREAMING), append(path, "b"))
    await run.write(append(path, "c"), set_(path, visibility=SUMMARIZED), append(path, "d"))
    await run.write(set_(path, attributes='{"n":1}'), append(path, "e"))
    await run.write(append(path, "f"))
    await run.write(remove(path))
    await run.write(set_(path, state=STREAMING))
    await run.write(append(path, "g"))
    entry = await run.entry(path)
    assert (entry.body, entry.attributes_json) == ("abcdefg", '{"n":1}')
    await run.write(set_(path, "new"), append(path, "er"))
    assert (await run.entry(path)).body == "newer"


async def test_a_shared_body_that_grows_is_seen_by_every_run(client, project, run):
    other = await new_run(client, project, "other")
    await run.write(set_("http://e.org/", "a", state=STREAMING))
    await client.call("WriteEntries", **other.address, writes=[set_("http://e.org/", state=STREAMING)])
    await run.write(append("http://e.org/", "b"))
    await client.call("WriteEntries", **other.address, writes=[append("http://e.org/", "c")])
    assert ((await run.entry("http://e.org/")).body, (await other.entry("http://e.org/")).body) == ("abc", "abc")


async def test_only_a_streaming_entry_can_be_appended_to(run):
    await run.write(set_("known://a", "x"))
    assert (await refused(run.write(append("known://a", "y")))).reason is Reason.TRANSITION_FORBIDDEN
    assert (await refused(run.write(append("known://b", "y")))).reason is Reason.ENTRY_NOT_FOUND
