"""Open commands of a run's latest turn, and what each waits for.

Source: architecture 7; rows RS01-RS06.
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import ColumnElement, Connection, bindparam, literal_column
from turnwright.types.v1.command_record_pb2 import CommandRecord
from turnwright_values.types import State, Tier

from turnwright_core.entries import STATES
from turnwright_core.session import Wait
from turnwright_core.wire.command_records import wait_in
from turnwright_store.sql.tables import versions, views
from turnwright_store.sql.views import CURRENT_ROWS

_OPEN: Final[list[ColumnElement[int]]] = [
    literal_column(str(int(state))) for state in State if state and not state.is_settled
]
_UNSETTLED: Final = (
    CURRENT_ROWS.with_only_columns(views.c.path, views.c.state, versions.c.record)
    .where(
        views.c.path >= bindparam("low"),
        views.c.path < bindparam("high"),
        views.c.state.in_(_OPEN),
        versions.c.writer == literal_column(str(int(Tier.SYSTEM))),
    )
    .order_by(views.c.position)
)


def waiting_commands(connection: Connection, run_id: int, turn: int) -> dict[str, tuple[Wait, CommandRecord]]:
    """The model's commands of a turn that have not ended, by path, in their order."""
    prefix = f"log://turn_{turn}/"
    values = {"run_id": run_id, "low": prefix, "high": prefix + "\U0010ffff"}
    found = {}
    for path, state, record in connection.execute(_UNSETTLED, values):
        message = CommandRecord.FromString(record or b"")
        if wait := wait_in(STATES[state], message):
            found[path] = (wait, message)
    return found
