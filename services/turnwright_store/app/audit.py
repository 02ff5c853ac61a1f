"""The audit: a row for each call by which somebody has changed something, in the transaction of the change.

What a service does of its own leaves none: calls in nobody's name, rpcs that need the right SERVICE, and what a run's
owner writes, which says so by its fencing token. The call that began the loop has left one. Source: docs/adr/0068.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

import msgspec
from msgspec import Struct
from sqlalchemy import Connection
from turnwright.types.v1 import access_pb2
from turnwright_values.store import Durability

from turnwright_kit.access import is_owners
from turnwright_kit.identity.caller import Caller, Kind
from turnwright_kit.identity.policy import word_of
from turnwright_kit.telemetry import is_on
from turnwright_kit.telemetry_names import (
    AUDIT,
    CONVERSATION,
    END_USER,
    PROJECT,
    RPC_METHOD,
    RPC_SYSTEM,
    SpanAttributes,
    client_of,
)
from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.checks import page_size
from turnwright_store.domain.locks import AUDIT_LOCK
from turnwright_store.domain.pages import PLACE_MAX, decode_page_token, page_of
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import audit as rows
from turnwright_store.sql.audit import AuditRow
from turnwright_store.sql.registry import get_project

CLEANUP_EVERY_S: Final = 3600.0
"""Seconds between rounds that delete old rows."""

CLEANUP_ROWS_MAX: Final = 1000
"""Rows that one transaction deletes at most."""

DETAIL_BYTES_MAX: Final = 16 * 1024
"""Longest detail of a row, in bytes of JSON; a longer one says only which keys it had."""

_DAY_MS: Final = 24 * 3600 * 1000


class AuditedCall(Struct, frozen=True):
    """What is known of a call that changes something, before it does."""

    project: str
    """Name of its project; empty: it names none."""
    run: str
    request_id: str


def audited_call(request: Any, caller: Caller) -> AuditedCall | None:
    """The call as its row names it, of a message or its value; None for one that leaves none."""
    is_services = caller.kind is Kind.SERVICE or caller.right == access_pb2.RIGHT_SERVICE
    if is_services or (caller.is_trusted and is_owners(request)):
        return None
    project, run = (getattr(request, name, "") for name in ("project", "run"))
    request_id = getattr(request, "request_id", "") or getattr(request, "command_id", "")
    return AuditedCall(project, run, request_id)


def record(tx: Transaction, caller: Caller, call: AuditedCall, answer: Any) -> SpanAttributes | None:
    """Write the row of a call that has done its work, by the rpc that somebody called first.

    What it made is named as its answer names it. Returns the row as an event; None: there is none.
    """
    if not tx.is_change:
        return None
    project = call.project or _name_in(answer, "project", "name")
    run = call.run or _name_in(answer, "run", "run")
    row = AuditRow(
        time_ms=tx.now_ms,
        principal=caller.name,
        kind=caller.kind.value,
        proof=caller.proof.value,
        token_id=caller.token,
        by=caller.by,
        peer=caller.peer,
        method=caller.method.rpartition("/")[2],
        run=run,
        right=caller.right,
        request_id=call.request_id,
        detail=_detail(tx),
    )
    rows.add(tx.connection, project, row)
    return _event(project, row, caller.method) if is_on() else None


def _event(project: str, row: AuditRow, method: str) -> SpanAttributes:
    """The row as attributes, without those that are empty."""
    own = {AUDIT + name: getattr(row, name) for name in ("kind", "proof", "token_id", "by", "request_id", "detail")}
    known = {
        END_USER: row.principal,
        RPC_SYSTEM: "grpc",
        RPC_METHOD: method,
        PROJECT: project,
        CONVERSATION: row.run,
        AUDIT + "right": word_of(row.right),
        **own,
        **client_of(row.peer),
    }
    return {name: value for name, value in known.items() if value}


def _name_in(answer: Any, field: str, name: str) -> str:
    """The name of the project or run that a call has made; empty: it has made none."""
    return str(getattr(getattr(answer, field, None), name, ""))


def _detail(tx: Transaction) -> str:
    if not tx.detail:
        return ""
    text = msgspec.json.encode(tx.detail)
    return (text if len(text) <= DETAIL_BYTES_MAX else msgspec.json.encode({"left_out": sorted(tx.detail)})).decode()


def list_audit(
    connection: Connection, project: str, since_ms: int, size: int, token: str
) -> tuple[list[AuditRow], str]:
    """A page of the rows of a project, or of those that are about none. Raises PROJECT_NOT_FOUND."""
    if project:
        get_project(connection, project)
    wanted = page_size(size)
    before: Any = decode_page_token(token, int, int) or (PLACE_MAX, 0)
    found = rows.list_rows(connection, project, since_ms, before, wanted + 1)
    page, following = page_of(found, wanted, lambda one: (one[1].time_ms, one[0]), lambda one: _bytes(one[1]))
    return [row for _, row in page], following


def _bytes(row: AuditRow) -> int:
    return len(row.detail) * 4 + 4 * 1024


def delete_old_rows(tx: Transaction, days: int, rows_max: int = CLEANUP_ROWS_MAX) -> bool:
    """Delete a bounded number of rows older than so many days. Returns whether there are more."""
    return rows.drop_old(tx.connection, tx.now_ms - days * _DAY_MS, rows_max) == rows_max


def audit_cleanup(database: Database, days: int) -> Chore:
    """The chore that deletes rows older than so many days."""
    work = partial(delete_old_rows, days=days)
    return Chore("audit_cleanup", CLEANUP_EVERY_S, lambda: database.write(work, Durability.NORMAL, {AUDIT_LOCK}))
