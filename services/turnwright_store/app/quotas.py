"""Quotas: what models may take in a day or a month for the deployment, a project, a principal or a group.

A call of a model reserves what it may take in the transaction that stores its packet, of each quota that it is under,
and the end of its turn settles that: the next owner of a lost turn does, too. Where there are no quotas, neither costs
a statement. Source: docs/adr/0070.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from typing import Final, Protocol

from msgspec import Struct
from sqlalchemy import Connection
from turnwright.quotas.v1 import quota_service_pb2 as pb
from turnwright_values.types import TurnResult

from turnwright_core.checks import check_count, invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.askers import asker_of
from turnwright_store.domain.locks import QUOTAS_LOCK
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import quotas as rows
from turnwright_store.sql.quotas import QuotaRow
from turnwright_store.sql.registry import get_project
from turnwright_store.sql.runs import RunHead

QUOTAS_MAX: Final = 1000
"""Most quotas of the deployment, and of a project."""

LIMIT_MAX: Final = 10**12
"""Highest limit, in the unit of its metric."""

MICROS: Final = 1_000_000
"""Costs are counted in millionths of a US dollar."""

_SUBJECT: Final = re.compile(r"|(?:user|group|project):\S[^\x00-\x1f\x7f]{0,289}")


class _Metric(Struct, frozen=True):
    """What a quota counts."""

    of: str
    unit: int
    """How many of its counts are one of its unit."""
    period: str


_METRICS: Final[Mapping[int, _Metric]] = {
    pb.QUOTA_METRIC_TOKENS_DAY: _Metric("tokens", 1, "day"),
    pb.QUOTA_METRIC_TOKENS_MONTH: _Metric("tokens", 1, "month"),
    pb.QUOTA_METRIC_COST_DAY: _Metric("dollars", MICROS, "day"),
    pb.QUOTA_METRIC_COST_MONTH: _Metric("dollars", MICROS, "month"),
}


def _utc(moment_ms: int) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, UTC)


def _period(metric: _Metric, now_ms: int) -> tuple[int, int]:
    """When the period of a moment begins and ends, in milliseconds since 1970."""
    now = _utc(now_ms)
    begin = datetime(now.year, now.month, now.day if metric.period == "day" else 1, tzinfo=UTC)
    if metric.period == "day":
        return _ms(begin), _ms(begin) + 24 * 3600 * 1000
    return _ms(begin), _ms(datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _amount(metric: _Metric, tokens: int, cost_usd: float) -> int:
    return math.ceil(cost_usd * MICROS) if metric.unit == MICROS else tokens


def _subjects(run: RunHead) -> tuple[Collection[str], Collection[str]]:
    """Whose quotas of the deployment, and of its project, a run is under: its loop is somebody's."""
    asker = asker_of(run.asked_by)
    of_asker = [f"user:{asker.name}", *(f"group:{group}" for group in asker.groups)] if asker else []
    return ("", f"project:{run.project}", *of_asker), ("", *of_asker)


def reserve(tx: Transaction, run: RunHead, turn: int, tokens: int, cost_usd: float) -> None:
    """Reserve what a call may take. Raises QUOTA_EXCEEDED."""
    if not run.has_quotas:
        return
    for quota in rows.quotas_over(tx.connection, run.project_id, *_subjects(run)):
        metric = _METRICS[quota.metric]
        begin_ms, end_ms = _period(metric, tx.now_ms)
        # What has no known price still needs a quota that is not used up.
        amount = max(1, _amount(metric, tokens, cost_usd))
        if not rows.reserve(tx.connection, quota.id, amount, begin_ms):
            raise _exceeded(run, quota, amount, begin_ms, end_ms)
        rows.keep_reservation(tx.connection, run.id, turn, quota.id, amount)


def settle(tx: Transaction, run: RunHead, turn: int, result: TurnResult) -> None:
    """Count what a turn has taken in place of what it had reserved."""
    if not run.has_quotas:
        return
    tokens = result.usage.total_tokens + result.lost_tokens
    cost_usd = (result.usage.cost_usd or 0.0) + result.lost_cost_usd
    for quota, (number, amount) in rows.take_reservations(tx.connection, run.id, turn).items():
        metric = _METRICS[number]
        begin_ms, _ = _period(metric, tx.now_ms)
        rows.settle(tx.connection, quota, amount, _amount(metric, tokens, cost_usd), begin_ms)


class HoldsLocks(Protocol):
    """Keeps the locks of what calls reserve."""

    quota_locks: frozenset[str]


def quotas_refresh(database: Database, holder: HoldsLocks, every_s: float) -> Chore:
    """The chore that finds out whether there are quotas.

    A store that does not know of one yet reserves it without the lock, at the price of waiting for other replicas.
    """

    async def step() -> bool:
        holder.quota_locks = frozenset({QUOTAS_LOCK} if await database.read(rows.has_quotas) else ())
        return False

    return Chore("quotas_refresh", every_s, step, follows=database)


