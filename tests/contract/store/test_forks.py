"""Forks: what the child begins with, and that neither side sees the other's later writes."""

import pytest
from turnwright.store.v1 import write_pb2
from turnwright.types.v1 import run_pb2, settings_pb2
from turnwright.types.v1.command_record_pb2 import CommandRecord, Effect
from turnwright_values.types import Tier

from contract.store.counting import row_counts
from contract.store.harness import (
    CANCELLED,
    FAILED,
    PROPOSED,
    RECORDED,
    STREAMING,
    SUMMARIZED,
    VISIBLE,
    Run,
    append,
    new_run,
    remove,
    set_,
    working_run,
)
from contract.store.shared_store import ON_A_SHARED_STORE, SHARED_FIXTURES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STORE
db, client, project, run = SHARED_FIXTURES


async def fork(parent: Run, alias: str = "", turn: int = 0, **more) -> Run:
    forked = await parent.client.call("ForkRun", **parent.address, new_run=alias, turn=turn, **more)
    return Run(parent.client, parent.project, forked.run.run)


async def work(run: Run) -> Run:
    """The run with a running loop, held by its owner."""
    await run.enqueue()
    await run.claim()
    return run


async def turn(run: Run, *writes: write_pb2.EntryWrite) -> int:
    """A turn with these writes, from its begin to its end."""
    number = (await run.begin(*writes)).next.number
    await run.end(number)
    return number


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


def seen(view) -> list:
    """What a view shows, without what tells the run and the moment; a body's digest comes when it is folded."""
    shown = []
    for entry in view.entries:
        copy = type(entry)()
        copy.CopyFrom(entry)
        for field in ("scope", "revision", "hash"):
            copy.ClearField(field)
        shown.append(copy)
    return shown


async def test_a_fork_sees_what_its_parent_sees(run):
    """RU060, RU064, RU219: bodies, attributes, visibility, states, turns, loops and positions are those of the parent."""
    await turn(run, set_("known://a", "one", '{"x":1}'), set_("known://b", "two", visibility=SUMMARIZED))
    await turn(run, set_("known://a", "newer"), set_("file.py", "code"), set_("skill://s", "shared"))
    child = await fork(run, "child")
    assert seen(await child.view()) == seen(await run.view())
    assert [entry.revision for entry in (await child.view()).entries] == [1] * len((await run.view()).entries)


async def test_a_fork_copies_views_and_no_content(own_run, own_db, tmp_path):
    """RU060: the child costs a run, a scope, the rows of its views and one that says who made it."""
    await turn(own_run, set_("known://a", "one"), set_("known://gone", "x"), set_("file.py", "code"))
    await own_run.write(set_("known://a", "two"), remove("known://gone"))
    before, views = row_counts(own_db, tmp_path), len((await own_run.view()).entries)
    await fork(own_run, "child")
    after = row_counts(own_db, tmp_path)
    grown = {name: after[name] - count for name, count in before.items() if after[name] != count}
    assert grown == {"runs": 1, "scopes": 1, "views": views, "audit": 1}


async def test_a_fork_is_a_queued_run_with_its_parents_settings(client, project):
    settings = settings_pb2.RunSettings(model="fast", temperature=0.5, persona="a cat", context_limit=4096, calls=2)
    await client.call("CreateRun", project=project, run="r1", settings=settings)
    run = await work(Run(client, project, "r1"))
    await turn(run)
    await turn(run)
    child = await (await fork(run, "child")).get()
    expected = run_pb2.Run(
        project=project,
        run="child",
        settings=settings,
        status=100,
        turn=2,
        revision=1,
        forked_from=run_pb2.ForkOrigin(run="r1", turn=2),
    )
    expected.create_time.CopyFrom(child.create_time)
    expected.update_time.CopyFrom(child.update_time)
    assert child == expected
    assert child.create_time.ToMilliseconds() >= (await run.get()).create_time.ToMilliseconds()


async def test_turns_loops_and_positions_go_on_in_a_fork(run):
    """RU219: numbers are never used twice, so that a record of the child never takes the path of an inherited one."""
    await turn(run, set_("log://turn_1/get/x", "old"))
    last = max(entry.position for entry in (await run.view()).entries)
    child = await fork(run, "child")
    enqueued = await child.enqueue()
    await child.claim()
    begun = await child.begin(set_("log://turn_{turn}/get/x", "new"))
    entries = {entry.path: entry for entry in (await child.view()).entries}
    assert (enqueued.loop.sequence, begun.next.number, begun.next.loop) == (2, 2, 2)
    assert (entries["log://turn_1/get/x"].turn, entries["log://turn_2/get/x"].turn) == (1, 2)
    assert entries["run://child"].position > last
    assert list((await child.client.call("ListTurns", **child.address)).turns) == [begun.next]


