"""Servers of tools that are registered for all projects, or for one. Source: docs/adr/0081.

How one is called, and where it may be, executors check before they call it, each time.
"""

from __future__ import annotations

import re
from typing import Final

from google.protobuf.json_format import MessageToJson, Parse
from sqlalchemy import Connection
from turnwright.catalogues.v1 import catalogue_service_pb2 as pb

from turnwright_core.checks import check_count, invalid, over_limit
from turnwright_core.errors import Reason, fault
from turnwright_kit.identity.caller import Caller
from turnwright_store.ports import Transaction
from turnwright_store.sql import tool_servers as rows
from turnwright_store.sql.registry import project_id_of

SERVERS_MAX: Final = 64
"""Servers of a project, and of the deployment."""

SERVER_BYTES_MAX: Final = 256 * 1024
"""Maximum size of one, in bytes of its message."""

_NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,23}")


def add_server(tx: Transaction, caller: Caller, project: str, wanted: pb.ToolServer) -> pb.ToolServer:
    """Register a server. Raises PROJECT_NOT_FOUND, INVALID_FIELD, LIMIT_EXCEEDED."""
    project_id = project_id_of(tx.connection, project)
    if not _NAME.fullmatch(wanted.name):
        raise invalid("server.name", "A server of tools has a name of 1 to 24 lower-case letters, digits and `_`.")
    if not wanted.address:
        raise invalid("server.address", "A server of tools has an address, such as tools.example.com:443.")
    kept = pb.ToolServer()
    kept.CopyFrom(wanted)
    kept.set_by = caller.name
    if (size := kept.ByteSize()) > SERVER_BYTES_MAX:
        raise over_limit("server", SERVER_BYTES_MAX, size, "bytes")
    text = MessageToJson(kept, preserving_proto_field_name=True, indent=None)
    if not rows.put_server(tx.connection, project_id, kept.name, text):
        check_count("servers", rows.count_servers(tx.connection, project_id), SERVERS_MAX)
    # Not its headers, which may hold what others must not read.
    tx.detail.update(server=kept.name, address=kept.address)
    return kept


def remove_server(tx: Transaction, project: str, name: str) -> None:
    """Remove a server. Raises PROJECT_NOT_FOUND, ENTRY_NOT_FOUND."""
    whose = "This project" if project else "The deployment"
    if not rows.drop_server(tx.connection, project_id_of(tx.connection, project), name):
        raise fault(
            Reason.ENTRY_NOT_FOUND, f"{whose} has registered no server of tools {name!r}: list them.", path=name
        )
    tx.detail.update(server=name)


def list_servers(connection: Connection, project: str) -> list[pb.ToolServer]:
    """The servers of a project, or of the deployment. Raises PROJECT_NOT_FOUND."""
    return [Parse(text, pb.ToolServer()) for text in rows.list_servers(connection, project_id_of(connection, project))]
