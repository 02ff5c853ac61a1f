"""The audit. Databases made with all tables of today have it already."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.create_tables import AUDIT_KEPT
from turnwright_store.sql.tables import audit

revision = "r0015"
down_revision = "r0014"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table, and what keeps its rows."""
    connection = op.get_bind()
    if not sqlalchemy.inspect(connection).has_table("audit"):
        audit.create(connection)
        connection.execute(sqlalchemy.text(AUDIT_KEPT[connection.dialect.name]))
