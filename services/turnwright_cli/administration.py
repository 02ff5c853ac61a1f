"""`audit` and `quota`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.audits.v1 import audit_service_pb2
from turnwright.quotas.v1 import quota_service_pb2
from turnwright.types.v1 import error_pb2

from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, answer, enum_word, show_list
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_project

_DAYS: Final = {"m": 1 / 1440, "h": 1 / 24, "d": 1.0}


async def show_audit(call: Invocation, *, deployment: bool, refused: bool, since: str, most: int) -> int:
    begin = datetime.now(UTC) - time_span("--since", since) if since else None
    async with open_project(call, reads=True) as (client, project):
        where = "" if deployment else project
        rows = await client.list_audit(where, since=begin, refused=refused, most=most)
    return show_list(call, rows, _REFUSED if refused else _CHANGES, empty="There is nothing yet.")


def time_span(option: str, text: str) -> timedelta:
    """A time such as 30m, 12h or 7d. Raises FailureError."""
    found = re.fullmatch(r"([0-9]{1,5})([mhd])", text)
    if found is None:
        raise usage(f"{option} takes a whole number with m, h or d, such as 7d, not {safe_line(text)!r}.")
    return timedelta(days=int(found[1]) * _DAYS[found[2]])


def utc_time(time: Timestamp) -> str:
    return datetime.fromtimestamp(time.seconds, UTC).strftime("%Y-%m-%d %H:%M:%S")


def _who(row: audit_service_pb2.AuditRow) -> str:
    name = row.principal or row.peer or "unknown"
    return f"{name} by {row.by}" if row.by else name


_COMMON: Final[Sequence[Column[audit_service_pb2.AuditRow]]] = (
    Column("time (UTC)", lambda one: utc_time(one.time)),
    Column("who", _who),
    Column("what", lambda one: one.method),
    Column("run", lambda one: one.run),
)
_CHANGES: Final = (*_COMMON, Column("shown by", lambda one: one.proof), Column("detail", lambda one: one.detail_json))
_REFUSED: Final = (
    *_COMMON,
    Column("times", lambda one: str(one.count)),
    Column("why", lambda one: enum_word(error_pb2.ErrorReason.DESCRIPTOR, one.refusal)),
)


async def list_quotas(call: Invocation, *, deployment: bool) -> int:
    async with open_project(call, reads=True) as (client, project):
        found = await client.list_quotas("" if deployment else project)
    return show_list(
        call, found, _QUOTAS, empty="No quotas. Set one with `turnwright quota set tokens-day 1000000`."
    )  # fmt: skip


async def set_quota(call: Invocation, *, metric: str, limit: float, subject: str, deployment: bool) -> int:
    wanted = quota_service_pb2.Quota(metric=_metric(metric), limit=limit, subject=subject)
    async with open_project(call) as (client, project):
        made = await client.set_quota("" if deployment else project, wanted)
    return answer(call, [made], f"{_whose(made)}: {made.limit:g} {metric}, of which {made.used:g} are used")


async def remove_quota(call: Invocation, *, metric: str, subject: str, deployment: bool) -> int:
    async with open_project(call) as (client, project):
        where = "" if deployment else project
        await client.delete_quota(where, subject, _metric(metric))
        left = await client.list_quotas(where) if call.as_json else ()
    return answer(call, left, f"{metric}: removed")


def _metric(word: str) -> quota_service_pb2.QuotaMetric.ValueType:
    return quota_service_pb2.QuotaMetric.Value(f"QUOTA_METRIC_{word.replace('-', '_').upper()}")


def _word(quota: quota_service_pb2.Quota) -> str:
    return enum_word(quota_service_pb2.QuotaMetric.DESCRIPTOR, quota.metric).replace("_", "-")


def _whose(quota: quota_service_pb2.Quota) -> str:
    return safe_line(quota.subject) or "all together"


_QUOTAS: Final[Sequence[Column[quota_service_pb2.Quota]]] = (
    Column("of", _whose),
    Column("what", _word),
    Column("limit", lambda one: f"{one.limit:g}"),
    Column("used", lambda one: f"{one.used:g}"),
    Column("reserved", lambda one: f"{one.reserved:g}"),
    Column("renewed (UTC)", lambda one: utc_time(one.renew_time) if one.HasField("renew_time") else ""),
    Column("set by", lambda one: one.set_by),
)
