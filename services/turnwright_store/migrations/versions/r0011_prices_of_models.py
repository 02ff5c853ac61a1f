"""Prices of models. Databases made with all tables of today have the column already."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import text_column

revision = "r0011"
down_revision = "r0010"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    if "price" not in {column["name"] for column in sqlalchemy.inspect(op.get_bind()).get_columns("models")}:
        op.add_column("models", text_column("price"))
