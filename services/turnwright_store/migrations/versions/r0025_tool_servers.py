"""Servers of tools. Databases made with all tables of today have them already."""

from alembic import op

from turnwright_store.sql.tables import tool_servers

revision = "r0025"
down_revision = "r0028"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table."""
    tool_servers.create(op.get_bind(), checkfirst=True)