def _exceeded(run: RunHead, quota: QuotaRow, amount: int, begin_ms: int, end_ms: int) -> TurnwrightError:
    """The error for a quota that has no room; figures only of the project's own."""
    metric = _METRICS[quota.metric]
    free = _utc(end_ms).strftime("%Y-%m-%d %H:%M UTC")
    whose, raised_by = _whose(run, quota)
    used = quota.used if quota.period_ms >= begin_ms else 0
    is_own = quota.project_id != 0 or quota.subject == f"project:{run.project}"
    figures = (
        f" has used {used / metric.unit:g} of {quota.most / metric.unit:g} {metric.of} of this {metric.period}, "
        f"{quota.reserved / metric.unit:g} are reserved for calls under way, and this one may take "
        f"{amount / metric.unit:g}"
        if is_own
        else f" has no room left in its {metric.of} of this {metric.period}"
    )
    limit = {"limit": f"{quota.most / metric.unit:g}"} if is_own else {}
    message = (
        f"{whose}{figures}. The next {metric.period} begins at {free}. {raised_by} can raise it with "
        "`turnwright quota set`."
    )
    return fault(Reason.QUOTA_EXCEEDED, message, metric=metric.of, period=metric.period, **limit)


def _whose(run: RunHead, quota: QuotaRow) -> tuple[str, str]:
    """Whose quota it is, and who can raise it."""
    kind, _, name = quota.subject.partition(":")
    if quota.project_id:
        whose = f"The {kind} {name} in {run.project}" if kind else f"The project {run.project}"
        return whose, f"An owner of the project {run.project}"
    return f"The {kind} {name}" if kind else "The deployment", "An operator of the deployment"


def set_quota(tx: Transaction, caller: Caller, project: str, wanted: pb.Quota) -> pb.Quota:
    """Set a quota. Raises PROJECT_NOT_FOUND, INVALID_FIELD, LIMIT_EXCEEDED."""
    project_id, metric = _project(tx.connection, project), _checked(wanted.metric)
    if not _SUBJECT.fullmatch(wanted.subject) or (project and wanted.subject.startswith("project:")):
        raise invalid(
            "quota.subject",
            "A quota is of `user:NAME` or `group:NAME`, in the deployment also of `project:NAME`, or of all together "
            "(empty).",
        )
    # Not `<`: what is no number compares as false.
    if not 0 <= wanted.limit <= LIMIT_MAX:
        raise invalid("quota.limit", f"limit must be 0 to {LIMIT_MAX}; it is {wanted.limit}.")
    before = rows.find_quota(tx.connection, project_id, wanted.subject, wanted.metric)
    rows.put_quota(
        tx.connection, project_id, wanted.subject, wanted.metric, round(wanted.limit * metric.unit), caller.name
    )
    if before is None:
        check_count("quotas", rows.count_quotas(tx.connection, project_id), QUOTAS_MAX)
    tx.detail.update(_names_of(wanted.subject, wanted.metric), after=wanted.limit)
    if before:
        tx.detail["before"] = before.most / metric.unit
    return next(
        one for one in list_quotas(tx.connection, project, tx.now_ms)
        if (one.subject, one.metric) == (wanted.subject, wanted.metric)
    )  # fmt: skip


def delete_quota(tx: Transaction, project: str, subject: str, number: int) -> None:
    """Delete a quota. Raises PROJECT_NOT_FOUND, INVALID_FIELD, ENTRY_NOT_FOUND."""
    project_id, metric = _project(tx.connection, project), _checked(number)
    found = rows.find_quota(tx.connection, project_id, subject, number)
    if found is None:
        raise fault(
            Reason.ENTRY_NOT_FOUND,
            f"{subject or 'All together'} has no quota of {metric.of} a {metric.period} here: list them.",
            path=subject,
        )
    rows.drop_quota(tx.connection, found.id)
    tx.detail.update(_names_of(subject, number), before=found.most / metric.unit)


def _names_of(subject: str, number: int) -> dict[str, object]:
    metric = _METRICS[number]
    return {"subject": subject, "metric": f"{metric.of} a {metric.period}"}


def _checked(number: int) -> _Metric:
    if (metric := _METRICS.get(number)) is None:
        raise invalid("metric", "A quota limits tokens or cost, of a day or a month: say which.")
    return metric


def _project(connection: Connection, name: str) -> int:
    """The id of a project; 0: the deployment. Raises PROJECT_NOT_FOUND."""
    return get_project(connection, name).id if name else 0


def list_quotas(connection: Connection, project: str, now_ms: int) -> list[pb.Quota]:
    """The quotas of a project or of the deployment, as they are now. Raises PROJECT_NOT_FOUND."""
    return [_shown(row, project, now_ms) for row in rows.list_quotas(connection, _project(connection, project))]


def _shown(row: QuotaRow, project: str, now_ms: int) -> pb.Quota:
    metric = _METRICS[row.metric]
    begin_ms, end_ms = _period(metric, now_ms)
    shown = pb.Quota(
        project=project,
        subject=row.subject,
        metric=pb.QuotaMetric.ValueType(row.metric),
        limit=row.most / metric.unit,
        used=(row.used if row.period_ms >= begin_ms else 0) / metric.unit,
        reserved=row.reserved / metric.unit,
        set_by=row.set_by,
    )
    shown.renew_time.FromMilliseconds(end_ms)
    return shown
