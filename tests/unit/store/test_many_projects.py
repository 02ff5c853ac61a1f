"""What a caller that sees three projects of a thousand asks costs as much as in a store that has these three alone.

Counted in instructions of SQLite's virtual machine, which differ on no machine. Issue of two teams: at most 1.3 times.
"""

from __future__ import annotations

import sqlite3
from typing import Final

import pytest
import sqlalchemy
from turnwright_values.types import Project

from turnwright_store.domain.viewers import Viewer, viewing
from turnwright_store.edge.schema import upgrade_to_head
from turnwright_store.sql import inbox, registry, search
from turnwright_store.sql.control import run_stands
from turnwright_store.sql.registry import ProjectRow
from turnwright_store.sql.runs import find_run, list_runs

PROJECTS: Final = 1000
RUNS: Final = 10
"""Runs of each project. In the first of each a proposal waits."""

SEEN: Final = (17, 500, 999)
MORE_MAX: Final = 1.3


def fill(raw: sqlite3.Connection, numbers: range | tuple[int, ...]) -> None:
    """Projects with these numbers."""
    scopes = [(10 + n, f"project:{n}") for n in numbers]
    rows = [(n, 10 + n, name_of(n), "/", f"w{n}", 1) for n in numbers]
    runs = [(n * RUNS + k, n, 100_000 + n * RUNS + k, f"r{k}", k == 0) for n in numbers for k in range(RUNS)]
    insert = raw.executemany
    insert("INSERT INTO scopes (id, key) VALUES (?, ?)", scopes)
    insert("INSERT INTO scopes (id, key) VALUES (?, 'run:' || ?)", [(scope, scope) for _, _, scope, _, _ in runs])
    insert("INSERT INTO projects (id, scope_id, name, root, workspace_id, create_ms) VALUES (?, ?, ?, ?, ?, ?)", rows)
    insert(
        "INSERT INTO runs (id, project_id, scope_id, alias, status, turn_open, model, create_ms, update_ms, by)"
        " VALUES (?, ?, ?, ?, 102, ?, 'm', 1, 1, 'alice')",
        [(one, project, scope, alias, int(waits)) for one, project, scope, alias, waits in runs],
    )
    waiting = [(one, scope) for one, _, scope, _, waits in runs if waits]
    insert(
        "INSERT INTO entries (id, scope_id, path, scheme, head_rev) VALUES (?, ?, 'a', '', 1)",
        waiting,
    )
    insert(
        "INSERT INTO views (run_id, entry_id, path, turn, position, write_count, create_ms, visibility, state, from_rev)"
        " VALUES (?, ?, 'a', 1, 1, 1, ?, 1, 2, 1)",
        [(one, one, one) for one, _ in waiting],
    )


def name_of(number: int) -> str:
    return f"p{number:04}"


class Store:
    """A store in memory with some projects."""

    def __init__(self, numbers: range | tuple[int, ...]) -> None:
        self.raw = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
        engine = sqlalchemy.create_engine(
            "sqlite://", creator=lambda: self.raw, poolclass=sqlalchemy.StaticPool, isolation_level="AUTOCOMMIT"
        )
        self.core = engine.connect()
        upgrade_to_head(self.raw, self.core)
        fill(self.raw, numbers)

    def steps(self, ask) -> tuple[int, object]:
        """How many instructions a question takes, and its answer."""
        count = 0

        def step() -> int:
            nonlocal count
            count += 1
            return 0

        answer = ask(self.core)
        self.raw.set_progress_handler(step, 1)
        try:
            answer = ask(self.core)
        finally:
            self.raw.set_progress_handler(None, 1)
        return count, answer


@pytest.fixture(scope="module")
def stores():
    both = Store(range(1, PROJECTS + 1)), Store(SEEN)
    yield both
    for one in both:
        one.core.close()
        one.raw.close()


NAMES: Final = [name_of(number) for number in SEEN]
OWNER: Final = ProjectRow(SEEN[1], 10 + SEEN[1], Project(NAMES[1]))

QUESTIONS: Final = {
    "projects": lambda core: [one.name for one in registry.list_projects(core, NAMES, "", 100)],
    "runs": lambda core: [row.alias for row in list_runs(core, OWNER, (9, 9**9), 100)],
    "a run": lambda core: find_run(core, NAMES[1], "r3").alias,
    "overviews": lambda core: len(run_stands(core, OWNER)),
    "inbox": lambda core: [one.run for one in inbox.page_of_waiting(core, None, None, (0, 0), 100, NAMES)],
    "a watch of the inbox": lambda core: len(inbox.page_of_waiting(core, None, None, (0, 0), 2**31, NAMES)),
    "inbox of a project": lambda core: [one.run for one in inbox.page_of_waiting(core, OWNER, None, (0, 0), 100)],
    "search": lambda core: search.find_hits(core, OWNER, ["word"], [], 10),
}


@pytest.mark.parametrize("viewer", [None, "bob"])
@pytest.mark.parametrize("question", QUESTIONS)
def test_a_question_costs_as_much_as_where_nothing_else_is(stores, question, viewer):
    ask = QUESTIONS[question]
    if viewer:
        unlimited, bob = ask, Viewer(viewer, lambda project: project != NAMES[0])
        ask = lambda core: viewing(bob, unlimited, core)  # noqa: E731
    (many, found), (few, alone) = (store.steps(ask) for store in stores)
    assert found == alone
    assert found or question == "search"
    assert many <= MORE_MAX * few, (many, few)
