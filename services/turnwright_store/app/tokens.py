"""Tokens: which of them were made here, and which are revoked. Source: architecture 10; docs/adr/0065."""

from __future__ import annotations

from functools import partial
from typing import Final

from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright.tokens.v1.token_service_pb2 import CreateTokenRequest
from turnwright_values.store import Durability
from turnwright_values.types import Right, Token

from turnwright_core.checks import check_count, check_words, invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.limits import NAME_CHARS_MAX
from turnwright_kit.identity.caller import Caller, Kind
from turnwright_kit.identity.own_tokens import (
    AUDIENCES,
    DAY_S,
    DAYS,
    DAYS_MAX,
    LEEWAY_S,
    OwnTokens,
    TokenKey,
    check_name,
    check_names,
    make_token,
)
from turnwright_kit.identity.policy import Policy, bits_of
from turnwright_store.app.maintenance import Chore
from turnwright_store.domain.checks import page_size
from turnwright_store.domain.locks import POLICY_LOCK
from turnwright_store.domain.pages import decode_page_token, page_of
from turnwright_store.ports import Database, Transaction
from turnwright_store.sql import grants as rows
from turnwright_store.sql.registry import get_project

TOKENS_MAX: Final = 10_000
"""Most tokens that are remembered."""

CLEANUP_EVERY_S: Final = 3600.0
"""Seconds between two deletions of tokens that have expired."""


def create_token(tx: Transaction, secret: str, caller: Caller, wanted: CreateTokenRequest) -> tuple[Token, str]:
    """Make a token, and remember what it says.

    Raises INVALID_FIELD, RIGHT_MISSING, PROJECT_NOT_FOUND, LIMIT_EXCEEDED.
    """
    kind = {kind.value: kind for kind in Kind}.get(wanted.kind or Kind.PERSON.value)
    audience = wanted.audience or AUDIENCES[0]
    if kind is None:
        raise invalid("kind", f"kind is one of {', '.join(kind.value for kind in Kind)}.")
    if audience not in AUDIENCES:
        raise invalid("audience", f"audience is one of {', '.join(AUDIENCES)}.")
    if kind is Kind.SERVICE and not caller.is_root:
        raise fault(
            Reason.RIGHT_MISSING,
            "A service may act for everybody: only the holder of the deployment's secret makes a token of this kind.",
            right="service",
            project="",
        )
    limited_to, lasts_s = sorted(set(wanted.projects)), (wanted.days or DAYS) * DAY_S
    if lasts_s > DAYS_MAX * DAY_S:
        raise invalid("days", f"A token is valid for at most {DAYS_MAX} days.")
    for field, check in (
        ("principal", partial(check_name, wanted.principal, kind)),
        ("projects", partial(check_names, limited_to)),
        ("groups", partial(check_names, wanted.groups)),
    ):
        try:
            check()
        except ValueError as error:
            raise invalid(field, f"{error}.") from None
    for name in limited_to:
        get_project(tx.connection, name)
    key = TokenKey.of(secret, audience)
    made = make_token(key, wanted.principal, kind, lasts_s, projects=limited_to or None, groups=wanted.groups)
    named = OwnTokens(audience, (key,)).caller(made, key.id)
    token = Token(
        named.token,
        key.id,
        named.name,
        kind.value,
        audience,
        tuple(limited_to),
        caller.name,
        tx.now_ms,
        named.expires_ms,
    )
    tx.detail.update(token_id=token.token_id, principal=token.principal, kind=token.kind, projects=limited_to)
    rows.add_token(tx.connection, token)
    check_count("tokens", rows.count_tokens(tx.connection), TOKENS_MAX)
    return token, made


def list_tokens(
    connection: Connection, policy: Policy, caller: Caller, size: int, token: str
) -> tuple[list[Token], str]:
    """Tokens of the caller, or with ADMIN in the deployment of everybody."""
    size = page_size(size)
    (after,) = decode_page_token(token, str) or ("",)
    of = None if _is_admin(policy, caller) else caller.name
    return page_of(rows.list_tokens(connection, of, str(after), size + 1), size, lambda one: (one.token_id,))


def revoke_token(tx: Transaction, policy: Policy, caller: Caller, token_id: str) -> tuple[Token, int]:
    """Revoke a token, and return the version of the policy that has it as revoked. Raises ENTRY_NOT_FOUND."""
    check_words("token_id", token_id, NAME_CHARS_MAX)
    if not token_id:
        raise invalid("token_id", "token_id is required.")
    tx.detail.update(token_id=token_id)
    found, is_admin = rows.find_token(tx.connection, token_id), _is_admin(policy, caller)
    if not is_admin and (found is None or found.principal != caller.name):
        raise fault(Reason.ENTRY_NOT_FOUND, f"You have no token {token_id!r}: list them.", path=token_id)
    if found is None:
        ends_ms = tx.now_ms + DAYS_MAX * DAY_S * 1000
        found = Token(token_id, by=caller.name, create_ms=tx.now_ms, expire_ms=ends_ms)
        rows.add_token(tx.connection, found)
    if not found.revoke_ms:
        rows.revoke_token(tx.connection, token_id, tx.now_ms)
        found = replace(found, revoke_ms=tx.now_ms)
    return found, rows.bump_policy(tx)


def _is_admin(policy: Policy, caller: Caller) -> bool:
    return bool(policy.rights_in_deployment(caller) & bits_of((Right.ADMIN,)))


def tokens_cleanup(database: Database) -> Chore:
    """The chore that deletes tokens that have expired: nobody takes them, revoked or not."""
    return Chore(
        "tokens_cleanup", CLEANUP_EVERY_S, lambda: database.write(_delete_expired, Durability.NORMAL, {POLICY_LOCK})
    )


def _delete_expired(tx: Transaction) -> bool:
    rows.delete_expired(tx.connection, tx.now_ms - LEEWAY_S * 1000)
    return False
