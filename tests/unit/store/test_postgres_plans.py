"""Every statement of the store on PostgreSQL, as its connections plan it: no table that grows is read as a whole.

The plan is made once for all values and before there are statistics, so it must be good for any.
"""

import importlib
import itertools
import pkgutil
import re

import pytest
from sqlalchemy import CompoundSelect, Delete, Select, Update
from sqlalchemy.dialects.postgresql import psycopg

import turnwright_store.sql
from turnwright_store.edge.postgres_link import Links, PostgresLink, Server

FEW = {
    *("ix_loops_open", "uq_loops_active", "ix_runs_claimed", "ix_runs_removed", "uq_turns_open"),
    *("ix_views_proposed", "ix_views_waiting", "ix_views_streaming", "pk_chunks", "pk_models", "pk_schemes"),
    *("uq_quotas_project_id_subject_metric", "uq_grants_project_id_subject"),
    *("uq_webhooks_project_id_name", "ix_runs_open", "ix_tokens_age", "ix_agents_open"),
}
"""Indexes of what is under way, however much there was before; chunks go when they are folded."""

PIECES = {
    *("runs.RUN", "control.RUN", "feed.ROWS_AT", "views.ROWS_AT"),
    *("history._INTERVAL", "history._BEGINNING", "run_history._INTERVAL"),
}
"""What other statements are made from."""

RARE = {"retention._OLDEST", "audit._DROP", "webhooks._ORPHANS"}
"""What maintenance asks once for all runs, or of the first rows of a table."""

SMALL = {"meta", "models", "schemes", "executors", "search_marks", "projects", "quotas", "grants", "tokens",
         "webhooks", "tool_servers"}  # fmt: skip
"""Tables of a few rows, or of one for each project."""


def statements():
    """The statements of sql, by module and name."""
    for found in pkgutil.iter_modules(turnwright_store.sql.__path__):
        module = importlib.import_module(f"turnwright_store.sql.{found.name}")
        for name, value in vars(module).items():
            if getattr(value, "__module__", "").startswith("turnwright_store"):
                continue
            several = dict(enumerate(value)) if isinstance(value, tuple) else value
            for key, one in several.items() if isinstance(several, dict) else [("", value)]:
                if isinstance(one, CompoundSelect | Select | Update | Delete):
                    yield f"{found.name}.{name}{key or ''}", one


@pytest.fixture
def link(postgres):
    """A connection to a database that nobody has used: there are no statistics in it."""
    url = postgres.create()
    one = PostgresLink(Links(Server(url, 5.0, 30.0, 10.0)))
    one.open()
    yield one
    one.close()
    postgres.drop(url)


def read_whole(node):
    """The tables that a plan reads as a whole: by no index, or by an index that it asks nothing."""
    kind, index = node["Node Type"], node.get("Index Name", "")
    if kind == "Seq Scan" and node["Relation Name"] not in SMALL:
        yield node["Relation Name"]
    elif "Index" in kind and "Index Cond" not in node and index not in FEW:
        yield index
    for inner in node.get("Plans", ()):
        yield from read_whole(inner)


MARK = re.compile(r"%s|__\[POSTCOMPILE_\w+\]")
DIALECT = psycopg.dialect(paramstyle="format")


def prepared(statement):
    """A statement as the server gets it, each list of two values, and its number of parameters."""
    marks = itertools.count(1)

    def numbered(mark):
        one = f"${next(marks)}"
        return one if mark[0] == "%s" else f"{one}, ${next(marks)}"

    sql = MARK.sub(numbered, str(statement.compile(dialect=DIALECT))).replace("%%", "%")
    return sql, next(marks) - 1


def test_every_statement_finds_its_rows_by_an_index(link):
    wrong = {}
    for name, statement in statements():
        if name in PIECES | RARE:
            continue
        sql, marks = prepared(statement)
        link.raw.execute(f"PREPARE asked AS {sql}")
        given = ", ".join(["NULL"] * marks)
        ((plan,),) = link.raw.execute(f"EXPLAIN (FORMAT JSON) EXECUTE asked{f'({given})' * bool(given)}")
        link.raw.execute("DEALLOCATE asked")
        if whole := sorted(set(read_whole(plan[0]["Plan"]))):
            wrong[name] = whole
    assert not wrong, "\n".join(f"{n}: {t}" for n, t in wrong.items())