async def test_neither_side_sees_the_others_later_writes(run):
    """C18: a write to an inherited path makes an entry of the writer's own."""
    await turn(run, *(set_(f"known://{name}", "before") for name in "abcd"))
    child = await work(await fork(run, "child"))
    await run.write(set_("known://a", "parent"), remove("known://b"), set_("known://new", "parent"))
    await child.write(set_("known://c", "child"), remove("known://d"), set_("known://fresh", "child"))
    parents, childs = await run.view(filter=3), await child.view(filter=3)

    def known(view):
        return {path.removeprefix("known://"): body for path, body in view.bodies.items() if path.startswith("known")}

    assert known(parents) == {"a": "parent", "c": "before", "d": "before", "new": "parent"}
    assert known(childs) == {"a": "before", "b": "before", "c": "child", "fresh": "child"}


async def test_a_write_to_an_inherited_path_replaces_the_view_of_it(run):
    """C18: one path, one view, which keeps its place."""
    await turn(run, set_("known://a", "before", '{"x":1}'))
    child = await work(await fork(run, "child"))
    old = await child.entry("known://a")
    await child.write(set_("known://a", "after"))
    new = await child.entry("known://a")
    assert [path for path in (await child.view()).paths if path == "known://a"] == ["known://a"]
    assert (new.body, new.attributes_json, new.position) == ("after", '{"x":1}', old.position)
    assert new.write_count == old.write_count + 1
    assert (await run.entry("known://a")).body == "before"


async def test_a_change_of_visibility_stays_in_its_run(run):
    await turn(run, set_("known://a", "text"))
    child = await work(await fork(run, "child"))
    await child.write(set_("known://a", visibility=SUMMARIZED))
    assert (await child.entry("known://a")).visibility == SUMMARIZED
    assert (await run.entry("known://a")).visibility == VISIBLE


async def test_shared_entries_stay_shared(run):
    await turn(run, set_("file.py", "v1"))
    child = await work(await fork(run, "child"))
    await run.write(set_("file.py", "v2"))
    assert (await child.entry("file.py")).body == "v2"
    await child.write(set_("file.py", "v3"))
    assert (await run.entry("file.py")).body == "v3"


async def test_what_had_not_ended_is_cancelled_in_a_fork(run):
    await run.begin(
        set_("log://turn_1/sh/a", "a", state=RECORDED),
        set_("log://turn_1/sh/b", "b", state=PROPOSED),
        set_("sh://turn_1/c_1", "c", state=STREAMING),
        set_("log://turn_1/get/d", "d"),
    )
    child = await fork(run, "child")
    states = {entry.path: (entry.state, entry.outcome, entry.body) for entry in (await child.view(filter=3)).entries}
    assert {path: shown for path, shown in states.items() if "turn_1" in path} == {
        "log://turn_1/sh/a": (CANCELLED, "aborted:499", "a"),
        "log://turn_1/sh/b": (CANCELLED, "aborted:499", "b"),
        "sh://turn_1/c_1": (CANCELLED, "aborted:499", "c"),
        "log://turn_1/get/d": (4, "", "d"),
    }
    assert (await run.entry("log://turn_1/sh/b")).state == PROPOSED


def begun(number, **stage):
    """The record of a command of the first turn, as far as it came."""
    record = CommandRecord(tool="sh", ordinal=number, **stage)
    state = PROPOSED if "proposed" in stage else RECORDED
    path = f"log://turn_1/sh/{number}"
    return set_(path, "run it", state=state, record=record.SerializeToString(), writer=Tier.SYSTEM)


async def test_what_may_have_happened_is_not_cancelled_in_a_fork(run):
    # C63: told cancelled, it did not happen
    sh = Effect(command={"command": "make"})
    await run.begin(
        begun(1, accepted={"effect": sh}),
        begun(2, dispatched={"effect": sh}, effect_class="EFFECT_CLASS_OUTSIDE"),
        begun(3, dispatched={"effect": sh}, effect_class="EFFECT_CLASS_PURE"),
        begun(4, proposed={"effect": {"question": {"question": "?"}}, "interrupted": sh}),
        begun(5, proposed={"effect": {"client_tool": {}}}),
    )
    child = await fork(run, "child")
    told = [await child.entry(f"log://turn_1/sh/{number}") for number in range(1, 6)]
    unknown = (FAILED, "indeterminate:500")
    assert [(one.state, one.outcome) for one in told] == [
        (CANCELLED, "aborted:499"), unknown, (CANCELLED, "aborted:499"), unknown, unknown
    ]  # fmt: skip
    assert ["Look whether it happened" in one.body for one in told] == [False, True, False, True, True]
    assert (await run.entry("log://turn_1/sh/2")).state == RECORDED


async def test_a_fork_in_an_open_turn_follows_the_turn_before(run):
    await turn(run)
    await run.begin()
    child = await (await fork(run, "child")).get()
    assert (child.turn, child.forked_from.turn) == (2, 1)
    await run.end(2)
    error = await refused(fork(Run(run.client, run.project, "child"), "grandchild", 2))
    assert (error.reason, error.metadata) == (Reason.TURN_NOT_FOUND, {"run": "child", "turn": "2"})


