"""What the end of a loop says of changed files."""

import json

from turnwright.types.v1 import entry_pb2
from turnwright_values.types import State

from turnwright_cli.changes import change_lines, changes_in
from turnwright_executor.tools.listing import LISTED_MAX, changed_files


def record(tool, loop=1, **attributes):
    return entry_pb2.Entry(
        path=f"log://turn_1/{tool}/x",
        loop=loop,
        state=State.RESOLVED,
        attributes_json=json.dumps({"tool": tool} | attributes),
    )


def channel(name, loop=1):
    """The output of a shell command that was started."""
    return entry_pb2.Entry(path=f"sh://turn_1/{name}_1", loop=loop)


def test_files_that_a_record_has_no_room_for_are_counted():
    many = [{"path": f"f{number:03}", "kind": "create"} for number in range(LISTED_MAX + 5)]
    lines = list(change_lines(changes_in([record("sh", **changed_files(many))], 1)))
    assert (lines[1], len(lines), lines[-1]) == ("  created f000", LISTED_MAX + 2, "  and 5 more")


def test_of_commands_that_nobody_looked_after_it_is_told_that_there_were_some():
    compared = record("sh", changed=[{"path": "a", "kind": "change"}])
    started = [channel("x"), channel("y"), channel("z", loop=2)]
    assert list(change_lines(changes_in([compared, *started], 1))) == [
        "changed files:",
        "  changed a",
        "A stopped command may have changed files; see `git status`.",
    ]


def test_a_file_that_came_and_went_is_not_reported():
    came = record("set", changed=[{"path": "a", "kind": "create", "added": 1, "removed": 0}])
    assert list(change_lines(changes_in([came, record("sh", changed=[{"path": "a", "kind": "remove"}])], 1))) == [
        "changed files: none"
    ]
