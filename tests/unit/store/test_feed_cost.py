"""What a read since a cursor costs, in steps of the database's machine: what changed, not what the run holds."""

from __future__ import annotations

from functools import cache

import pytest
from turnwright_values.types import Cursor, ViewFilter

from turnwright_store.edge.connection import SqliteLink
from turnwright_store.edge.schema import upgrade_to_head
from turnwright_store.sql.feed import Feed, FeedPosition
from turnwright_store.sql.keys import version_key
from turnwright_store.sql.runs import find_run
from turnwright_store.sql.views import Wanted

OWN_SCOPE, PROJECT_SCOPE = 11, 10
FEW = 6
"""Entries of each kind that change behind the cursor."""
PAST = 4
"""Views that each entry had before the cursor."""
STEPS_MORE_MAX = 1.2
"""Times as many steps in a run that holds ten times as much."""


class Run:
    """A run with entries, half of them its project's, and the same few changes behind a cursor however many there are."""

    def __init__(self, entries: int, *, analyzed: bool) -> None:
        link = SqliteLink(":memory:", ())
        link.open()
        upgrade_to_head(link.raw, link.core)
        self._raw, self.connection = link.raw, link.core
        self._add_run()
        self.cursor = 10 * entries
        self._add_entries(range(1, entries + 1))
        self._change(range(1, 2 * FEW + 1))
        if analyzed:
            self._raw.execute("ANALYZE")

    def _add_run(self) -> None:
        self._raw.execute("INSERT INTO scopes (id, key) VALUES (10, 'project:1'), (11, 'run:1')")
        self._raw.execute(
            "INSERT INTO projects (id, scope_id, name, root, workspace_id, create_ms) VALUES (1, 10, 'p', '/', 'w', 1)"
        )
        self._raw.execute(
            "INSERT INTO runs (id, project_id, scope_id, alias, status, model, create_ms, update_ms)"
            " VALUES (1, 1, 11, 'r', 100, 'm', 1, 1)"
        )

    def _add_entries(self, numbers: range) -> None:
        for number in numbers:
            is_shared = number % 2 == 0
            scope, shared = (PROJECT_SCOPE, number) if is_shared else (OWN_SCOPE, None)
            self._raw.execute(
                "INSERT INTO entries (id, scope_id, path, scheme, head_rev, shared_rev) VALUES (?, ?, ?, '', ?, ?)",
                (number, scope, f"p{number}", number, shared),
            )
            self._add_version(number, number)
            pinned = None if is_shared else number
            for begin in range(number, number + PAST):
                self._add_view(number, begin, begin + 1, pinned)
            self._add_view(number, number + PAST, None, pinned)

    def _change(self, numbers: range) -> None:
        """Each gets another version, and a view with it where it is the run's own; the last two leave the view."""
        for number in numbers:
            revision, is_shared = self.cursor + number, number % 2 == 0
            self._add_version(number, revision)
            head = "head_rev = ?1, shared_rev = ?1" if is_shared else "head_rev = ?1"
            self._raw.execute(f"UPDATE entries SET {head} WHERE id = ?2", (revision, number))
            leaves = number in numbers[-2:]
            if leaves or not is_shared:
                self._raw.execute(
                    "UPDATE views SET to_rev = ? WHERE entry_id = ? AND to_rev IS NULL", (revision, number)
                )
            if not (leaves or is_shared):
                self._add_view(number, revision, None, revision)

    def _add_version(self, entry: int, revision: int) -> None:
        self._raw.execute(
            "INSERT INTO versions"
            " (id, entry_id, from_rev, writer, actor, create_ms, hash, body_size_bytes, attributes_bytes, attributes, body)"
            " VALUES (?, ?, ?, 1, 'x', 1, '', 0, 2, '{}', '')",
            (version_key(entry, revision), entry, revision),
        )

    def _add_view(self, entry: int, begin: int, end: int | None, pinned: int | None) -> None:
        self._raw.execute(
            "INSERT INTO views"
            " (run_id, entry_id, path, version_rev, from_rev, to_rev, visibility, state, position, write_count, create_ms)"
            " VALUES (1, ?, ?, ?, ?, ?, 1, 4, ?, 1, 1)",
            (entry, f"p{entry}", pinned, begin, end, entry),
        )

    def read(self, kind: ViewFilter, scope: int) -> tuple[set[str], int]:
        """The paths that a reader is told of, and the steps that it took to find them."""
        run = find_run(self.connection, "p", "r")
        now = Cursor("i", self.cursor + 1000, self.cursor + 1000, 0)
        own, shared = (now.run_revision, self.cursor) if scope else (self.cursor, now.project_revision)
        feed = Feed(self.connection, run, Cursor("i", own, shared, 0), now, Wanted(kind), [])
        steps = 0

        def step() -> None:
            nonlocal steps
            steps += 1

        self._raw.set_progress_handler(step, 1)
        changed = feed.page(FeedPosition(), 100)
        self._raw.set_progress_handler(None, 0)
        return {shown.path for shown in changed.shown} | set(changed.removed), steps


filled = cache(lambda entries, analyzed: Run(entries, analyzed=analyzed))
"""Each of them is made once: they are only read."""

OWN = {"p1", "p3", "p5", "p7", "p9"}
SHARED = {"p2", "p4", "p6", "p8", "p10"}
LEFT = {"p11", "p12"}


@pytest.mark.parametrize("analyzed", [False, True], ids=["fresh", "analyzed"])
@pytest.mark.parametrize(
    ("kind", "scope", "told"),
    [
        (ViewFilter.ALL, 0, OWN | LEFT),
        (ViewFilter.PACKET, 0, OWN | LEFT),
        (ViewFilter.FILES, 0, OWN | LEFT),
        (ViewFilter.ALL, PROJECT_SCOPE, SHARED),
        (ViewFilter.PACKET, PROJECT_SCOPE, SHARED),
        (ViewFilter.FILES, PROJECT_SCOPE, SHARED),
    ],
)
def test_reading_what_changed_costs_what_changed_and_not_what_the_run_holds(kind, scope, told, analyzed):
    few, few_steps = filled(200, analyzed).read(kind, scope)
    many, many_steps = filled(2_000, analyzed).read(kind, scope)
    assert few == many == told
    assert 0 < many_steps <= few_steps * STEPS_MORE_MAX, (few_steps, many_steps)
