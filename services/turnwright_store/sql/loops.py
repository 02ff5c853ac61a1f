"""Rows of loops: the queue of a run."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from msgspec import to_builtins
from msgspec.structs import asdict
from sqlalchemy import ColumnElement, Connection, bindparam, literal_column, select, update
from turnwright_values.types import Budget, Loop, LoopSettings, Mode, Usage

from turnwright_core.converters import converter
from turnwright_core.runs import LOOP_OPEN, QUEUED
from turnwright_store.domain.settings_patch import QueuedSettings
from turnwright_store.domain.viewers import asker_of
from turnwright_store.sql.clauses import insertion, picked, rows_in_revisions, unanswered
from turnwright_store.sql.keys import number_in
from turnwright_store.sql.tables import loops

LOOP_COLUMNS: Final = (
    loops.c.sequence,
    loops.c.settings,
    loops.c.prompt,
    loops.c.status,
    loops.c.reason,
    loops.c.summary,
    loops.c.first_turn,
    loops.c.turns,
    loops.c.prompt_tokens,
    loops.c.cached_tokens,
    loops.c.completion_tokens,
    loops.c.reasoning_tokens,
    loops.c.total_tokens,
    loops.c.cost_usd,
    loops.c.create_ms,
    loops.c.end_ms,
    loops.c.revision,
    loops.c.command_id,
    loops.c.by,
)

_OF_RUN: Final = select(*LOOP_COLUMNS).where(loops.c.run_id == bindparam("run_id"))
_PAGE: Final = (
    _OF_RUN.where(loops.c.sequence < bindparam("before")).order_by(loops.c.sequence.desc()).limit(bindparam("page"))
)
_CHANGED: Final = rows_in_revisions(_OF_RUN, loops.c.revision, loops.c.sequence)
_QUEUED: Final = _OF_RUN.where(loops.c.status == number_in(QUEUED)).order_by(loops.c.sequence).limit(bindparam("page"))
_BEGUN_BEFORE: Final = (
    select(loops.c.settings)
    .where(
        loops.c.run_id == bindparam("run_id"), loops.c.sequence < bindparam("before"), loops.c.first_turn > number_in(0)
    )
    .order_by(loops.c.sequence.desc())
    .limit(1)
)
_FIRST_PROMPTS: Final = select(loops.c.run_id, loops.c.prompt).where(
    loops.c.run_id.in_(bindparam("ids", expanding=True)), loops.c.sequence == number_in(1)
)
_ADD: Final = insertion(loops)
_ADDED: Final = ("sequence", "prompt", "status", "create_ms", "revision", "command_id")
_WRITTEN: Final = ("status", "reason", "summary", "first_turn", "turns", "end_ms", "revision")
_USAGE: Final = ("prompt_tokens", "cached_tokens", "completion_tokens", "reasoning_tokens", "total_tokens", "cost_usd")
_WRITE: Final = unanswered(
    update(loops).where(loops.c.run_id == bindparam("run_id_is"), loops.c.sequence == bindparam("sequence_is"))
)
OPEN_STATUSES: Final[list[ColumnElement[int]]] = [literal_column(str(status)) for status in LOOP_OPEN]
"""The statuses of a loop that has not ended, as the index of such loops says them."""

_to_settings: Final = converter(QueuedSettings)


def settings_json(settings: LoopSettings) -> str:
    """Settings as they are stored: the mode by its word, flags by their names."""
    return json.dumps({**to_builtins(settings), "mode": settings.mode.name.lower()}, ensure_ascii=False)


def shown_attributes(loop: Loop) -> str:
    """The attributes of `run://{alias}`: the settings as the contract has them, and the loop."""
    settings = json.loads(settings_json(loop.settings))
    settings.pop("model_of_run", None)
    return json.dumps({**settings, "loop": loop.sequence}, ensure_ascii=False)


@lru_cache(maxsize=256)
def _settings(text: str) -> LoopSettings:
    values: dict[str, Any] = json.loads(text)
    return _to_settings({**values, "mode": Mode[values["mode"].upper()]})


@lru_cache(maxsize=256)
def _name(by: str) -> str:
    asker = asker_of(by)
    return asker.name if asker else ""


def settings_of(text: str) -> LoopSettings | None:
    """Settings as `settings_json` writes them; None where there are none."""
    return _settings(text) if text else None


def budget_json(budget: Budget | None) -> str:
    """A budget as it is stored; empty for none."""
    return json.dumps(asdict(budget)) if budget else ""


@lru_cache(maxsize=256)
def budget_of(text: str) -> Budget | None:
    return Budget(**json.loads(text)) if text else None


def loop_of(row: Sequence[Any]) -> Loop | None:
    """The columns of a loop; None for the empty side of an outer join."""
    if row[0] is None:
        return None
    sequence, settings, *columns, by = row
    return Loop(*(sequence, _settings(settings), *columns[:6], Usage(*columns[6:-4]), *columns[-4:], _name(by)))


def _loops(rows: Any) -> Iterator[Loop]:
    return (loop for loop in map(loop_of, rows) if loop)


def list_loops(connection: Connection, run_id: int, before: int, page: int) -> Iterator[Loop]:
    """Loops of a run, latest first, those before a sequence."""
    with connection.execute(_PAGE, {"run_id": run_id, "before": before, "page": page}) as rows:
        yield from _loops(rows)


def find_loop(connection: Connection, run_id: int, sequence: int) -> Loop | None:
    found = next(list_loops(connection, run_id, sequence + 1, 1), None)
    return found if found and found.sequence == sequence else None


def changed_loops(connection: Connection, run_id: int, after: tuple[int, int], to: int, page: int) -> list[Loop]:
    """Loops of a run after (revision, sequence), written up to a revision, in the order of the writes."""
    values = {"run_id": run_id, "from_revision": after[0], "from_number": after[1], "to": to, "page": page}
    return list(_loops(connection.execute(_CHANGED, values)))


def next_queued(connection: Connection, run_id: int) -> tuple[Loop, str] | None:
    """The loop that begins next, and who asked for it, as it is stored."""
    row = connection.execute(_QUEUED, {"run_id": run_id, "page": 1}).one_or_none()
    loop = loop_of(row) if row else None
    return (loop, row[-1]) if row and loop else None


def list_queued(connection: Connection, run_id: int, page: int) -> list[Loop]:
    """Loops that have not begun, the next one first."""
    return list(_loops(connection.execute(_QUEUED, {"run_id": run_id, "page": page})))


def mode_before(connection: Connection, run_id: int, sequence: int) -> Mode | None:
    """The mode of the latest loop before this one that has had a turn; None if there is none."""
    settings = connection.execute(_BEGUN_BEFORE, {"run_id": run_id, "before": sequence}).scalar_one_or_none()
    return _settings(settings).mode if settings else None


def first_prompts(connection: Connection, run_ids: Sequence[int]) -> dict[int, str]:
    """The prompt of the first loop of each run; runs without one are left out."""
    if not run_ids:
        return {}
    return {int(row[0]): row[1] for row in connection.execute(_FIRST_PROMPTS, {"ids": list(run_ids)})}


def add_loop(connection: Connection, run_id: int, loop: Loop, by: str) -> None:
    """`by` says who asked for it, as it is stored."""
    values = {"run_id": run_id, "by": by, "settings": settings_json(loop.settings), **picked(asdict(loop), _ADDED)}
    connection.execute(_ADD, values)


def write_settings(connection: Connection, run_id: int, loop: Loop) -> None:
    """Write other settings of a loop that has not ended."""
    values = {"revision": loop.revision, "settings": settings_json(loop.settings)}
    connection.execute(_WRITE, {"run_id_is": run_id, "sequence_is": loop.sequence, **values})


def write_loop(connection: Connection, run_id: int, loop: Loop) -> None:
    values = {**picked(asdict(loop), _WRITTEN), **picked(asdict(loop.usage), _USAGE)}
    connection.execute(_WRITE, {"run_id_is": run_id, "sequence_is": loop.sequence, **values})
