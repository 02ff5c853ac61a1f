"""The order in which watchers are told of changes that come at once."""

from __future__ import annotations

from turnwright_values.types import Entry

from turnwright_executor.watching.change_events import output_first


def test_the_output_of_a_command_comes_before_its_end() -> None:
    """The store changes both in one write, the record first."""
    record, other = "log://turn_1/sh/make", "log://turn_1/sh/other"
    paths = [record, "known://a", "sh://turn_1/make_1", other, "sh://turn_1/make_2", "sh://turn_2/away_1"]
    assert [entry.path for entry in output_first([Entry(path=path) for path in paths])] == [
        "sh://turn_1/make_1",
        "sh://turn_1/make_2",
        record,
        "known://a",
        other,
        "sh://turn_2/away_1",
    ]
