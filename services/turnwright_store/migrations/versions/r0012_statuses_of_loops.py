"""Which statuses loops have is for the code to say. Databases made with all tables of today have no check of them."""

import re

import sqlalchemy
from alembic import op

revision = "r0012"
down_revision = "r0011"
branch_labels = None
depends_on = None

CHECK = re.compile(r",\s*CONSTRAINT ck_loops_status CHECK \(status IN \([\d, ]+\)\)")
SQL = sqlalchemy.text("SELECT sql FROM sqlite_master WHERE tbl_name = 'loops' AND type = :kind AND sql IS NOT NULL")


def upgrade() -> None:
    """Drop the check; SQLite needs a copy of the table for it."""
    if op.get_bind().dialect.name == "postgresql":
        op.execute("ALTER TABLE loops DROP CONSTRAINT IF EXISTS ck_loops_status")
        return
    [table], indexes = (op.get_bind().execute(SQL, {"kind": kind}).scalars().all() for kind in ("table", "index"))
    made, has_check = CHECK.subn("", table)
    if not has_check:
        return
    op.execute(made.replace("loops", "loops_of_today", 1))
    op.execute("INSERT INTO loops_of_today SELECT * FROM loops")
    op.execute("DROP TABLE loops")
    op.execute("ALTER TABLE loops_of_today RENAME TO loops")
    for index in indexes:
        op.execute(index)
