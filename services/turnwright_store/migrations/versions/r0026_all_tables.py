"""What an empty database begins with: all tables as they are today. The first release has them all."""

from alembic import op

from turnwright_store.sql.create_tables import create_tables

revision = "r0026"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables of an empty database."""
    create_tables(op.get_bind())
