"""What loops inherit, and what schedules have of their own. Databases made with all tables of today have it already."""

import json

import sqlalchemy
from alembic import op

from turnwright_store.sql.columns import compressed_column, number_column, text_column
from turnwright_store.sql.dialect import CompressedText

revision = "r0009"
down_revision = "r0008"
branch_labels = None
depends_on = None

COLUMNS = (
    ("runs", lambda: number_column("model_loop")),
    ("runs", lambda: text_column("asked")),
    ("schedules", lambda: compressed_column("settings", "")),
    ("schedules", lambda: number_column("loop")),
    ("schedules", lambda: number_column("failures")),
)

LOOPS = sqlalchemy.table(
    "loops", sqlalchemy.column("id"), sqlalchemy.column("status"), sqlalchemy.column("settings", CompressedText)
)
OPEN = (100, 102, 202)


def upgrade() -> None:
    """Add the columns. What loops were asked and what their runs gave them is not told apart in older rows."""
    has = {table: {one["name"] for one in sqlalchemy.inspect(op.get_bind()).get_columns(table)} for table, _ in COLUMNS}
    if "model_loop" in has["runs"]:
        return
    for table, column in COLUMNS:
        op.add_column(table, column())
    # A run's model goes for all of its later loops, and nobody's grant is taken for granted.
    op.execute("UPDATE runs SET model_loop = loops")
    rows = op.get_bind().execute(sqlalchemy.select(LOOPS.c.id, LOOPS.c.settings).where(LOOPS.c.status.in_(OPEN)))
    for row, text in rows.all():
        settings = json.loads(text)
        if settings.get("yolo"):
            asked = json.dumps({**settings, "yolo": False}, ensure_ascii=False)
            op.get_bind().execute(sqlalchemy.update(LOOPS).where(LOOPS.c.id == row).values(settings=asked))
