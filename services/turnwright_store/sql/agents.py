"""Rows of agents.

Theory of operation. The rows that are not settled are few, and an index has nothing else: they are looked at again and
again, and what is due follows from the rows of both runs. So no end of a loop, whoever caused it, can be missed.
What a run has spent on agents is not counted anywhere: it is the sum over their rows, in which an agent that works has
what is reserved for it, and one that has ended what it has spent.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from msgspec import Struct, json
from msgspec.structs import asdict, replace
from sqlalchemy import ColumnElement, Connection, bindparam, delete, func, insert, literal_column, or_, select, update
from turnwright_values.types import Budget, RunPlace, Spend

from turnwright_store.sql.clauses import parameters, unanswered
from turnwright_store.sql.columns import not_zero
from turnwright_store.sql.inbox import IS_WAITING
from turnwright_store.sql.loops import OPEN_STATUSES, budget_json, budget_of
from turnwright_store.sql.runs import RunRow
from turnwright_store.sql.tables import agents, loops, projects, runs, views

FIRST_LOOP: Final = 1
"""Sequence of the loop of an agent's run that is the agent's: later ones are of whoever goes on with its run."""


class AgentRow(Struct, frozen=True):
    """An agent."""

    id: int
    run_id: int
    agent_id: int
    loop: int
    path: str
    name: str
    background: bool
    reserved: Budget
    spent: Spend | None
    """None: it has not ended, or its own agents have not."""
    status: int
    end_ms: int
    waiter: str
    announced: int
    settled: bool

    @property
    def counted(self) -> Spend:
        """What it takes of what the run that started it may spend."""
        if self.spent is not None:
            return self.spent
        most = self.reserved
        tokens, cost_usd = most.tokens_max, most.cost_usd_max
        return Spend(most.turns_max, tokens, cost_usd=cost_usd, reserved_cost_usd=cost_usd, reserved_tokens=tokens)


_SPENT: Final = json.Decoder(Spend)
_COLUMNS: Final = (
    agents.c.id,
    agents.c.run_id,
    agents.c.agent_id,
    agents.c.loop,
    agents.c.path,
    agents.c.name,
    agents.c.background,
    agents.c.reserved,
    agents.c.spent,
    agents.c.status,
    agents.c.end_ms,
    agents.c.waiter,
    agents.c.announced,
    agents.c.settled,
)
_OF_RUN: Final = select(*_COLUMNS).where(agents.c.run_id == bindparam("run")).order_by(agents.c.id)
_BY_ID: Final = select(*_COLUMNS).where(agents.c.id == bindparam("wanted"))
_BY_PATH: Final = _OF_RUN.where(agents.c.path == bindparam("wanted"))
_ADD: Final = unanswered(insert(agents).inline())
_WRITE: Final = unanswered(
    update(agents)
    .where(agents.c.id == bindparam("row_is"))
    .values(**parameters("spent", "status", "end_ms", "waiter", "announced", "settled"))
)
_REMOVE: Final = unanswered(delete(agents).where(agents.c.id == bindparam("row_is")))
_REOPEN: Final = unanswered(
    update(agents).where(agents.c.run_id == bindparam("run_is")).values(settled=literal_column("0"))
)
_LINK: Final = unanswered(
    update(runs)
    .where(runs.c.id == bindparam("run_is"))
    .values(**parameters("parent_run", "parent_name", "parent_depth", "place_name", "place_parent"))
)
_RENAME: Final = unanswered(
    update(runs)
    .where(runs.c.id.in_(select(agents.c.agent_id).where(agents.c.run_id == bindparam("run_is"))))
    .values(parent_run=bindparam("new_alias"))
)
_ABOVE: Final = select(agents.c.run_id).where(agents.c.agent_id == bindparam("agent"))
_BELOW: Final = select(agents.c.agent_id).where(agents.c.run_id.in_(bindparam("above", expanding=True)))
_PROPOSED: Final = (
    select(views.c.id, views.c.path).where(views.c.run_id == bindparam("run"), IS_WAITING).order_by(views.c.id)
)

_above: Final = runs.alias("above")
_project: Final = projects.alias("of_agents")
_has_ended: Final = (
    ~select(loops.c.id)
    .where(loops.c.run_id == agents.c.agent_id, loops.c.sequence == FIRST_LOOP, loops.c.status.in_(OPEN_STATUSES))
    .exists()
)
_is_left: Final = or_(
    _above.c.id.is_(None),
    not_zero(_above.c.removed_ms),
    _above.c.loop_active != agents.c.loop,
    _above.c.abort_requested.is_(True),
)
_is_proposing: Final = (
    select(views.c.id).where(views.c.run_id == agents.c.agent_id, IS_WAITING, views.c.id > agents.c.announced).exists()
)
_none: Final[ColumnElement[str]] = literal_column("''")
_DUE: Final = (
    select(
        agents.c.id,
        func.coalesce(_project.c.name, _none),
        func.coalesce(_above.c.alias, _none),
        func.coalesce(runs.c.alias, _none),
        agents.c.run_id,
    )
    .select_from(agents)
    # Of a run that was removed, not even the row may be there.
    .outerjoin(_above, _above.c.id == agents.c.run_id)
    .outerjoin(runs, runs.c.id == agents.c.agent_id)
    .outerjoin(_project, _project.c.id == func.coalesce(_above.c.project_id, runs.c.project_id))
    .where(agents.c.settled == literal_column("0"), or_(_has_ended, _is_left, _is_proposing))
    # Those that were started last first: an agent ends once its own have.
    .order_by(agents.c.id.desc())
    .limit(bindparam("page"))
)
_DUE_OF_RUN: Final = _DUE.where(or_(agents.c.run_id == bindparam("run"), agents.c.agent_id == bindparam("run")))
_ANY: Final = select(select(agents.c.id).where(agents.c.settled == literal_column("0")).exists())
_COUNT_OPEN: Final = (
    select(func.count())
    .select_from(agents)
    .where(agents.c.run_id == bindparam("run"), agents.c.end_ms == literal_column("0"))
)


class DueAgent(Struct, frozen=True):
    """An agent for which something may be due: its row, and where its runs are."""

    id: int
    project: str
    run: str
    agent: str
    run_id: int


def _row(row: Any) -> AgentRow:
    values = dict(zip(AgentRow.__struct_fields__, row, strict=True))
    values["reserved"] = budget_of(values["reserved"]) or Budget()
    values["spent"] = _SPENT.decode(values["spent"]) if values["spent"] else None
    values["background"], values["settled"] = bool(values["background"]), bool(values["settled"])
    return AgentRow(**values)


def list_agents(connection: Connection, run_id: int) -> list[AgentRow]:
    """The agents that a run has started, in this order."""
    return [_row(row) for row in connection.execute(_OF_RUN, {"run": run_id})]


def find_agent(connection: Connection, row_id: int) -> AgentRow | None:
    row = connection.execute(_BY_ID, {"wanted": row_id}).one_or_none()
    return _row(row) if row else None


def agent_of_command(connection: Connection, run_id: int, path: str) -> AgentRow | None:
    row = connection.execute(_BY_PATH, {"run": run_id, "wanted": path}).one_or_none()
    return _row(row) if row else None


def add_agent(connection: Connection, row: AgentRow, now_ms: int) -> None:
    values = asdict(row)
    for name in ("id", "spent", "status", "end_ms", "announced", "settled"):
        del values[name]
    values |= {"reserved": budget_json(row.reserved), "background": int(row.background), "create_ms": now_ms}
    connection.execute(_ADD, values)


def write_agent(connection: Connection, row: AgentRow) -> None:
    """Store what can change of a row."""
    spent = json.encode(row.spent).decode() if row.spent is not None else ""
    values = {**asdict(row), "spent": spent, "settled": int(row.settled)}
    names = ("spent", "status", "end_ms", "waiter", "announced", "settled")
    connection.execute(_WRITE, {"row_is": row.id, **{f"new_{name}": values[name] for name in names}})


def remove_agent(connection: Connection, row_id: int) -> None:
    connection.execute(_REMOVE, {"row_is": row_id})


def reopen_agents(connection: Connection, run_id: int) -> None:
    """Have the agents of a run looked at again."""
    connection.execute(_REOPEN, {"run_is": run_id})


def link(connection: Connection, agent_id: int, above: RunRow, name: str, depth: int) -> None:
    """Say in the row of an agent's run where it comes from. It works in the directory of the run above."""
    place = above.run.place or RunPlace()
    origin = {"parent_run": above.alias, "parent_name": name, "parent_depth": depth}
    values = {**origin, "place_name": place.name, "place_parent": place.parent}
    connection.execute(_LINK, {"run_is": agent_id, **{f"new_{column}": value for column, value in values.items()}})


