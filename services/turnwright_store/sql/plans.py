"""The plans that a run sees: their latest versions with deltas, however many versions are kept."""

from __future__ import annotations

from typing import Final

from turnwright_store.ports import Connection
from turnwright_store.sql.core import select
from turnwright_store.sql.lazy_tables import CURRENT_PLANS
from turnwright_store.sql.views import ENTRY_ROW_COLUMNS, IN_RUN, VISIBLE_VERSIONS, EntryRow, entry_rows

_CURRENT: Final = select(*ENTRY_ROW_COLUMNS).select_from(VISIBLE_VERSIONS).where(IN_RUN, CURRENT_PLANS)


def current_plans(connection: Connection, run_id: int) -> list[EntryRow]:
    return entry_rows(connection.execute(_CURRENT, {"run_id": run_id}))
