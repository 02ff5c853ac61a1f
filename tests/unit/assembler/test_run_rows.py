"""The incremental path: whatever happened, warm rows and a cold snapshot give the same bytes."""

from sys import getsizeof

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace
from turnwright_values.types import Cursor, State, Visibility

from turnwright_assembler.app.packet import PIECE_CHARS_MAX, compose
from turnwright_assembler.app.run_rows import RunRows
from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections.system import render_system
from turnwright_core.instructions import PROJECT_PATH, SYSTEM_PATH
from turnwright_core.value_methods import to_attributes_json
from unit.assembler.entries import DIVISOR, blocks, entry

PATHS = [
    "a.py", "src/b.py", "known://a", "known://b", "sh://turn_1/x_1", "unknown://a", "log://turn_1/get/a",
    "log://turn_2/error/b", "update://1", "prompt://1", "prompt://2", SYSTEM_PATH,
    PROJECT_PATH,
]  # fmt: skip
SHOWN = st.sampled_from([Visibility.VISIBLE, Visibility.SUMMARIZED])
WRITES = st.fixed_dictionaries(
    {
        "path": st.sampled_from(PATHS),
        "body": st.tuples(st.text(max_size=9), st.integers(0, 300)).map(lambda pair: pair[0] * pair[1]),
        "visibility": SHOWN,
        "state": st.sampled_from([State.STREAMING, State.RESOLVED, State.FAILED]),
        "turn": st.integers(1, 4),
        "loop": st.integers(1, 2),
        "attributes": st.dictionaries(
            st.sampled_from(["tool", "summary", "persona", "target", "tokenUsage", "tokensFree"]),
            st.one_of(st.text(max_size=5), st.integers(0, 10**6)),
            max_size=3,
        ),
    }
)
OPERATIONS = st.one_of(WRITES, st.sampled_from(PATHS), st.none())


def cursor(run):
    return Cursor("i", run, 0, 0)


def written(change, position):
    attributes = change["attributes"]
    made = entry(
        change["path"], change["body"], visibility=change["visibility"], state=change["state"],
        turn=change["turn"], loop=change["loop"], position=position,
    )  # fmt: skip
    return replace(made, attributes_json=to_attributes_json(attributes))


def bytes_of(rows):
    made = [
        compose(rows.ordered(), rows.system, loop, 5_000, DIVISOR, index=rows.index(), project=rows.project)
        for loop in (1, 2)
    ]
    return [(one.messages, one.figures) for one in made]


# RU204, architecture 12.4 and 12.5
@settings(deadline=None)
@given(operations=st.lists(OPERATIONS, max_size=30), parts=st.integers(1, 4))
def test_warm_rows_give_the_bytes_of_a_snapshot(operations, parts):
    warm, state, positions = RunRows(DIVISOR), {}, {}
    entered, left = {}, set()
    for revision, operation in enumerate([*operations, None], 1):
        if operation is None:
            changed = list(entered.values())
            step = max(1, -(-len(changed) // parts))
            for start in range(0, len(changed), step):
                warm.apply(ViewPart(tuple(changed[start : start + step]), (), None))
            warm.apply(ViewPart((), tuple(sorted(left)), cursor(revision)))
            entered, left = {}, set()
            cold = RunRows(DIVISOR)
            cold.apply(ViewPart(tuple(sorted(state.values(), key=lambda one: one.position)), (), cursor(revision)))
            assert bytes_of(warm) == bytes_of(cold)
            assert (warm.size_bytes, warm.cursor) == (cold.size_bytes, cold.cursor)
        elif isinstance(operation, str):
            # The store never takes instructions://system away; every other path may leave the view.
            if operation in state and operation != SYSTEM_PATH:
                del state[operation]
                entered.pop(operation, None)
                left.add(operation)
        else:
            made = written(operation, positions.setdefault(operation["path"], len(positions)))
            state[made.path] = entered[made.path] = made
            left.discard(made.path)


PLANS = ["plan://main", "plan://main/v1/1", "plan://main/v2/1", "event://turn_1/tick/a", "known://a", "prompt://1"]


@settings(deadline=None)
@given(st.lists(st.tuples(st.sampled_from(PLANS), st.integers(0, 2), st.booleans()), max_size=20))
def test_what_comes_and_goes_is_shown_as_if_all_were_looked_at_anew(moves):
    rows = RunRows(DIVISOR)
    for revision, (path, version, is_leaving) in enumerate(moves, 1):
        told = {"event": {"subkind": "tick", "source": "x", "payload": {}}} if path.startswith("event") else {}
        more = {"version": version} if path == "plan://main" else told
        made = entry(path, f"body {version}", position=PLANS.index(path), **more)
        rows.apply(ViewPart(() if is_leaving else (made,), (path,) if is_leaving else (), cursor(revision)))
        anew = [compose(rows.ordered(), rows.system, loop, 5_000, DIVISOR) for loop in (1, 2)]
        assert bytes_of(rows) == [(one.messages, one.figures) for one in anew]


def test_only_what_changed_is_rendered_again():
    rows = RunRows(DIVISOR)
    rows.apply(ViewPart(tuple(entry(f"known://{n}", position=n) for n in range(100)), (), cursor(1)))
    before = {each.path: each for each in rows.ordered()}
    rows.apply(ViewPart((entry("known://7", "new", position=7),), ("known://8",), cursor(2)))
    after = {each.path: each for each in rows.ordered()}
    assert [path for path in before if after.get(path) is not before[path]] == ["known://7", "known://8"]


def test_the_order_is_kept_while_nothing_changes():
    rows = RunRows(DIVISOR)
    rows.apply(ViewPart((entry("a.py", position=2), entry("b.py", position=1)), (), cursor(1)))
    ordered = rows.ordered()
    rows.apply(ViewPart((), (), cursor(2)))
    assert rows.ordered() is ordered
    assert ordered == blocks(entry("b.py", position=1), entry("a.py", position=2))


def test_the_system_message_follows_its_entry():
    rows = RunRows(DIVISOR)
    assert rows.system == render_system({})
    rows.apply(ViewPart((entry(SYSTEM_PATH, "", persona="You are Ada."),), (), cursor(1)))
    assert rows.system == render_system({"persona": "You are Ada."})
    assert (rows.ordered(), SYSTEM_PATH in rows) == ((), False)


def test_an_entry_that_stops_standing_in_packets_is_dropped():
    rows = RunRows(DIVISOR)
    rows.apply(ViewPart((entry("a.py"),), (), cursor(1)))
    rows.apply(ViewPart((entry("a.py", visibility=Visibility.ARCHIVED),), (), cursor(2)))
    assert (rows.ordered(), rows.size_bytes) == ((), RunRows(DIVISOR).size_bytes)


def test_a_row_that_packets_copy_counts_with_its_copy():
    empty, short, long, prompt = (RunRows(DIVISOR) for _ in range(4))
    short.apply(ViewPart((entry("a.py", "x" * (PIECE_CHARS_MAX // 2)),), (), cursor(1)))
    long.apply(ViewPart((entry("a.py", "x" * (2 * PIECE_CHARS_MAX)),), (), cursor(1)))
    prompt.apply(ViewPart((entry("prompt://1", "x" * PIECE_CHARS_MAX, mode="act"),), (), cursor(1)))
    whole = getsizeof("x" * PIECE_CHARS_MAX)
    sizes = [(rows.size_bytes - empty.size_bytes) / whole for rows in (short, long, prompt)]
    assert sizes == pytest.approx([0.5, 4, 3], abs=0.1)
    long.apply(ViewPart((), ("a.py",), cursor(2)))
    assert long.size_bytes == empty.size_bytes
