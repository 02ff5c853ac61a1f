"""Rows of quotas, with what was used and reserved of each, and of what turns under way have reserved.

Theory of operation. Reserving is one conditional UPDATE, so that no two of them can pass a limit together, whatever
stores they come from. A reservation has a row of its own until its turn ends: whoever ends the turn settles it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from msgspec import Struct
from sqlalchemy import Connection, and_, bindparam, case, delete, insert, literal_column, or_, select, update

from turnwright_store.sql.clauses import insertion, number
from turnwright_store.sql.loops import OPEN_STATUSES
from turnwright_store.sql.registry import counting
from turnwright_store.sql.tables import loops, projects, quotas, reservations, runs

_COLUMNS: Final = (
    quotas.c.id,
    quotas.c.project_id,
    quotas.c.subject,
    quotas.c.metric,
    quotas.c.most,
    quotas.c.period_ms,
    quotas.c.used,
    quotas.c.reserved,
    quotas.c.set_by,
)
_ROWS: Final = select(*_COLUMNS)
_UNDER: Final = _ROWS.where(
    quotas.c.metric.in_(bindparam("metrics", expanding=True)),
    or_(
        and_(
            quotas.c.project_id == literal_column("0"),
            quotas.c.subject.in_(bindparam("of_deployment", expanding=True)),
        ),
        and_(
            quotas.c.project_id == bindparam("project"), quotas.c.subject.in_(bindparam("of_project", expanding=True))
        ),
    ),
).order_by(quotas.c.id)
_OF_PROJECT: Final = _ROWS.where(quotas.c.project_id == bindparam("project")).order_by(
    quotas.c.subject, quotas.c.metric
)
_ONE: Final = _OF_PROJECT.where(quotas.c.subject == bindparam("subject"), quotas.c.metric == bindparam("metric"))
_ADD: Final = insert(quotas).inline()
_BY_ID: Final = quotas.c.id == bindparam("quota")
_CHANGE: Final = (
    update(quotas).where(_BY_ID).values(most=bindparam("new_most", type_=quotas.c.most.type), set_by=bindparam("by"))
)
_REMOVE: Final = delete(quotas).where(_BY_ID)
_USED: Final = case((quotas.c.period_ms < number("begin_ms"), literal_column("0")), else_=quotas.c.used)
"""What was used in the period that begins then."""

_PERIOD: Final = case((quotas.c.period_ms < number("begin_ms"), number("begin_ms")), else_=quotas.c.period_ms)
_RESERVE: Final = (
    update(quotas)
    .where(_BY_ID, quotas.c.reserved + _USED + number("amount") <= quotas.c.most)
    .values(reserved=quotas.c.reserved + number("amount"), used=_USED, period_ms=_PERIOD)
)
_SPEND: Final = (
    update(quotas)
    .where(_BY_ID, _USED + number("amount") <= quotas.c.most)
    .values(used=_USED + number("amount"), period_ms=_PERIOD)
)
_LOCK: Final = update(quotas).where(_BY_ID).values(most=quotas.c.most)
_AT_WORK: Final = (
    select(loops.c.run_id, projects.c.id, projects.c.name, loops.c.by)
    .join(runs, runs.c.id == loops.c.run_id)
    .join(projects, projects.c.id == runs.c.project_id)
    .where(loops.c.status.in_(OPEN_STATUSES), runs.c.removed_ms == literal_column("0"))
)
_SETTLE: Final = (
    update(quotas)
    .where(_BY_ID)
    .values(reserved=quotas.c.reserved - number("amount"), used=_USED + number("spent"), period_ms=_PERIOD)
)
_KEEP: Final = insertion(reservations)
_TAKE: Final = (
    delete(reservations)
    .where(reservations.c.run_id == bindparam("run"), reservations.c.turn == bindparam("turn"))
    .returning(reservations.c.quota_id, reservations.c.amount)
)
_FORGET: Final = delete(reservations).where(reservations.c.quota_id == bindparam("quota"))
_BY_IDS: Final = select(quotas.c.id, quotas.c.metric).where(quotas.c.id.in_(bindparam("ids", expanding=True)))
_ANY: Final = select(select(quotas.c.id).exists())
count_quotas: Final = counting(quotas)


class QuotaRow(Struct, frozen=True):
    """A quota; amounts are tokens, or millionths of a US dollar."""

    id: int
    project_id: int
    """0: the deployment's."""
    subject: str
    metric: int
    most: int
    period_ms: int
    """When the period began in which `used` was used."""
    used: int
    reserved: int
    set_by: str


