"""What a project says of its files holds in its loops. Rows RU113-RU116, RU118, RU168, RU228."""

import pytest
from turnwright.types.v1 import entry_pb2
from turnwright.types.v1.project_pb2 import FILE_CONSTRAINT_KIND_ADD as ADD
from turnwright.types.v1.project_pb2 import FILE_CONSTRAINT_KIND_IGNORE as IGNORE
from turnwright.types.v1.project_pb2 import FILE_CONSTRAINT_KIND_READONLY as READONLY

from turnwright_core.errors import InvalidError, MissingError

pytestmark = pytest.mark.asyncio

SET = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>'
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'


async def constrain(services, **said):
    """Constraints by pattern; `_` stands for a dot."""
    constraints = {pattern.replace("_", "."): kind for pattern, kind in said.items()}
    await services.client.set_file_constraints(services.project, constraints)


async def test_the_change_of_a_readonly_file_is_refused_at_the_gate(services):
    """RU113, RU116: of every run of the project, from its next loop on."""
    await constrain(services, a_txt=READONLY)
    for run in ("r", "s"):
        services.script(SET + GO_ON, DONE, SET + GO_ON, DONE)
        await services.until(await services.act(run=run))
        assert await services.status("log://turn_1/set/a.txt", run) == 403
    assert (services.files / "a.txt").read_text() == "old\n"


async def test_an_ignored_file_has_no_entry(services):
    """RU114, RU116: not any more either."""
    (services.files / "b.txt").write_text("here\n")
    services.script(DONE, DONE, DONE)
    await services.until(await services.act())
    assert (await services.entry("b.txt")).body == "here\n"
    await constrain(services, b_txt=IGNORE)
    await services.until(await services.act())
    with pytest.raises(MissingError):
        await services.entry("b.txt")
    assert (await services.entry("a.txt")).body == "old\n"


async def test_files_are_archived_at_first_but_for_those_that_the_project_asks_for(services):
    """RU115, RU168, C7. Seen by the model in its first packet; afterwards the run decides (RU116)."""
    for name in "bcd":
        (services.files / f"{name}.txt").write_text(f"text of {name}\n")
    await constrain(services, b_txt=ADD, c_txt=ADD, d_txt=READONLY)
    services.script('<set path="c.txt" visibility="archived"/>' + GO_ON, DONE, DONE)
    await services.until(await services.act())
    packets = [(await services.entry(f"user://{turn}")).body for turn in (1, 2)]
    await services.until(await services.act())
    shown = {path: (await services.entry(path)).visibility for path in ("a.txt", "b.txt", "c.txt", "d.txt")}
    assert [[f"text of {name}" in packet for name in "bcd"] for packet in packets] == [
        [True, True, False],
        [True, False, False],
    ]
    archived, visible = entry_pb2.VISIBILITY_ARCHIVED, entry_pb2.VISIBILITY_VISIBLE
    assert shown == {"a.txt": archived, "b.txt": visible, "c.txt": archived, "d.txt": archived}


@pytest.mark.parametrize(
    ("flags", "kind", "text"),
    [({"persist": ""}, ADD, "new\n"), ({"persist": "true", "readonly": ""}, READONLY, "old\n")],
)
async def test_a_get_that_persists_sets_the_constraint_and_promotes(services, flags, kind, text):
    """RU118, RU228: of the project, so that other runs have it too."""
    services.script(DONE)
    await services.until(await services.act())
    record = await services.client.call_tool(services.project, "r", "get", {"path": "a.txt", **flags})
    (kept,) = await services.client.list_file_constraints(services.project)
    services.script('<set path="a.txt">new</set>' + GO_ON, DONE)
    await services.until(await services.act(run="other"))
    assert (record.status, (await services.entry("a.txt")).visibility) == (200, entry_pb2.VISIBILITY_VISIBLE)
    assert (kept.pattern, kept.kind) == ("a.txt", kind)
    assert (services.files / "a.txt").read_text() == text


async def test_a_get_keeps_nothing_unless_it_says_so_and_only_files(services):
    """RU118: what a model says is about its own view."""
    services.script('<get path="a.txt" persist/>' + DONE)
    await services.until(await services.act())
    call = services.client.call_tool
    await call(services.project, "r", "get", {"path": "a.txt", "persist": "false", "readonly": ""})
    with pytest.raises(InvalidError) as refused:
        await call(services.project, "r", "get", {"path": "known://a", "persist": ""})
    assert refused.value.metadata["field"] == "attributes.path"
    assert await services.client.list_file_constraints(services.project) == []


async def test_a_refused_change_of_constraints_takes_none_away(services):
    # RU117
    await services.client.set_file_constraints(services.project, {"a": IGNORE})
    with pytest.raises(InvalidError):
        await services.client.set_file_constraints(services.project, {"../b": ADD}, remove=["a"])
    found = await services.client.list_file_constraints(services.project)
    assert [(one.pattern, one.kind) for one in found] == [("a", IGNORE)]
