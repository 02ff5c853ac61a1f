"""Writes to paths that a fork inherited: content of its own replaces what it sees, a change of the view alone does not.

C18; RU060.
"""

import pytest
import pytest_asyncio
from turnwright_values.store import CopyEntry, EntryWrite, MoveEntry
from turnwright_values.types import Tier

from contract.store.harness import (
    ARCHIVED,
    RESOLVED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    Run,
    append,
    new_run,
    remove,
    set_,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.wire.entries import write_to_pb

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES

STREAM = "sh://turn_1/x_1"
LONG = "é" * 5000


@pytest_asyncio.fixture(loop_scope="module")
async def child(run):
    """A fork of `run`, in which one entry is set, one streams, and one is shared."""
    await run.write(set_("known://a", "parent's", '{"n":1}', visibility=SUMMARIZED), set_("src/a.py", "shared"))
    await run.write(set_(STREAM, "a", state=STREAMING))
    await run.write(append(STREAM, LONG))
    forked = await run.client.call("ForkRun", **run.address, new_run="child")
    return Run(run.client, run.project, forked.run.run)


async def write(run, *writes):
    return await run.client.call("WriteEntries", **run.address, writes=writes)


async def state_of(run):
    return [entry for entry in (await run.view()).entries if entry.path != "run://r1"]


WRITES = {
    "body": set_("known://a", "child's"),
    "attributes": set_("known://a", attributes='{"n":2}'),
    "merge": set_("known://a", merge_attributes_json='{"m":2}'),
    "same": set_("known://a", "parent's", '{"n":1}'),
}
CONTENTS = {
    "body": ("child's", '{"n":1}'),
    "attributes": ("parent's", '{"n":2}'),
    "merge": ("parent's", '{"n":1,"m":2}'),
    "same": ("parent's", '{"n":1}'),
}


@pytest.mark.parametrize("kind", WRITES)
async def test_content_of_a_forks_own_replaces_its_view(run, child, kind):
    before = await state_of(run)
    position = (await child.entry("known://a")).position
    await write(child, WRITES[kind])
    entry = await child.entry("known://a")
    assert (entry.body, entry.attributes_json) == CONTENTS[kind]
    assert (entry.visibility, entry.position, entry.write_count) == (SUMMARIZED, position, 2)
    assert [path for path in (await child.view()).paths if path == "known://a"] == ["known://a"]
    assert await state_of(run) == before


async def test_a_change_of_the_view_alone_keeps_the_inherited_version(run, child):
    inherited = await child.entry("known://a")
    await write(child, set_("known://a", visibility=ARCHIVED))
    entry = await child.entry("known://a")
    assert (entry.visibility, entry.body, entry.hash, entry.update_time) == (
        ARCHIVED,
        inherited.body,
        inherited.hash,
        inherited.update_time,
    )
    await run.write(set_("known://a", "newer"))
    assert (await child.entry("known://a")).body == "parent's"


async def test_a_fork_goes_on_with_the_entry_that_it_made(run, child):
    await write(child, set_("known://a", "one"))
    await write(child, remove("known://a"))
    assert (await run.entry("known://a")).body == "parent's"
    await write(child, set_("known://a", visibility=VISIBLE))
    assert (await child.entry("known://a")).body == "one"
    await write(child, set_("known://a", "two"))
    assert ((await child.entry("known://a")).body, (await run.entry("known://a")).body) == ("two", "parent's")


async def test_an_inherited_entry_that_left_the_view_is_not_known(run, child):
    await write(child, remove("known://a"))
    with pytest.raises(TurnwrightError) as caught:
        await write(child, set_("known://a", visibility=VISIBLE))
    assert caught.value.reason is Reason.ENTRY_NOT_FOUND
    await write(child, set_("known://a", "new"))
    assert ((await child.entry("known://a")).body, (await run.entry("known://a")).body) == ("new", "parent's")


async def test_an_append_in_a_fork_never_grows_the_parents_body(run, child):
    """Both go on from what there was, each for itself."""
    await write(child, set_(STREAM, state=STREAMING))
    await write(child, append(STREAM, "child"))
    await run.write(append(STREAM, "parent"))
    await write(child, append(STREAM, "!"))
    await run.write(append(STREAM, "?"))
    assert (await child.entry(STREAM)).body == f"a{LONG}child!"
    assert (await run.entry(STREAM)).body == f"a{LONG}parent?"
    await run.write(set_(STREAM, state=RESOLVED))
    assert (await child.entry(STREAM)).body_size_bytes == len(f"a{LONG}child!".encode())


async def test_a_fork_of_a_growing_body_keeps_the_piece_that_it_saw(run, child):
    """While the parent appends, closes and folds."""
    await run.write(append(STREAM, "more"))
    await write(child, set_(STREAM, attributes='{"n":1}'))
    await run.write(set_(STREAM, state=RESOLVED))
    assert ((await child.entry(STREAM)).body, (await run.entry(STREAM)).body) == (f"a{LONG}", f"a{LONG}more")


@pytest.mark.parametrize("make", [CopyEntry, MoveEntry])
async def test_an_inherited_entry_is_copied_as_the_fork_sees_it(run, child, make):
    await run.write(append(STREAM, "more"), set_("known://a", "newer"))
    before = await state_of(run)
    for path in (STREAM, "known://a"):
        await write(child, write_to_pb(EntryWrite(path, make(f"known://copy/{path}"), Tier.PLUGIN)))
    assert (await child.entry(f"known://copy/{STREAM}")).body == f"a{LONG}"
    assert (await child.entry("known://copy/known://a")).body == "parent's"
    assert (await child.entry(STREAM) is None) is (make is MoveEntry)
    assert await state_of(run) == before


async def test_a_grandchild_inherits_what_the_child_made(run, child):
    await write(child, set_("known://a", "child's"))
    forked = await run.client.call("ForkRun", **child.address, new_run="grandchild")
    grandchild = Run(run.client, run.project, forked.run.run)
    await write(child, set_("known://a", "later"))
    assert (await grandchild.entry("known://a")).body == "child's"
    await write(grandchild, set_("known://a", "grandchild's"))
    bodies = [(await one.entry("known://a")).body for one in (run, child, grandchild)]
    assert bodies == ["parent's", "later", "grandchild's"]


async def test_shared_entries_are_written_where_they_are(run, child):
    await write(child, set_("src/a.py", "newer"))
    other = await new_run(run.client, run.project, "other")
    await write(other, set_("src/a.py", visibility=VISIBLE))
    assert {(await one.entry("src/a.py")).body for one in (run, child, other)} == {"newer"}
