"""Rows of turns. Request and result are JSON objects: they are read and written whole."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any, Final

from sqlalchemy import Connection, bindparam, insert, select, update

from turnwright_core.entries import Cursor
from turnwright_core.runs import Turn, TurnRequest, TurnResult, Usage
from turnwright_store.sql.tables import turns

_TURN: Final = select(
    turns.c.number,
    turns.c.loop,
    turns.c.request,
    turns.c.result,
    turns.c.begin_ms,
    turns.c.end_ms,
    turns.c.revision,
).where(turns.c.run_id == bindparam("run_id_is"))
_ONE: Final = _TURN.where(turns.c.number == bindparam("number_is"))
_PAGE: Final = (
    _TURN.where(turns.c.number < bindparam("before")).order_by(turns.c.number.desc()).limit(bindparam("page"))
)
_CHANGED: Final = _TURN.where(turns.c.revision > bindparam("after")).order_by(turns.c.revision, turns.c.number)
_RECENT: Final = (
    _TURN.where(turns.c.loop == bindparam("loop_is"), turns.c.end_ms > 0)
    .order_by(turns.c.number.desc())
    .limit(bindparam("page"))
)
_ADD: Final = insert(turns)
_END: Final = (
    update(turns)
    .where(turns.c.run_id == bindparam("run_id_is"), turns.c.number == bindparam("number_is"))
    .values(result=bindparam("new_result"), end_ms=bindparam("new_end_ms"), revision=bindparam("new_revision"))
)


def _request(text: str) -> TurnRequest:
    values: dict[str, Any] = json.loads(text)
    return TurnRequest(**{**values, "tools": tuple(values["tools"])})


def _result(text: str) -> TurnResult:
    values: dict[str, Any] = json.loads(text)
    cursor = Cursor(**values["cursor"]) if values["cursor"] else None
    return TurnResult(**{**values, "usage": Usage(**values["usage"]), "cursor": cursor})


def _turn(row: Sequence[Any]) -> Turn:
    number, loop, request, result, begin_ms, end_ms, revision = row
    return Turn(number, loop, _request(request), _result(result) if result else None, begin_ms, end_ms, revision)


def get_turn(connection: Connection, run_id: int, number: int) -> Turn:
    """A turn that exists."""
    return _turn(connection.execute(_ONE, {"run_id_is": run_id, "number_is": number}).one())


def list_turns(connection: Connection, run_id: int, before: int, page: int) -> Iterator[Turn]:
    """Turns of a run, latest first, those before a number."""
    with connection.execute(_PAGE, {"run_id_is": run_id, "before": before, "page": page}) as rows:
        yield from map(_turn, rows)


def changed_turns(connection: Connection, run_id: int, after: int) -> list[Turn]:
    """Turns of a run that were written after a revision, in the order of the writes."""
    return [_turn(row) for row in connection.execute(_CHANGED, {"run_id_is": run_id, "after": after})]


def recent_turns(connection: Connection, run_id: int, loop: int, count: int) -> list[Turn]:
    """The latest ended turns of a loop, oldest first."""
    rows = connection.execute(_RECENT, {"run_id_is": run_id, "loop_is": loop, "page": count}).all()
    return [_turn(row) for row in reversed(rows)]


def add_turn(connection: Connection, run_id: int, turn: Turn) -> None:
    """Open a turn."""
    connection.execute(
        _ADD,
        {
            "run_id": run_id,
            "number": turn.number,
            "loop": turn.loop,
            "request": json.dumps(asdict(turn.request), ensure_ascii=False),
            "begin_ms": turn.begin_ms,
            "revision": turn.revision,
        },
    )


def end_turn(connection: Connection, run_id: int, number: int, result: TurnResult, end_ms: int, revision: int) -> None:
    """Store how a turn ended."""
    connection.execute(
        _END,
        {
            "run_id_is": run_id,
            "number_is": number,
            "new_result": json.dumps(asdict(result), ensure_ascii=False),
            "new_end_ms": end_ms,
            "new_revision": revision,
        },
    )
