"""Quotas of the deployment, a project, a principal or a group.

They limit what models take in a day or a month, the commands of a minute, and the runs that are at work at once.

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
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright.quotas.v1 import quota_service_pb2 as pb
from turnwright_values.types import TurnResult

from turnwright_core.checks import check_count, invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import STOCK_MESSAGE_BYTES_MAX
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.locks import QUOTAS_LOCK
from turnwright_store.domain.viewers import asker_of
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import quotas as rows
from turnwright_store.sql.grants import OF_CALLERS, bump_policy
from turnwright_store.sql.quotas import QuotaRow
from turnwright_store.sql.registry import project_id_of
from turnwright_store.sql.runs import RunHead, RunRow

QUOTAS_MAX: Final = 1000
"""Most quotas of the deployment, and of a project."""

LIMIT_MAX: Final = 10**12
"""Highest limit, in the unit of its metric."""

MICROS: Final = 1_000_000
"""Costs are counted in millionths of a US dollar."""

_MINUTE_MS: Final = 60_000

_SUBJECT: Final = re.compile(r"|(?:user|group|project):\S[^\x00-\x1f\x7f]{0,289}")


class _Metric(Struct, frozen=True):
    """What a quota counts."""

    of: str
    unit: int
    """How many of its counts are one of its unit."""
    period: str
    """Empty: what is so at one moment."""


_METRICS: Final[Mapping[int, _Metric]] = {
    pb.QUOTA_METRIC_TOKENS_DAY: _Metric("tokens", 1, "day"),
    pb.QUOTA_METRIC_TOKENS_MONTH: _Metric("tokens", 1, "month"),
    pb.QUOTA_METRIC_COST_DAY: _Metric("dollars", MICROS, "day"),
    pb.QUOTA_METRIC_COST_MONTH: _Metric("dollars", MICROS, "month"),
    pb.QUOTA_METRIC_COMMANDS_MINUTE: _Metric("commands", 1, "minute"),
    pb.QUOTA_METRIC_RUNS: _Metric("runs", 1, ""),
    pb.QUOTA_METRIC_CALLS: _Metric("calls", 1, ""),
    pb.QUOTA_METRIC_UNSENT_BYTES: _Metric("bytes", 1, ""),
}
_OF_MODELS: Final = [number for number, metric in _METRICS.items() if metric.period in ("day", "month")]


def _utc(moment_ms: int) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, UTC)


def _period(metric: _Metric, now_ms: int) -> tuple[int, int]:
    """When the period of a moment begins and ends, in milliseconds since 1970."""
    if metric.period == "minute":
        begin_ms = now_ms - now_ms % _MINUTE_MS
        return begin_ms, begin_ms + _MINUTE_MS
    now = _utc(now_ms)
    begin = datetime(now.year, now.month, now.day if metric.period == "day" else 1, tzinfo=UTC)
    if metric.period == "day":
        return _ms(begin), _ms(begin) + 24 * 3600 * 1000
    return _ms(begin), _ms(datetime(now.year + now.month // 12, now.month % 12 + 1, 1, tzinfo=UTC))


def _ms(moment: datetime) -> int:
    return round(moment.timestamp() * 1000)


def _amount(metric: _Metric, tokens: int, cost_usd: float) -> int:
    return math.ceil(cost_usd * MICROS) if metric.unit == MICROS else tokens


def _subjects(project: str, by: str | None) -> tuple[Collection[str], Collection[str]]:
    """Whose quotas of the deployment, and of its project, somebody's work is under."""
    asker = asker_of(by)
    of_asker = [f"user:{asker.name}", *(f"group:{group}" for group in asker.groups)] if asker else []
    return ("", f"project:{project}", *of_asker), ("", *of_asker)


def _over(tx: Transaction, run: RunHead, by: str | None, metrics: Collection[int]) -> list[QuotaRow]:
    """The quotas that somebody's work in a run is under; where there are none at all, nothing is asked."""
    if not run.has_quotas:
        return []
    return rows.quotas_over(tx.connection, run.project_id, *_subjects(run.project, by), metrics)


