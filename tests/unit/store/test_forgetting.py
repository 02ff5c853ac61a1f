"""How long the answers to requests are kept, seven days and until their work has ended; the old names of runs, and the audit."""

import pytest

from turnwright_store.app.audit import delete_old_rows
from turnwright_store.app.idempotency import delete_old_answers, run_once
from turnwright_store.edge.connection import SqliteLink
from turnwright_store.edge.schema import upgrade_to_head
from turnwright_store.ports import Transaction
from turnwright_store.sql import idempotency as rows
from turnwright_store.sql.control import add_name_change, drop_name_changes, names_since
from turnwright_store.sql.idempotency import RequestKey

DAY_MS = 24 * 3600 * 1000
WEEK_MS = 7 * DAY_MS


def transaction(core, now_ms):
    return Transaction(core, lambda: now_ms, range, lambda _name: True, lambda _scope: False)


@pytest.fixture
def core():
    link = SqliteLink(":memory:", ())
    link.open()
    upgrade_to_head(link.raw, link.core)
    link.raw.execute("INSERT INTO scopes (id, key) VALUES (10, 'project:p'), (11, 'run:1'), (12, 'run:2')")
    link.raw.execute(
        "INSERT INTO projects (id, scope_id, name, root, workspace_id, create_ms) VALUES (1, 10, 'p', '/', 'w', 1)"
    )
    yield link.core
    link.close()


def add_run(core, alias, scope, *, active=0, queued=0):
    core.exec_driver_sql(
        "INSERT INTO runs (project_id, scope_id, alias, status, model, loop_active, loops_queued, create_ms, update_ms)"
        " VALUES (1, ?, ?, 100, 'm', ?, ?, 1, 1)",
        (scope, alias, active, queued),
    )


def keep(core, name, run="", age_ms=WEEK_MS + 1):
    rows.add(core, RequestKey("p", "alice", "EnqueueLoop", name), "d", b"", run, WEEK_MS * 2 - age_ms)


def kept(core):
    return {name for (name,) in core.exec_driver_sql("SELECT request_id FROM idempotency")}


def test_answers_of_the_last_seven_days_are_kept(core):
    keep(core, "old")
    keep(core, "young", age_ms=WEEK_MS)

    more = delete_old_answers(transaction(core, WEEK_MS * 2), 7)

    assert (kept(core), more) == ({"young"}, False)


@pytest.mark.parametrize(("active", "queued"), [(1, 0), (0, 1), (2, 3)])
def test_an_answer_that_started_work_is_kept_until_the_run_has_no_loop_left(core, active, queued):
    add_run(core, "busy", 11, active=active, queued=queued)
    keep(core, "one", run="busy")
    delete_old_answers(transaction(core, WEEK_MS * 2), 7)
    assert kept(core) == {"one"}

    core.exec_driver_sql("UPDATE runs SET loop_active = 0, loops_queued = 0")
    delete_old_answers(transaction(core, WEEK_MS * 2), 7)

    assert kept(core) == set()


def test_work_of_one_run_keeps_no_answers_of_another(core):
    add_run(core, "busy", 11, active=1)
    add_run(core, "idle", 12)
    keep(core, "busy's", run="busy")
    keep(core, "idle's", run="idle")
    keep(core, "nobody's")

    delete_old_answers(transaction(core, WEEK_MS * 2), 7)

    assert kept(core) == {"busy's"}


def test_forgetting_takes_bounded_pieces_and_the_oldest_first(core):
    for days in (10, 8, 12, 9, 11):
        keep(core, f"{days}", age_ms=days * DAY_MS)

    seen = [(delete_old_answers(transaction(core, WEEK_MS * 2), 7, rows_max=2), kept(core)) for _ in range(3)]

    assert seen == [(True, {"8", "9", "10"}), (True, {"8"}), (False, set())]


class Text:
    """A message that is its text."""

    def __init__(self, text=""):
        self.text = text

    def SerializeToString(self, *, deterministic=False):
        return self.text.encode()

    def ParseFromString(self, data):
        self.text = data.decode()
        return len(data)


def test_an_answer_is_stored_with_the_run_that_its_response_names(core):
    key = RequestKey("p", "alice", "EnqueueLoop", "id")

    run_once(transaction(core, 1), key, Text("ask"), Text, lambda _tx: Text("made-alias"), lambda answer: answer.text)

    assert core.exec_driver_sql("SELECT request_id, run FROM idempotency").fetchall() == [("id", "made-alias")]


def test_names_of_runs_are_forgotten_a_bounded_number_at_a_time(core):
    for alias, now_ms in (("a", 10), ("b", 20), ("c", 20), ("d", 30)):
        add_name_change(transaction(core, now_ms), 1, alias)
    assert names_since(core, 1, 20) == {"b", "c", "d"}
    assert [drop_name_changes(core, 30, 2) for _ in range(3)] == [2, 1, 0]
    assert names_since(core, 1, 0) == {"d"}


def test_rows_of_the_audit_are_deleted_after_their_days_the_oldest_first(core):
    for number, age_ms in enumerate((2 * DAY_MS, DAY_MS + 1, DAY_MS, 0)):
        core.exec_driver_sql(
            'INSERT INTO audit (project_id, time_ms, principal, kind, proof, method, "right", run)'
            " VALUES (1, ?, 'alice', 'person', 'token', 'CreateRun', 5, ?)",
            (WEEK_MS - age_ms, f"r{number}"),
        )
    seen = []
    for _ in range(3):
        more = delete_old_rows(transaction(core, WEEK_MS), 1, rows_max=1)
        seen.append((more, [run for (run,) in core.exec_driver_sql("SELECT run FROM audit ORDER BY id")]))
    assert seen == [(True, ["r1", "r2", "r3"]), (True, ["r2", "r3"]), (False, ["r2", "r3"])]
