"""Grants: who may do what. Source: architecture 10; docs/adr/0066.

Each change bumps the scope of the policy, so that every service of the deployment reads it again.
"""

from __future__ import annotations

import re
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Grant, GrantRole, Right

from turnwright_core.checks import check_count, check_words, invalid
from turnwright_core.errors import Reason, fault
from turnwright_kit.identity.caller import Caller
from turnwright_kit.identity.policy import EVERYBODY, IN_PROJECTS, ROLES, Policy, bits_of, rights_of
from turnwright_store.domain.checks import page_size
from turnwright_store.domain.pages import decode_page_token, page_of
from turnwright_store.ports import Transaction
from turnwright_store.sql import grants as rows
from turnwright_store.sql.registry import get_project

GRANTS_MAX: Final = 1000
"""Most grants of a project, and of the deployment."""

SUBJECT_CHARS_MAX: Final = 200

_SUBJECT: Final = re.compile(r"(user|group):[!-~]([ -~]*[!-~])?")
_OF_PROJECTS: Final = (GrantRole.VIEWER, GrantRole.MEMBER, GrantRole.OWNER)


def set_grant(tx: Transaction, policy: Policy, caller: Caller, project: str, wanted: Grant) -> tuple[Grant, int]:
    """Set the grant of a subject, and return the version of the policy that has it.

    Raises PROJECT_NOT_FOUND, INVALID_FIELD, LIMIT_EXCEEDED, and RIGHT_MISSING for what the caller may not give.
    """
    project_id = _place(tx.connection, project)
    _check_grant(wanted, project, tx.now_ms)
    words = [right.name.lower() for right in sorted(wanted.without)]
    tx.detail.update(subject=wanted.subject, role=wanted.role.name.lower(), without=words)
    without = tuple(sorted(set(wanted.without)))
    grant = replace(wanted, project=project, without=without, by=caller.name, create_ms=tx.now_ms)
    if project:
        _check_given(policy, caller, grant)
    if project and not _is_owner(grant):
        _check_owner_left(tx.connection, policy, caller, project_id, project, grant.subject)
    rows.put_grant(tx.connection, project_id, grant)
    check_count("grants", rows.count_grants(tx.connection, project_id), GRANTS_MAX)
    return grant, rows.bump_policy(tx)


def delete_grant(tx: Transaction, policy: Policy, caller: Caller, project: str, subject: str) -> int:
    """Delete a grant, and return the version of the policy without it.

    Raises PROJECT_NOT_FOUND, ENTRY_NOT_FOUND, RIGHT_MISSING.
    """
    project_id = _place(tx.connection, project)
    check_words("subject", subject, SUBJECT_CHARS_MAX)
    tx.detail.update(subject=subject)
    if project:
        _check_owner_left(tx.connection, policy, caller, project_id, project, subject)
    if not rows.delete_grant(tx.connection, project_id, subject):
        where = f"in {project}" if project else "in the deployment"
        raise fault(Reason.ENTRY_NOT_FOUND, f"{subject!r} has no grant {where}: list them.", path=subject)
    return rows.bump_policy(tx)


def add_owner(tx: Transaction, project_id: int, project: str, name: str) -> None:
    """Who creates a project owns it."""
    grant = Grant(project, f"user:{name}", GrantRole.OWNER, by=name, create_ms=tx.now_ms)
    rows.put_grant(tx.connection, project_id, grant)
    rows.bump_policy(tx)


def list_grants(connection: Connection, project: str, size: int, token: str) -> tuple[list[Grant], str]:
    size = page_size(size)
    (after,) = decode_page_token(token, str) or ("",)
    found = rows.list_grants(connection, _place(connection, project), str(after), size + 1)
    return page_of(found, size, lambda grant: (grant.subject,))


def _place(connection: Connection, project: str) -> int:
    return get_project(connection, project).id if project else rows.DEPLOYMENT


def _check_grant(grant: Grant, project: str, now_ms: int) -> None:
    check_words("grant.subject", grant.subject, SUBJECT_CHARS_MAX)
    if grant.subject != EVERYBODY and not _SUBJECT.fullmatch(grant.subject):
        raise invalid("grant.subject", f"{grant.subject!r} is none: write user:NAME, group:NAME or {EVERYBODY}.")
    roles = _OF_PROJECTS if project else (GrantRole.OPERATOR,)
    if grant.role not in roles:
        where = "a project" if project else "the deployment"
        named = ", ".join(role.name.lower() for role in roles)
        raise invalid("grant.role", f"The roles in {where} are: {named}.")
    if foreign := set(grant.without) - IN_PROJECTS:
        named = ", ".join(sorted(right.name.lower() for right in foreign))
        raise invalid("grant.without", f"No role has {named}: leave it out.")
    if grant.until_ms and grant.until_ms <= now_ms:
        raise invalid("grant.until_time", "until_time has passed: name a later one, or none.")


def _check_given(policy: Policy, caller: Caller, grant: Grant) -> None:
    """Nobody gives a right that he has not. Operators, who may give any, have to give it to be seen doing so."""
    given = bits_of(ROLES[grant.role]) & ~bits_of(grant.without)
    has = policy.rights_in(caller, grant.project)
    if policy.rights_in_deployment(caller) & bits_of((Right.ADMIN,)):
        return
    ends_ms = policy.ends_ms(caller, Right.ADMIN, grant.project)
    if ends_ms and not 0 < grant.until_ms <= ends_ms:
        raise fault(
            Reason.RIGHT_MISSING,
            "Your own right to give rights there ends: give none that lasts longer (`until_time`).",
            right="admin",
            project=grant.project,
        )
    if lacking := rights_of(given & ~has):
        words = ", ".join(f"`{right.name.lower()}`" for right in lacking)
        raise fault(
            Reason.RIGHT_MISSING,
            f"You cannot give {words} in the project {grant.project}, which you do not have there: leave it out with "
            "`--without`.",
            right=lacking[0].name.lower(),
            project=grant.project,
        )


def _is_owner(grant: Grant) -> bool:
    """Whether a grant keeps a project from having nobody who can give rights."""
    return grant.role is GrantRole.OWNER and Right.ADMIN not in grant.without and not grant.until_ms


def _check_owner_left(
    connection: Connection, policy: Policy, caller: Caller, project_id: int, project: str, subject: str
) -> None:
    """Refuse to take the last owner's grant away, but for those who can give it again. Raises RIGHT_MISSING."""
    if policy.rights_in_deployment(caller) & bits_of((Right.ADMIN,)):
        return
    owners = {grant.subject for grant in rows.all_grants(connection, project_id) if _is_owner(grant)}
    if owners == {subject}:
        raise fault(
            Reason.RIGHT_MISSING,
            f"{subject} is the last owner of {project}: make somebody else an owner first. Without one, only an "
            "operator could give rights there.",
            right="admin",
            project="",
        )
