"""The schema of the first release. Until that is out, it is what the tables say; a released migration never changes."""

from alembic import op

from turnwright_store.sql.creation import create

revision = "r0005"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Make all tables of an empty database."""
    create(op.get_bind())
