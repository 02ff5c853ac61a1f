"""Webhooks. Databases made with all tables of today have them already."""

from alembic import op

from turnwright_store.sql.tables import deliveries, webhooks

revision = "r0023"
down_revision = "r0021"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables."""
    for table in (webhooks, deliveries):
        table.create(op.get_bind(), checkfirst=True)
