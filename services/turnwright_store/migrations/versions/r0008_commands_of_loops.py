"""Which command has added a loop. Databases made with all tables of today have the column already."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import text_column

revision = "r0008"
down_revision = "r0007"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    if "command_id" not in {column["name"] for column in sqlalchemy.inspect(op.get_bind()).get_columns("loops")}:
        op.add_column("loops", text_column("command_id"))
