"""Titles of runs. Databases made with all tables of today have the columns already."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import text_column

revision = "r0014"
down_revision = "r0013"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    existing = {column["name"] for column in sqlalchemy.inspect(op.get_bind()).get_columns("runs")}
    for name in ("title", "title_call"):
        if name not in existing:
            op.add_column("runs", text_column(name))
