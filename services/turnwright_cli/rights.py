"""`grant`, `identity` and `token`: who may do what, who calls, and tokens with fewer rights than the secret."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

from turnwright.grants.v1 import grant_service_pb2
from turnwright.tokens.v1 import token_service_pb2
from turnwright.types.v1 import access_pb2, grant_pb2, token_pb2

from turnwright_cli.administration import time_span, utc_time
from turnwright_cli.discovery import locate
from turnwright_cli.exit_codes import usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, answer, enum_word, show_list
from turnwright_cli.plain import safe_line
from turnwright_cli.session import open_project, open_scope, open_session, secret_of
from turnwright_kit.identity.caller import Kind
from turnwright_kit.identity.own_tokens import DAY_S, ISSUER, TokenKey, make_token


async def list_grants(call: Invocation, *, deployment: bool) -> int:
    async with open_scope(call, deployment=deployment) as (client, project):
        found = [grant async for grant in client.list_grants(project)]
    return show_list(call, found, _GRANTS, empty="No grants: nobody but the holder of the secret has a right.")


async def set_grant(
    call: Invocation, *, role: str, subject: str, without: Sequence[str], until: str, deployment: bool
) -> int:
    """Give a role. An end is counted from now."""
    left_out = [access_pb2.Right.Value(f"RIGHT_{word.upper()}") for word in without]
    ends_ms = int((time.time() + time_span("--until", until).total_seconds()) * 1000) if until else 0
    wanted = grant_pb2.GrantRole.Value(f"GRANT_ROLE_{role.upper()}")
    async with open_scope(call, deployment=deployment) as (client, project):
        made = await client.set_grant(project, subject, wanted, left_out, ends_ms)
    return answer(call, [made], f"{safe_line(made.subject)} is {role} of {project or 'the deployment'}")


async def remove_grant(call: Invocation, *, subject: str, deployment: bool) -> int:
    async with open_scope(call, deployment=deployment) as (client, project):
        await client.delete_grant(project, subject)
    return answer(call, (), f"{safe_line(subject)}: removed")


async def show_identity(call: Invocation) -> int:
    async with open_project(call) as (client, _):
        found = await client.identity()
    return answer(call, [found], *_identity(found))


def _identity(found: grant_service_pb2.GetIdentityResponse) -> Sequence[str]:
    groups = f", in {', '.join(map(safe_line, found.groups))}" if found.groups else ""
    ends = f", until {utc_time(found.expire_time)} UTC" if found.HasField("expire_time") else ""
    lines = [f"{safe_line(found.principal)}: {found.kind}, shown by {found.proof}{ends}{groups}"]
    if found.root:
        return [*lines, "It holds the deployment's secret, and so may do everything."]
    if found.deployment_rights:
        lines.append(f"in the deployment: {_words(found.deployment_rights)}")
    lines += [f"{one.project}: {_words(one.rights)}" for one in found.projects]
    return lines if len(lines) > 1 else [*lines, "It has no right in any project: ask an owner of one for a grant."]


def _words(rights: Sequence[access_pb2.Right.ValueType]) -> str:
    return " ".join(enum_word(access_pb2.Right.DESCRIPTOR, right) for right in rights)


_GRANTS: Final[Sequence[Column[grant_pb2.Grant]]] = (
    Column("who", lambda one: one.subject, whole=True),
    Column("role", lambda one: enum_word(grant_pb2.GrantRole.DESCRIPTOR, one.role)),
    Column("without", lambda one: _words(one.without)),
    Column("until (UTC)", lambda one: utc_time(one.until_time) if one.HasField("until_time") else ""),
    Column("given by", lambda one: one.by),
)


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
