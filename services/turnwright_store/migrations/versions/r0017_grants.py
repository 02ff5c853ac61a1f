"""Grants and tokens. Databases that were made with all tables of today have the tables already."""

import sqlalchemy
from alembic import op

from turnwright_store.sql.tables import grants, tokens

revision = "r0017"
down_revision = "r0016"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Add the tables, and the scope whose revision is the version of the policy."""
    for table in (grants, tokens):
        table.create(op.get_bind(), checkfirst=True)
    op.execute(
        "INSERT INTO scopes (key, revision) SELECT 'policy', 1 "
        "WHERE NOT EXISTS (SELECT 1 FROM scopes WHERE key = 'policy')"
    )
    # What every derived token could use, everybody with an identity can.
    op.execute(
        sqlalchemy.text(
            "INSERT INTO grants (project_id, subject, role, without, by, create_ms, until_ms) "
            "SELECT id, '*', 2, '[]', 'operator', create_ms, 0 FROM projects WHERE clients <> 0 "
            "AND NOT EXISTS (SELECT 1 FROM grants WHERE project_id = projects.id AND subject = '*')"
        )
    )
