"""The tables for modules of queries, with types and conditions on columns, recorded (see sql.lazy)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnwright_store.sql.lazy import names_of

if TYPE_CHECKING:
    from turnwright_store.sql.columns import *  # noqa: F403
    from turnwright_store.sql.dialect import *  # noqa: F403
    from turnwright_store.sql.tables import *  # noqa: F403
else:
    __getattr__ = names_of("turnwright_store.sql.tables", "turnwright_store.sql.dialect")
