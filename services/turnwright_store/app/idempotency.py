"""Idempotent requests: a repeated request returns the first answer, checked in the transaction that does the work.

Source: architecture 3 (idempotency).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any, Final

from turnwright_values.store import Durability

from turnwright_core.errors import Reason, fault
from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.locks import ANSWERS_LOCK
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import idempotency as rows

CLEANUP_EVERY_S: Final = 3600.0
"""Seconds between rounds that delete old answers."""

CLEANUP_ROWS_MAX: Final = 1000
"""Answers that one transaction deletes at most."""

_DAY_MS: Final = 24 * 3600 * 1000


def starts_no_run(_response: object) -> str:
    """The default of `starts`: the request starts no work of a run."""
    return ""


def run_once(
    tx: Transaction,
    key: rows.RequestKey,
    request: Any,
    answer: Callable[[], Any],
    work: Callable[[Transaction], Any],
    starts: Callable[[Any], str] = starts_no_run,
) -> Any:
    """Do the work, unless the same request was already answered: then return that answer.

    `answer` makes an empty response; `starts` returns the run whose work the request started, from its response.
    Raises REQUEST_ID_REUSED.
    """
    digest = hashlib.sha256(request.SerializeToString(deterministic=True)).hexdigest()
    stored = rows.find(tx.connection, key)
    if stored is None:
        response = work(tx)
        answered = response.SerializeToString(deterministic=True)
        rows.add(tx.connection, key, digest, answered, starts(response), tx.now_ms)
        return response
    if stored[0] != digest:
        raise fault(
            Reason.REQUEST_ID_REUSED,
            f"The request id {key.request_id!r} was used for another request: choose a new one.",
            request_id=key.request_id,
        )
    response = answer()
    response.ParseFromString(stored[1])
    if "duplicate" in response.DESCRIPTOR.fields_by_name:
        response.duplicate = True
    return response


def delete_old_answers(tx: Transaction, days: int, rows_max: int = CLEANUP_ROWS_MAX) -> bool:
    """Delete a bounded number of answers older than so many days whose work has ended.

    Returns whether there are more.
    """
    return rows.delete_old_answers(tx.connection, tx.now_ms - days * _DAY_MS, rows_max) == rows_max


def idempotency_cleanup(database: Database, days: int) -> Chore:
    """The chore that deletes old answers."""
    work = partial(delete_old_answers, days=days)
    return Chore(
        "idempotency_cleanup", CLEANUP_EVERY_S, lambda: database.write(work, Durability.NORMAL, {ANSWERS_LOCK})
    )
