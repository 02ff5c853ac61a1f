"""The index of runs with an open turn. Databases made with all tables of today have it already."""

import sqlalchemy
from alembic import op

revision = "r0021"
down_revision = "r0019"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the index."""
    if "ix_runs_open" not in {index["name"] for index in sqlalchemy.inspect(op.get_bind()).get_indexes("runs")}:
        where = sqlalchemy.text("turn_open != 0")
        op.create_index("ix_runs_open", "runs", ["project_id"], sqlite_where=where, postgresql_where=where)
