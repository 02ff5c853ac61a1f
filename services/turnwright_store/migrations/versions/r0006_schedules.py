"""Schedules of runs. Databases that were made with all tables of today have the table already."""

from alembic import op

from turnwright_store.sql.tables import schedules

revision = "r0006"
down_revision = "r0005"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, with its index."""
    schedules.create(op.get_bind(), checkfirst=True)
