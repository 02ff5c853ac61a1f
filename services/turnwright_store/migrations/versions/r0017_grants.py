"""Grants and tokens; no projects for clients any more. Databases made with all tables of today are so already."""

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
    if "clients" in {column["name"] for column in sqlalchemy.inspect(op.get_bind()).get_columns("projects")}:
        # What every derived token could use, everybody with an identity can.
        op.execute(
            "INSERT INTO grants (project_id, subject, role, without, by, create_ms, until_ms) "
            "SELECT id, '*', 2, '[]', 'operator', create_ms, 0 FROM projects WHERE clients <> 0"
        )
        op.drop_column("projects", "clients")
    # Earlier code reads the column.
    op.execute("UPDATE meta SET value = '4' WHERE key = 'min_code'")
