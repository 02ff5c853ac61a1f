"""Rows of grants and tokens, and the policy that they make: its version is the revision of a scope of its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, Select, bindparam, delete, func, literal_column, or_, select, update
from turnwright.quotas.v1.quota_service_pb2 import QUOTA_METRIC_CALLS, QUOTA_METRIC_UNSENT_BYTES
from turnwright_values.types import Grant, GrantRole, Right, Token

from turnwright_kit.identity.policy import CallerQuota, PolicySnapshot
from turnwright_store.ports import Transaction
from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.dialect import DatabaseNow
from turnwright_store.sql.registry import counting
from turnwright_store.sql.scopes import bump_scope, find_scope
from turnwright_store.sql.tables import grants, projects, quotas, scopes, tokens

POLICY: Final = "policy"
"""Key of the scope that each change of the policy bumps."""

DEPLOYMENT: Final = 0
"""The `project_id` of grants in the deployment."""

_COLUMNS: Final = (
    func.coalesce(projects.c.name, literal_column("''")),
    grants.c.subject,
    grants.c.role,
    grants.c.without,
    grants.c.by,
    grants.c.create_ms,
    grants.c.until_ms,
)
_HOLDS: Final = or_(grants.c.until_ms == literal_column("0"), grants.c.until_ms > DatabaseNow())
_ALL: Final[Select[Any]] = (
    select(*_COLUMNS).outerjoin_from(grants, projects, projects.c.id == grants.c.project_id).where(_HOLDS)
)
_IN_PROJECT: Final = _ALL.where(grants.c.project_id == bindparam("project"))
_PAGE: Final = (
    _IN_PROJECT.where(grants.c.subject > bindparam("after")).order_by(grants.c.subject).limit(bindparam("page"))
)
count_grants: Final = counting(grants)
_ADD: Final = insertion(grants)
_REMOVE: Final = delete(grants).where(
    grants.c.project_id == bindparam("project"), grants.c.subject == bindparam("wanted")
)

_TOKEN: Final = select(
    tokens.c.token_id,
    tokens.c.key_id,
    tokens.c.principal,
    tokens.c.kind,
    tokens.c.audience,
    tokens.c.projects,
    tokens.c.by,
    tokens.c.create_ms,
    tokens.c.expire_ms,
    tokens.c.revoke_ms,
)
_TOKEN_BY_ID: Final = _TOKEN.where(tokens.c.token_id == bindparam("wanted"))
_TOKEN_PAGE: Final = (
    _TOKEN.where(tokens.c.token_id > bindparam("after"), tokens.c.expire_ms > DatabaseNow())
    .order_by(tokens.c.token_id)
    .limit(bindparam("page"))
)
_TOKENS_OF: Final = _TOKEN_PAGE.where(tokens.c.principal == bindparam("of"))
_REVOKED: Final = select(tokens.c.token_id).where(tokens.c.revoke_ms != literal_column("0"))
_TOKEN_ADD: Final = insertion(tokens)
_REVOKE: Final = update(tokens).where(tokens.c.token_id == bindparam("wanted")).values(revoke_ms=bindparam("now_ms"))
_TOKEN_COUNT: Final = select(func.count()).select_from(tokens)
_EXPIRED: Final = delete(tokens).where(tokens.c.expire_ms < bindparam("before_ms"))
_VERSION: Final = select(scopes.c.revision).where(scopes.c.key == literal_column(f"'{POLICY}'"))


OF_CALLERS: Final = {QUOTA_METRIC_CALLS: "calls", QUOTA_METRIC_UNSENT_BYTES: "unsent_bytes"}
"""The metrics of what callers may have under way."""

_OF_CALLERS: Final = (
    select(func.coalesce(projects.c.name, literal_column("''")), quotas.c.subject, quotas.c.metric, quotas.c.most)
    .outerjoin_from(quotas, projects, projects.c.id == quotas.c.project_id)
    .where(quotas.c.metric.in_([literal_column(str(int(metric))) for metric in OF_CALLERS]))
)


# The policy -----------------------------------------------------------------------------------------------------------


def policy_scope(connection: Connection) -> int:
    return find_scope(connection, POLICY)


def bump_policy(tx: Transaction) -> int:
    """Say that the policy has changed: whoever watches it reads it again. Returns its new version."""
    return bump_scope(tx, policy_scope(tx.connection))[0]


def read_policy_version(connection: Connection) -> int:
    return int(connection.execute(_VERSION).scalar_one())


def read_policy(connection: Connection) -> PolicySnapshot:
    """The policy as it is."""
    version = read_policy_version(connection)
    found = [_grant(row) for row in connection.execute(_ALL)]
    return PolicySnapshot(version, found, frozenset(connection.execute(_REVOKED).scalars()), _caller_quotas(connection))


def _caller_quotas(connection: Connection) -> list[CallerQuota]:
    found: dict[tuple[str, str], dict[str, int]] = {}
    for project, subject, metric, most in connection.execute(_OF_CALLERS):
        found.setdefault((project, subject), {})[OF_CALLERS[metric]] = most
    return [CallerQuota(subject, project, **limits) for (project, subject), limits in found.items()]


# Grants ---------------------------------------------------------------------------------------------------------------


def _grant(row: Sequence[Any]) -> Grant:
    project, subject, role, without, by, create_ms, until_ms = row
    return Grant(project, subject, GrantRole(role), tuple(map(Right, json.loads(without))), by, create_ms, until_ms)


def list_grants(connection: Connection, project_id: int, after: str, page: int) -> list[Grant]:
    """Grants of a project that hold, by subject."""
    return [_grant(row) for row in connection.execute(_PAGE, {"project": project_id, "after": after, "page": page})]


def all_grants(connection: Connection, project_id: int) -> list[Grant]:
    return [_grant(row) for row in connection.execute(_IN_PROJECT, {"project": project_id})]


def put_grant(connection: Connection, project_id: int, grant: Grant) -> None:
    """Write a grant, in the place of the one that its subject has there."""
    delete_grant(connection, project_id, grant.subject)
    connection.execute(
        _ADD,
        {
            "project_id": project_id,
            "subject": grant.subject,
            "role": int(grant.role),
            "without": json.dumps(sorted(map(int, grant.without))),
            "by": grant.by,
            "create_ms": grant.create_ms,
            "until_ms": grant.until_ms,
        },
    )


def delete_grant(connection: Connection, project_id: int, subject: str) -> bool:
    """Whether there was one."""
    return connection.execute(_REMOVE, {"project": project_id, "wanted": subject}).rowcount > 0


# Tokens ---------------------------------------------------------------------------------------------------------------


def _token(row: Sequence[Any]) -> Token:
    token_id, key_id, principal, kind, audience, limited_to, *more = row
    return Token(token_id, key_id, principal, kind, audience, tuple(json.loads(limited_to)), *more)


def find_token(connection: Connection, token_id: str) -> Token | None:
    row = connection.execute(_TOKEN_BY_ID, {"wanted": token_id}).one_or_none()
    return _token(row) if row else None


def list_tokens(connection: Connection, principal: str | None, after: str, page: int) -> list[Token]:
    """Tokens of a principal, or of all, that have not expired, by id."""
    statement, of = (_TOKEN_PAGE, {}) if principal is None else (_TOKENS_OF, {"of": principal})
    return [_token(row) for row in connection.execute(statement, {"after": after, "page": page, **of})]


def add_token(connection: Connection, token: Token) -> None:
    connection.execute(
        _TOKEN_ADD,
        {
            "token_id": token.token_id,
            "key_id": token.key_id,
            "principal": token.principal,
            "kind": token.kind,
            "audience": token.audience,
            "projects": json.dumps(token.projects),
            "by": token.by,
            "create_ms": token.create_ms,
            "expire_ms": token.expire_ms,
            "revoke_ms": token.revoke_ms,
        },
    )


def count_tokens(connection: Connection) -> int:
    return int(connection.execute(_TOKEN_COUNT).scalar_one())


def revoke_token(connection: Connection, token_id: str, now_ms: int) -> None:
    connection.execute(_REVOKE, {"wanted": token_id, "now_ms": now_ms})


def delete_expired(connection: Connection, before_ms: int) -> None:
    connection.execute(_EXPIRED, {"before_ms": before_ms})
