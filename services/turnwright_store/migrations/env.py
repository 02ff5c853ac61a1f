"""Runs migrations on the connection that the store hands over, inside the store's own transaction."""

from __future__ import annotations

from alembic import context

from turnwright_store.sql.tables import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata, transactional_ddl=False)
context.run_migrations()
