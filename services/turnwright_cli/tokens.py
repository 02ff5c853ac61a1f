"""`token`: tokens with fewer rights than the deployment's secret, and the keys that verify them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwright.tokens.v1 import token_service_pb2
from turnwright.types.v1 import token_pb2

from turnwright_cli.administration import utc_time
from turnwright_cli.discovery import locate
from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, answer, show_list
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_scope, open_session, secret_of
from turnwright_kit.identity.caller import Kind
from turnwright_kit.identity.own_tokens import DAY_S, ISSUER, TokenKey, make_token


async def create_token(
    call: Invocation,
    *,
    principal: str,
    kind: str,
    audience: str,
    projects: Sequence[str],
    groups: Sequence[str],
    days: int,
    offline: bool,
) -> int:
    """Have the store make a token, which it lists then; where nothing runs, make it here of the home's secret."""
    settings = call.settings
    if not offline and await locate(settings.home, settings.server, tls=settings.tls):
        wanted = token_service_pb2.CreateTokenRequest(
            principal=principal, kind=kind, audience=audience, projects=projects, groups=groups, days=days
        )
        async with open_session(settings) as session:
            print(await session.client.create_token(wanted))
        return 0
    key = TokenKey.of(secret_of(settings), audience)
    try:
        print(make_token(key, principal, Kind(kind), days * DAY_S, projects=projects or None, groups=groups))
    except ValueError as error:
        raise usage(f"{error}.") from None
    return 0


async def list_tokens(call: Invocation) -> int:
    async with open_scope(call, deployment=True) as (client, _):
        found = [token async for token in client.list_tokens()]
    return show_list(call, found, _TOKENS, empty="No tokens: `turnwright token create` makes one.")


async def revoke_token(call: Invocation, *, token: str) -> int:
    """Revoke a token by its id, or by itself."""
    async with open_scope(call, deployment=True) as (client, _):
        found = await client.revoke_token(_id_of(token))
    return answer(call, [found], f"{safe_line(found.token_id)}: revoked")


def _id_of(token: str) -> str:
    if token.count(".") != 2:
        return token
    import jwt

    try:
        claims = jwt.decode(token, options={"verify_signature": False})
    except jwt.PyJWTError:
        claims = {}
    if claims.get("iss") != ISSUER or not isinstance(claims.get("jti"), str):
        raise usage("No deployment has made this token: name its id, which for a token of an issuer is NAME/JTI.")
    return str(claims["jti"])


def print_key(call: Invocation, *, audience: str) -> int:
    print(TokenKey.of(secret_of(call.settings), audience).text)
    return 0


_TOKENS: Final[Sequence[Column[token_pb2.Token]]] = (
    Column("id", lambda one: one.token_id, whole=True),
    Column("who", lambda one: one.principal),
    Column("kind", lambda one: one.kind),
    Column("for", lambda one: one.audience),
    Column("projects", lambda one: " ".join(one.projects)),
    Column("until (UTC)", lambda one: utc_time(one.expire_time)),
    Column("revoked (UTC)", lambda one: utc_time(one.revoke_time) if one.HasField("revoke_time") else ""),
    Column("made by", lambda one: one.by),
)
