"""Schedules that begin new runs, and their time zones. Databases made with all tables of today have them."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import compressed_column, number_column, text_column

revision = "r0024"
down_revision = "r0023"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the columns."""
    if "time_zone" in {column["name"] for column in sqlalchemy.inspect(op.get_bind()).get_columns("schedules")}:
        return
    for column in (
        text_column("time_zone"),
        number_column("new_run"),
        number_column("overlap"),
        compressed_column("firings", ""),
    ):
        op.add_column("schedules", column)