def rename_origin(connection: Connection, run_id: int, alias: str) -> None:
    """A run that has started agents has another alias."""
    connection.execute(_RENAME, {"run_is": run_id, "new_alias": alias})


def has_open_agents(connection: Connection) -> bool:
    """Whether there is any agent to look at."""
    return bool(connection.execute(_ANY).scalar_one())


def count_open(connection: Connection, run_id: int) -> int:
    """How many agents of a run have not ended, or have agents that have not."""
    return int(connection.execute(_COUNT_OPEN, {"run": run_id}).scalar_one())


def list_due(connection: Connection, page: int, run_id: int | None = None) -> list[DueAgent]:
    """Agents for which something may be due; of a run, those that it has started, and itself."""
    if run_id is None:
        return [DueAgent(*row) for row in connection.execute(_DUE, {"page": page})]
    return [DueAgent(*row) for row in connection.execute(_DUE_OF_RUN, {"page": page, "run": run_id})]


def runs_above(connection: Connection, run_id: int) -> list[int]:
    """The run that started a run, the one that started that, and so on."""
    found: list[int] = []
    while (above := connection.execute(_ABOVE, {"agent": found[-1] if found else run_id}).scalar_one_or_none()) and (
        above not in found
    ):
        found.append(above)
    return found


def runs_below(connection: Connection, run_id: int) -> list[int]:
    """The agents of a run, theirs, and so on."""
    found: list[int] = []
    last = [run_id]
    while last := [one for (one,) in connection.execute(_BELOW, {"above": last}) if one not in found]:
        found += last
    return found


def proposals_after(connection: Connection, run_id: int, after: int) -> Sequence[tuple[int, str]]:
    """What waits for a decision in a run, of which nobody was told: row and path."""
    found = connection.execute(_PROPOSED, {"run": run_id})
    return [(view, path) for view, path in found if view > after]


def with_agents(spent: Spend, rows: Sequence[AgentRow]) -> Spend:
    for row in rows:
        more = row.counted
        spent = replace(
            spent,
            turns=spent.turns + more.turns,
            tokens=spent.tokens + more.tokens,
            lost_tokens=spent.lost_tokens + more.lost_tokens,
            cost_usd=spent.cost_usd + more.cost_usd,
            turns_without_cost=spent.turns_without_cost + more.turns_without_cost,
            prompt_tokens=spent.prompt_tokens + more.prompt_tokens,
            reserved_cost_usd=spent.reserved_cost_usd + more.reserved_cost_usd,
            reserved_tokens=spent.reserved_tokens + more.reserved_tokens,
        )
    return spent
