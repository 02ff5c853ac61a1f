"""Where runs work. Databases made with all tables of today have the columns already."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import number_column, text_column

revision = "r0028"
down_revision = "r0024"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns; what is there works in the directory of its project."""
    there = {one["name"] for one in sqlalchemy.inspect(op.get_bind()).get_columns("runs")}
    for column in (number_column("place"), text_column("place_name"), text_column("place_parent")):
        if column.name not in there:
            op.add_column("runs", column)
    op.execute("CREATE INDEX IF NOT EXISTS ix_runs_place ON runs (place_name) WHERE place_name != ''")