def reserve(tx: Transaction, run: RunHead, turn: int, tokens: int, cost_usd: float) -> None:
    """Reserve what a call may take. Raises QUOTA_EXCEEDED."""
    for quota in _over(tx, run, run.asked_by, _OF_MODELS):
        metric = _METRICS[quota.metric]
        begin_ms, end_ms = _period(metric, tx.now_ms)
        # What has no known price still needs a quota that is not used up.
        amount = max(1, _amount(metric, tokens, cost_usd))
        if not rows.reserve(tx.connection, quota.id, amount, begin_ms):
            raise _exceeded(run, quota, amount, begin_ms, end_ms)
        rows.keep_reservation(tx.connection, run.id, turn, quota.id, amount)


def count_command(tx: Transaction, run: RunHead, by: str | None) -> None:
    """Count a command that somebody has carried out in a run. Raises QUOTA_EXCEEDED."""
    for quota in _over(tx, run, by, [pb.QUOTA_METRIC_COMMANDS_MINUTE]):
        begin_ms, end_ms = _period(_METRICS[quota.metric], tx.now_ms)
        if not rows.spend(tx.connection, quota.id, 1, begin_ms):
            raise _exceeded(run, quota, 1, begin_ms, end_ms)


def admit_run(tx: Transaction, run: RunRow, by: str) -> None:
    """Admit work that somebody asks for in a run that is at rest. Raises QUOTA_EXCEEDED."""
    if run.loop_active or run.run.loops_queued:
        return
    for quota in _over(tx, run, by, [pb.QUOTA_METRIC_RUNS]):
        rows.lock_quota(tx.connection, quota.id)
        at_work = _at_work(tx.connection, quota)
        if at_work >= quota.most:
            raise _exceeded(run, replace(quota, used=at_work), 1, 0, 0)


def _at_work(connection: Connection, quota: QuotaRow) -> int:
    """How many runs under a quota have work."""
    found = set()
    for run, project_id, project, by in rows.loops_at_work(connection):
        of_deployment, of_project = _subjects(project, by)
        if quota.project_id in (0, project_id) and quota.subject in (of_project if quota.project_id else of_deployment):
            found.add(run)
    return len(found)


def settle(tx: Transaction, run: RunHead, turn: int, result: TurnResult) -> None:
    """Count what a turn has taken in place of what it had reserved."""
    if not run.has_quotas:
        return
    tokens = result.usage.total_tokens + result.lost_tokens + result.tool_tokens
    cost_usd = (result.usage.cost_usd or 0.0) + result.lost_cost_usd + result.tool_cost_usd
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
    whose, raised_by = _whose(run, quota)
    used = quota.used if quota.period_ms >= begin_ms else 0
    is_own = quota.project_id != 0 or quota.subject == f"project:{run.project}"
    of = f"{metric.of} of this {metric.period}" if metric.period else f"{metric.of} at once"
    figures = f" has no room left in its {of}"
    if is_own:
        figures = f" has used {used / metric.unit:g} of {quota.most / metric.unit:g} {of}"
    if is_own and quota.metric in _OF_MODELS:
        figures += (
            f", {quota.reserved / metric.unit:g} are reserved for calls under way, and this one may take "
            f"{amount / metric.unit:g}"
        )
    limit = {"limit": f"{quota.most / metric.unit:g}"} if is_own else {}
    free = f"The next {metric.period} begins at {_utc(end_ms).strftime('%Y-%m-%d %H:%M UTC')}"
    free = free if metric.period else "There is room once one of them has ended"
    message = f"{whose}{figures}. {free}. {raised_by} can raise it with `turnwright quota set`."
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
    project_id, metric = project_id_of(tx.connection, project), _checked(wanted.metric)
    if not _SUBJECT.fullmatch(wanted.subject) or (project and wanted.subject.startswith("project:")):
        raise invalid(
            "quota.subject",
            "A quota is of `user:NAME` or `group:NAME`, in the deployment also of `project:NAME`, or of all together "
            "(empty).",
        )
    if wanted.metric == pb.QUOTA_METRIC_UNSENT_BYTES and wanted.limit < STOCK_MESSAGE_BYTES_MAX:
        raise invalid("quota.limit", f"limit must be at least {STOCK_MESSAGE_BYTES_MAX}, which one answer may have.")
    # Not `<`: what is no number compares as false.
    if not 0 <= wanted.limit <= LIMIT_MAX:
        raise invalid("quota.limit", f"limit must be 0 to {LIMIT_MAX}; it is {wanted.limit}.")
    before = rows.find_quota(tx.connection, project_id, wanted.subject, wanted.metric)
    rows.put_quota(
        tx.connection, project_id, wanted.subject, wanted.metric, round(wanted.limit * metric.unit), caller.name
    )
    if before is None:
        check_count("quotas", rows.count_quotas(tx.connection, project_id), QUOTAS_MAX)
    if wanted.metric in OF_CALLERS:
        bump_policy(tx)
    tx.detail.update(_names_of(wanted.subject, wanted.metric), after=wanted.limit)
    if before:
        tx.detail["before"] = before.most / metric.unit
    return next(
        one for one in list_quotas(tx.connection, project, tx.now_ms)
        if (one.subject, one.metric) == (wanted.subject, wanted.metric)
    )  # fmt: skip