async def test_a_streaming_body_is_cut_where_the_fork_was_made(run):
    path = "sh://turn_1/x_1"
    await run.begin(set_(path, "", state=STREAMING))
    await run.write(append(path, "one"))
    await run.write(append(path, " two"))
    child = await fork(run, "child")
    await run.write(append(path, " three"))
    await run.write(set_(path, state=4))
    assert (await child.entry(path)).body == "one two"
    assert (await run.entry(path)).body == "one two three"
    await (await work(child)).write(set_(path, "other"))
    assert (await child.entry(path)).body == "other"
    assert (await run.entry(path)).body == "one two three"


async def test_a_fork_begins_at_the_end_of_an_earlier_turn(run):
    await turn(run, set_("known://a", "first"), set_("known://gone", "x"), set_("sh://turn_1/x_1", "", state=STREAMING))
    at_first = await run.view()
    await turn(run, set_("known://a", "second"), remove("known://gone"), set_("known://late", "x"))
    await run.write(append("sh://turn_1/x_1", "later"))
    child = await fork(run, "child", turn=1)
    assert (await child.view()).bodies == at_first.bodies
    assert (await child.entry("sh://turn_1/x_1")).outcome == "aborted:499"
    row = await child.get()
    assert (row.turn, row.forked_from) == (1, run_pb2.ForkOrigin(run="r1", turn=1))


async def test_a_fork_of_a_fork_begins_at_an_inherited_turn(run):
    await turn(run, set_("known://a", "first"))
    await turn(run, set_("known://a", "second"))
    child = await work(await fork(run, "child"))
    await turn(child, set_("known://a", "third"))
    await turn(run, set_("known://a", "parent's third"))
    grandchild = await work(await fork(child, "grandchild"))
    bodies = []
    for number in (1, 2, 3):
        one = await fork(grandchild, f"at-{number}", turn=number)
        bodies.append((await one.entry("known://a")).body)
        assert (await one.get()).forked_from == run_pb2.ForkOrigin(run="grandchild", turn=number)
    assert bodies == ["first", "second", "third"]


@pytest.mark.parametrize("number", [2, 3, 9])
async def test_a_turn_that_has_not_ended_cannot_be_forked(run, number):
    await turn(run)
    await run.begin()
    error = await refused(fork(run, "child", turn=number))
    assert (error.reason, error.metadata) == (Reason.TURN_NOT_FOUND, {"run": "r1", "turn": str(number)})
    assert [found.run for found in (await run.client.call("ListRuns", project=run.project)).runs] == ["r1"]


async def test_the_alias_of_a_fork_is_made_or_must_be_free(run):
    made = await fork(run)
    assert made.alias.startswith("fast-")
    error = await refused(fork(run, made.alias))
    assert (error.reason, error.metadata) == (Reason.RUN_EXISTS, {"project": run.project, "run": made.alias})
    error = await refused(fork(run, "not an alias"))
    assert error.metadata == {"field": "new_run"}


async def test_forking_what_is_not_there_is_refused(client, project):
    error = await refused(fork(Run(client, project, "nobody"), "child"))
    assert error.reason is Reason.RUN_NOT_FOUND
    error = await refused(fork(Run(client, "nowhere", "nobody"), "child"))
    assert error.reason is Reason.PROJECT_NOT_FOUND


async def test_a_repeated_fork_makes_one_run(run):
    first = await fork(run, request_id="once")
    again = await fork(run, request_id="once")
    assert first.alias == again.alias
    assert len((await run.client.call("ListRuns", project=run.project)).runs) == 2


async def test_a_fork_of_a_run_without_work_is_empty(client, project):
    run = await new_run(client, project, "r1")
    child = await fork(run, "child")
    assert (await child.view()).entries == []
    assert (await child.get()).forked_from == run_pb2.ForkOrigin(run="r1", turn=0)


async def test_a_forks_own_history_is_readable(run):
    """Forking at a turn of the child itself, among what it inherited and what it wrote."""
    await turn(run, set_("known://a", "inherited"))
    child = await work(await fork(run, "child"))
    await turn(child, set_("known://b", "own"))
    await turn(child, set_("known://a", "own"), remove("known://b"))
    one = await fork(child, "one", turn=2)
    bodies = (await one.view()).bodies
    assert (bodies["known://a"], bodies["known://b"]) == ("inherited", "own")


async def test_sibling_forks_keep_apart(run):
    await turn(run, set_("known://a", "before"))
    one, two = await work(await fork(run, "one")), await work(await fork(run, "two"))
    await one.write(set_("known://a", "one"))
    await two.write(set_("known://a", "two"))
    bodies = [(await each.entry("known://a")).body for each in (run, one, two)]
    assert bodies == ["before", "one", "two"]


async def test_a_run_of_the_same_project_is_no_parent(client, project):
    """A turn is inherited from the family only, though another run has it too."""
    one = await working_run(client, project, "one")
    await turn(one)
    other = await working_run(client, project, "other")
    await turn(other)
    await turn(other)
    child = await fork(one, "child")
    error = await refused(fork(child, "grandchild", turn=2))
    assert error.reason is Reason.TURN_NOT_FOUND
