"""When aliases began and ceased to name runs. Databases made with all tables of today have the table already."""

from alembic import op

from turnwright_store.sql.tables import run_names

revision = "r0013"
down_revision = "r0012"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the table and its index."""
    run_names.create(op.get_bind(), checkfirst=True)
