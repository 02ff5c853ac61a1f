"""Rows of servers of tools."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Connection, bindparam, delete, insert, select, update

from turnwright_store.sql.registry import counting
from turnwright_store.sql.tables import tool_servers

_OF_PROJECT: Final = tool_servers.c.project_id == bindparam("project")
_BY_NAME: Final = (_OF_PROJECT, tool_servers.c.name == bindparam("server"))
_ROWS: Final = select(tool_servers.c.body).where(_OF_PROJECT).order_by(tool_servers.c.name)
count_servers: Final = counting(tool_servers)
_ADD: Final = insert(tool_servers).inline()
_CHANGE: Final = update(tool_servers).where(*_BY_NAME).values(body=bindparam("text"))
_REMOVE: Final = delete(tool_servers).where(*_BY_NAME)


def list_servers(connection: Connection, project_id: int) -> list[str]:
    """The servers by name, each as JSON; 0: those of the deployment."""
    return list(connection.execute(_ROWS, {"project": project_id}).scalars())


def put_server(connection: Connection, project_id: int, name: str, text: str) -> bool:
    """Add a server, or replace the one that is there; returns whether there was one."""
    if connection.execute(_CHANGE, {"project": project_id, "server": name, "text": text}).rowcount:
        return True
    connection.execute(_ADD, {"project_id": project_id, "name": name, "body": text})
    return False


def drop_server(connection: Connection, project_id: int, name: str) -> bool:
    """Delete a server; returns whether there was one."""
    return connection.execute(_REMOVE, {"project": project_id, "server": name}).rowcount > 0