def delete_quota(tx: Transaction, project: str, subject: str, number: int) -> None:
    """Delete a quota. Raises PROJECT_NOT_FOUND, INVALID_FIELD, ENTRY_NOT_FOUND."""
    project_id, metric = project_id_of(tx.connection, project), _checked(number)
    found = rows.find_quota(tx.connection, project_id, subject, number)
    if found is None:
        raise fault(
            Reason.ENTRY_NOT_FOUND,
            f"{subject or 'All together'} has no quota of {_words_of(metric)} here: list them.",
            path=subject,
        )
    rows.drop_quota(tx.connection, found.id)
    if number in OF_CALLERS:
        bump_policy(tx)
    tx.detail.update(_names_of(subject, number), before=found.most / metric.unit)


def _names_of(subject: str, number: int) -> dict[str, object]:
    metric = _METRICS[number]
    return {"subject": subject, "metric": _words_of(metric)}


def _words_of(metric: _Metric) -> str:
    return f"{metric.of} a {metric.period}" if metric.period else f"{metric.of} at once"


def _checked(number: int) -> _Metric:
    if (metric := _METRICS.get(number)) is None:
        raise invalid(
            "metric",
            "A quota limits tokens, cost, commands, runs, calls or bytes: say which.",
        )
    return metric


def list_quotas(connection: Connection, project: str, now_ms: int) -> list[pb.Quota]:
    """The quotas of a project or of the deployment, as they are now. Raises PROJECT_NOT_FOUND."""
    found = rows.list_quotas(connection, project_id_of(connection, project))
    return [_shown(connection, row, project, now_ms) for row in found]


def _shown(connection: Connection, row: QuotaRow, project: str, now_ms: int) -> pb.Quota:
    metric = _METRICS[row.metric]
    if row.metric == pb.QUOTA_METRIC_RUNS:
        row = replace(row, used=_at_work(connection, row))
    begin_ms, end_ms = _period(metric, now_ms) if metric.period else (0, 0)
    shown = pb.Quota(
        project=project,
        subject=row.subject,
        metric=pb.QuotaMetric.ValueType(row.metric),
        limit=row.most / metric.unit,
        used=(row.used if row.period_ms >= begin_ms else 0) / metric.unit,
        reserved=row.reserved / metric.unit,
        set_by=row.set_by,
    )
    if end_ms:
        shown.renew_time.FromMilliseconds(end_ms)
    return shown
