"""Agents. Databases made with all tables of today have them already."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import number_column, text_column
from turnwright_store.sql.tables import agents

revision = "r0026"
down_revision = "r0025"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, and to runs where they come from."""
    agents.create(op.get_bind(), checkfirst=True)
    if op.get_bind().dialect.name == "postgresql":
        # Partial, as SQLite's is: declared with the table, it would load PostgreSQL's dialect in every store.
        op.execute("DROP INDEX IF EXISTS ix_agents_open")
        op.execute("CREATE INDEX ix_agents_open ON agents (id) WHERE settled = 0")
    known = {one["name"] for one in sqlalchemy.inspect(op.get_bind()).get_columns("runs")}
    for column in (text_column("parent_run"), text_column("parent_name"), number_column("parent_depth")):
        if column.name not in known:
            op.add_column("runs", column)
