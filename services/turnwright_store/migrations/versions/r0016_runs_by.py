"""Who created runs, and asked for loops and schedules. Databases made with all tables of today have it already."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import number_column, text_column

revision = "r0016"
down_revision = "r0015"
branch_labels = None
depends_on = None

COLUMNS = (
    ("runs", lambda: text_column("by")),
    ("runs", lambda: number_column("private")),
    ("loops", lambda: text_column("by")),
    ("schedules", lambda: text_column("by")),
)


def upgrade() -> None:
    """Add the columns. Of what is there nobody knows who it was."""
    for table, column in COLUMNS:
        added = column()
        if added.name not in {one["name"] for one in sqlalchemy.inspect(op.get_bind()).get_columns(table)}:
            op.add_column(table, added)
