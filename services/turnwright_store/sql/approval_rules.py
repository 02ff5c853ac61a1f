"""Rows of approval rules, of a project or of a run of it; a later row counts before an earlier one."""

from __future__ import annotations

from typing import Any, Final

from msgspec import Struct
from sqlalchemy import Connection, bindparam, delete, func, insert, select, update
from turnwright_values.types import Mode, Rule, RuleLevel, RuleVerdict

from turnwright_store.sql.clauses import unanswered
from turnwright_store.sql.tables import approval_rules as rules
from turnwright_store.sql.tables import projects


class RuleRow(Struct, frozen=True):
    """A rule, and who wrote it, as it is stored."""

    rule: Rule
    by: str


_COLUMNS: Final = (
    rules.c.id,
    rules.c.run_id,
    rules.c.verdict,
    rules.c.tool,
    rules.c.target,
    rules.c.principal,
    rules.c.mode,
    rules.c.network,
    rules.c.create_ms,
    rules.c.by,
)
_OF_LEVEL: Final = (rules.c.project_id == bindparam("project"), rules.c.run_id == bindparam("run"))
_HOLDING: Final = (
    select(*_COLUMNS)
    .where(rules.c.project_id == bindparam("project"), rules.c.run_id.in_([0, bindparam("run")]))
    .order_by(rules.c.run_id != 0, rules.c.id)
)
_COUNT: Final = select(func.count()).select_from(rules).where(*_OF_LEVEL)
_ADD: Final = insert(rules).returning(rules.c.id)
_REPLACED: Final = unanswered(
    delete(rules).where(
        *_OF_LEVEL,
        rules.c.tool == bindparam("tool_is"),
        rules.c.target == bindparam("target_is"),
        rules.c.principal == bindparam("principal_is"),
        rules.c.mode == bindparam("mode_is"),
    )
)
_REMOVE: Final = delete(rules).where(*_OF_LEVEL, rules.c.id == bindparam("rule")).returning(*_COLUMNS)
_CHANGED: Final = unanswered(
    update(projects).where(projects.c.id == bindparam("project")).values(rule_changes=projects.c.rule_changes + 1)
)


def list_rules(connection: Connection, project_id: int, run_id: int = 0) -> list[RuleRow]:
    """The rules of a project, then those of a run, each in their order."""
    return [_row(row) for row in connection.execute(_HOLDING, {"project": project_id, "run": run_id})]


def _row(row: Any) -> RuleRow:
    number, run, verdict, tool, target, principal, mode, network, create_ms, by = row
    level = RuleLevel.RUN if run else RuleLevel.PROJECT
    values = (number, level, RuleVerdict(verdict), tool, target, principal, Mode(mode), bool(network))
    return RuleRow(Rule(*values, create_ms=create_ms), by)


def count_rules(connection: Connection, project_id: int, run_id: int) -> int:
    return connection.execute(_COUNT, {"project": project_id, "run": run_id}).scalar_one()


def add_rule(connection: Connection, project_id: int, run_id: int, row: RuleRow) -> int:
    """Add a rule as the last one of its level, in the place of one for the same; returns its number."""
    rule = row.rule
    what = {"tool": rule.tool, "target": rule.target, "principal": rule.principal, "mode": int(rule.mode)}
    named = {f"{name}_is": value for name, value in what.items()}
    connection.execute(_REPLACED, {"project": project_id, "run": run_id, **named})
    values = {**what, "verdict": int(rule.verdict), "network": rule.network, "create_ms": rule.create_ms, "by": row.by}
    number = connection.execute(_ADD, {"project_id": project_id, "run_id": run_id, **values}).scalar_one()
    connection.execute(_CHANGED, {"project": project_id})
    return int(number)


def remove_rule(connection: Connection, project_id: int, run_id: int, number: int) -> RuleRow | None:
    """Remove a rule; returns it, None if there is none."""
    values = {"project": project_id, "run": run_id, "rule": number}
    row = connection.execute(_REMOVE, values).one_or_none()
    if row is None:
        return None
    connection.execute(_CHANGED, {"project": project_id})
    return _row(row)
