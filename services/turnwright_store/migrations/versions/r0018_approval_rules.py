"""Approval rules. Databases made with all tables of today have them already."""

import json

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import number_column
from turnwright_store.sql.tables import approval_rules

revision = "r0018"
down_revision = "r0017"
branch_labels = None
depends_on = None

RUNS = sqlalchemy.table("runs", *map(sqlalchemy.column, ("id", "project_id", "tool_rules", "update_ms")))
VERDICTS = {"approved": 1, "rejected": 3}
BY = '{"name":"operator","root":true}'


def upgrade() -> None:
    """Add the table, with what was decided for whole runs."""
    connection = op.get_bind()
    approval_rules.create(connection, checkfirst=True)
    names = {one["name"] for one in sqlalchemy.inspect(connection).get_columns("projects")}
    if "rule_changes" not in names:
        op.add_column("projects", number_column("rule_changes"))
    if "tool_rules" not in {one["name"] for one in sqlalchemy.inspect(connection).get_columns("runs")}:
        return
    rows = connection.execute(sqlalchemy.select(RUNS).where(RUNS.c.tool_rules != "")).all()
    for run, project, text, now_ms in rows:
        decided = json.loads(text)
        for kind, verdict in VERDICTS.items():
            for tool in decided.get(kind, ()):
                values = {"project_id": project, "run_id": run, "verdict": verdict, "tool": tool}
                connection.execute(approval_rules.insert().values(**values, by=BY, create_ms=now_ms))
    op.execute("UPDATE projects SET rule_changes = 1 WHERE id IN (SELECT project_id FROM approval_rules)")
    op.drop_column("runs", "tool_rules")
