"""Whether derived tokens may use a project. Databases made with all tables of today have the column already."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import number_column

revision = "r0010"
down_revision = "r0009"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the column."""
    if "clients" not in {column["name"] for column in sqlalchemy.inspect(op.get_bind()).get_columns("projects")}:
        op.add_column("projects", number_column("clients"))
