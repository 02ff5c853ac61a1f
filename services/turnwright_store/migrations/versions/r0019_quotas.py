"""Quotas. Databases made with all tables of today have them already."""

from alembic import op

from turnwright_store.sql.tables import quotas, reservations

revision = "r0019"
down_revision = "r0018"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    for table in (quotas, reservations):
        table.create(op.get_bind(), checkfirst=True)