def has_quotas(connection: Connection) -> bool:
    return bool(connection.execute(_ANY).scalar_one())


def quotas_over(
    connection: Connection,
    project_id: int,
    of_deployment: Collection[str],
    of_project: Collection[str],
    metrics: Collection[int],
) -> list[QuotaRow]:
    """The quotas of these subjects and metrics, in the order in which they are reserved."""
    subjects = {"of_deployment": sorted(of_deployment), "of_project": sorted(of_project)}
    values = {"project": project_id, "metrics": sorted(metrics), **subjects}
    return [QuotaRow(*row) for row in connection.execute(_UNDER, values)]


def spend(connection: Connection, quota: int, amount: int, begin_ms: int) -> bool:
    """Count an amount in the period that begins then; False: there is no room, and nothing has changed."""
    values = {"quota": quota, "amount": amount, "begin_ms": begin_ms}
    return connection.execute(_SPEND, values).rowcount > 0


def lock_quota(connection: Connection, quota: int) -> None:
    """Let nobody else count under a quota until the end of the transaction, in whatever store."""
    connection.execute(_LOCK, {"quota": quota})


def loops_at_work(connection: Connection) -> list[tuple[int, int, str, str]]:
    """The loops that have not ended: the id of the run, the id and the name of the project, and who asked for it."""
    return [(run, project, name, by) for run, project, name, by in connection.execute(_AT_WORK)]


def list_quotas(connection: Connection, project_id: int) -> list[QuotaRow]:
    return [QuotaRow(*row) for row in connection.execute(_OF_PROJECT, {"project": project_id})]


def find_quota(connection: Connection, project_id: int, subject: str, metric: int) -> QuotaRow | None:
    values = {"project": project_id, "subject": subject, "metric": metric}
    row = connection.execute(_ONE, values).one_or_none()
    return QuotaRow(*row) if row else None


def put_quota(connection: Connection, project_id: int, subject: str, metric: int, most: int, by: str) -> bool:
    """Add a quota, or change the limit of the one that is there; returns whether there was one."""
    if found := find_quota(connection, project_id, subject, metric):
        connection.execute(_CHANGE, {"quota": found.id, "new_most": most, "by": by})
        return True
    values = {"project_id": project_id, "subject": subject, "metric": metric, "most": most, "set_by": by}
    connection.execute(_ADD, values)
    return False


def drop_quota(connection: Connection, quota: int) -> None:
    """Delete a quota with its reservations."""
    for statement in (_FORGET, _REMOVE):
        connection.execute(statement, {"quota": quota})


def reserve(connection: Connection, quota: int, amount: int, begin_ms: int) -> bool:
    """Reserve an amount in the period that begins then; False: there is no room, and nothing has changed."""
    values = {"quota": quota, "amount": amount, "begin_ms": begin_ms}
    return connection.execute(_RESERVE, values).rowcount > 0


def keep_reservation(connection: Connection, run: int, turn: int, quota: int, amount: int) -> None:
    connection.execute(_KEEP, {"run_id": run, "turn": turn, "quota_id": quota, "amount": amount})


def take_reservations(connection: Connection, run: int, turn: int) -> dict[int, tuple[int, int]]:
    """Take away what a turn has reserved: by quota, in the order of their ids, its metric and the amount."""
    taken: dict[int, int] = {}
    for quota, amount in connection.execute(_TAKE, {"run": run, "turn": turn}):
        taken[quota] = taken.get(quota, 0) + amount
    metrics: dict[int, int] = dict(connection.execute(_BY_IDS, {"ids": sorted(taken)}).all()) if taken else {}
    return {quota: (metrics[quota], taken[quota]) for quota in sorted(metrics)}


def settle(connection: Connection, quota: int, amount: int, spent: int, begin_ms: int) -> None:
    """Give back what was reserved, and count what was used."""
    connection.execute(_SETTLE, {"quota": quota, "amount": amount, "spent": spent, "begin_ms": begin_ms})
