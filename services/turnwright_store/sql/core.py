"""SQLAlchemy Core for modules of queries: the names of `sqlalchemy`, recorded (see sql.lazy)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnwright_store.sql.lazy import names_of

if TYPE_CHECKING:
    from sqlalchemy import *  # noqa: F403
else:
    __getattr__ = names_of("sqlalchemy")
