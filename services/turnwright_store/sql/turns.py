"""Rows of turns. Request and result are JSON objects, read and written whole; what is at its default is left out."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

from msgspec.json import Decoder, encode
from msgspec.structs import replace
from sqlalchemy import Connection, bindparam, select, update
from turnwright_values.types import Cursor, Turn, TurnRequest, TurnResult

from turnwright_store.sql.clauses import insertion, rows_in_revisions, unanswered
from turnwright_store.sql.tables import turns

_COLUMNS: Final = (
    turns.c.number,
    turns.c.loop,
    turns.c.request,
    turns.c.result,
    turns.c.begin_ms,
    turns.c.end_ms,
    turns.c.revision,
    turns.c.packet_digest,
    turns.c.fingerprint,
)
_TURN: Final = select(*_COLUMNS).where(turns.c.run_id == bindparam("run_id_is"))
_ONE: Final = _TURN.where(turns.c.number == bindparam("number_is"))
_PAGE: Final = (
    _TURN.where(turns.c.number < bindparam("before")).order_by(turns.c.number.desc()).limit(bindparam("page"))
)
_CHANGED: Final = rows_in_revisions(_TURN, turns.c.revision, turns.c.number)
_RECENT: Final = _TURN.where(turns.c.end_ms > 0).order_by(turns.c.number.desc()).limit(bindparam("page"))
_ADD: Final = insertion(turns)
_OF_TURN: Final = (turns.c.run_id == bindparam("run_id_is"), turns.c.number == bindparam("number_is"))
_END: Final = unanswered(update(turns).where(*_OF_TURN))
_END_READ_BACK: Final = update(turns).where(*_OF_TURN).returning(turns.c.loop, turns.c.request, turns.c.begin_ms)
_DIGEST: Final = re.compile(r"[0-9a-f]{64}")


def _digests(result: TurnResult) -> dict[str, str]:
    """Those texts of a result that are digests: they have columns of their own, where they take half the room."""
    texts = {"packet_digest": result.packet_digest, "fingerprint": result.fingerprint}
    return {name: text for name, text in texts.items() if _DIGEST.fullmatch(text)}


_REQUEST: Final = Decoder(TurnRequest)
RESULT: Final = Decoder(TurnResult)


def _result(text: str, packet_digest: str | None, fingerprint: str | None) -> TurnResult:
    result = RESULT.decode(text)
    if not (packet_digest or fingerprint):
        return result
    return replace(
        result, packet_digest=packet_digest or result.packet_digest, fingerprint=fingerprint or result.fingerprint
    )


def _turn(row: Sequence[Any]) -> Turn:
    number, loop, request, result, begin_ms, end_ms, revision, *digests = row
    ended = _result(result, *digests) if result else None
    return Turn(number, loop, _REQUEST.decode(request), ended, begin_ms, end_ms, revision)


def find_turn(connection: Connection, run_id: int, number: int) -> Turn | None:
    row = connection.execute(_ONE, {"run_id_is": run_id, "number_is": number}).one_or_none()
    return _turn(row) if row else None


def get_turn(connection: Connection, run_id: int, number: int) -> Turn:
    return _turn(connection.execute(_ONE, {"run_id_is": run_id, "number_is": number}).one())


def list_turns(connection: Connection, run_id: int, before: int, page: int) -> Iterator[Turn]:
    """Turns of a run, latest first, those before a number."""
    with connection.execute(_PAGE, {"run_id_is": run_id, "before": before, "page": page}) as rows:
        yield from map(_turn, rows)


def changed_turns(connection: Connection, run_id: int, after: tuple[int, int], to: int, page: int) -> list[Turn]:
    """Turns of a run behind (revision, number), written up to a revision, in the order of the writes."""
    values = {"run_id_is": run_id, "from_revision": after[0], "from_number": after[1], "to": to, "page": page}
    return [_turn(row) for row in connection.execute(_CHANGED, values)]


def recent_turns(connection: Connection, run_id: int, count: int) -> list[Turn]:
    """The latest ended turns of a run, oldest first."""
    rows = connection.execute(_RECENT, {"run_id_is": run_id, "page": count}).all()
    return [_turn(row) for row in reversed(rows)]


def add_turn(connection: Connection, run_id: int, turn: Turn) -> None:
    connection.execute(
        _ADD,
        {
            "run_id": run_id,
            "number": turn.number,
            "loop": turn.loop,
            "request": encode(turn.request).decode(),
            "begin_ms": turn.begin_ms,
            "revision": turn.revision,
        },
    )


def end_turn(
    connection: Connection,
    run_id: int,
    number: int,
    result: TurnResult,
    end_ms: int,
    end: Cursor,
    *,
    is_read_back: bool,
) -> Turn | None:
    """Store the end of a turn, with the revisions of the scopes that its run reads; returns the turn on request."""
    digests = _digests(result)
    rows = connection.execute(
        _END_READ_BACK if is_read_back else _END,
        {
            "run_id_is": run_id,
            "number_is": number,
            "result": encode(replace(result, **dict.fromkeys(digests, ""))).decode(),
            "packet_digest": digests.get("packet_digest"),
            "fingerprint": digests.get("fingerprint"),
            "end_ms": end_ms,
            "revision": end.run_revision,
            "end_project_rev": end.project_revision,
            "end_global_rev": end.global_revision,
        },
    )
    if not is_read_back:
        return None
    loop, request, begin_ms = rows.one()
    return Turn(number, loop, _REQUEST.decode(request), result, begin_ms, end_ms, end.run_revision)
