"""Tokens that the store makes, lists and revokes. ADR 65."""

from __future__ import annotations

import asyncio
import time

import pytest
import pytest_asyncio
from sqlalchemy import insert, select
from turnwright_values.types import Tier

from contract.store.counting import connected
from contract.store.harness import SECRET, Client, start_store
from contract.store.test_granting import OPERATOR, grant, reason_of
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.rpc.headers import call_metadata
from turnwright_kit.identity.caller import Caller, Kind, Proof
from turnwright_kit.identity.gate import CallerGate
from turnwright_store.app.tokens import TOKENS_MAX
from turnwright_store.sql.tables import metadata, tokens

pytestmark = pytest.mark.asyncio

NEVER_MS = 2**52
OPS = Caller("ops", Kind.PERSON, Tier.CLIENT)


@pytest_asyncio.fixture
async def ops(server, client):
    """Somebody who is an operator, and nothing else."""
    await client.call("SetGrant", grant=grant("user:ops", OPERATOR))
    acting = Client(server.address, caller=OPS)
    yield acting
    await acting.close()


async def listed(client) -> dict[str, str]:
    return {one.token_id: one.principal for one in (await client.call("ListTokens")).tokens}


async def test_an_operator_has_a_token_made_which_is_listed_and_revoked_alone(client, ops):
    project = (await client.call("InitProject", root="/srv/demo", workspace_id="ws-demo")).project.name
    made = await ops.call(
        "CreateToken", principal="ci", kind="plugin", projects=[project, project], groups=["devs"], days=7
    )
    other = await ops.call("CreateToken", principal="ci")
    found = CallerGate("executor", [SECRET]).caller(call_metadata(made.bearer))
    assert (found.name, found.kind, found.proof) == ("ci", Kind.PLUGIN, Proof.TOKEN)
    assert (found.projects, found.groups, found.token) == ({project}, {"devs"}, made.token.token_id)
    said = made.token
    assert (said.principal, said.kind, said.audience, list(said.projects), said.by) == (
        "ci", "plugin", "executor", [project], "ops",
    )  # fmt: skip
    assert said.expire_time.seconds - said.create_time.seconds in range(7 * 86_400 - 5, 7 * 86_400 + 1)
    assert said.expire_time.seconds * 1000 == found.expires_ms
    assert (other.token.kind, list(other.token.projects)) == ("person", [])
    both = {made.token.token_id: "ci", other.token.token_id: "ci"}
    assert await listed(client) == await listed(ops) == both
    assert (await ops.call("RevokeToken", token_id=said.token_id)).token.HasField("revoke_time")
    assert await listed(ops) == both


async def test_the_token_itself_is_nowhere_in_the_store(client, db, tmp_path):
    made = await client.call("CreateToken", principal="ci")
    signature = made.bearer.rpartition(".")[2]
    with connected(db, tmp_path) as connection:
        for table in metadata.sorted_tables:
            assert signature not in str(connection.execute(select(table)).all()), table.name


async def test_nobody_else_has_one_made_and_no_operator_one_of_a_service(server, client, ops):
    assert await reason_of(ops.call("CreateToken", principal="x", kind="service")) is Reason.RIGHT_MISSING
    assert (await client.call("CreateToken", principal="x", kind="service")).token.kind == "service"
    stranger = Client(server.address, caller=Caller("eve", Kind.PERSON, Tier.CLIENT))
    assert await reason_of(stranger.call("CreateToken", principal="eve")) is Reason.RIGHT_MISSING
    assert await listed(stranger) == {}
    await stranger.close()


WRONG = {
    "operator": ({"principal": "operator"}, Reason.INVALID_FIELD, "principal"),
    "no name": ({"principal": ""}, Reason.INVALID_FIELD, "principal"),
    "a service's name": ({"principal": "store"}, Reason.INVALID_FIELD, "principal"),
    "kind": ({"kind": "root"}, Reason.INVALID_FIELD, "kind"),
    "audience": ({"audience": "database"}, Reason.INVALID_FIELD, "audience"),
    "days": ({"days": 401}, Reason.INVALID_FIELD, "days"),
    "groups": ({"groups": ["a"] * 65}, Reason.INVALID_FIELD, "groups"),
    "an empty group": ({"groups": [""]}, Reason.INVALID_FIELD, "groups"),
    "projects": ({"projects": [f"p{n}" for n in range(65)]}, Reason.INVALID_FIELD, "projects"),
    "an unknown project": ({"projects": ["none"]}, Reason.PROJECT_NOT_FOUND, None),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_wrong_request_makes_none(client, wrong):
    fields, reason, field = WRONG[wrong]
    with pytest.raises(TurnwrightError) as told:
        await client.call("CreateToken", **{"principal": "ci", **fields})
    assert (told.value.reason, told.value.metadata.get("field")) == (reason, field)
    assert await listed(client) == {}


def row(token_id: str, expire_ms: int, revoke_ms: int = 0) -> dict[str, object]:
    return {"token_id": token_id, "by": "ops", "create_ms": 1, "expire_ms": expire_ms, "revoke_ms": revoke_ms}


async def test_there_is_an_end_to_what_is_remembered(client, db, tmp_path):
    with connected(db, tmp_path) as connection:
        connection.execute(insert(tokens), [row(f"t{n}", NEVER_MS) for n in range(TOKENS_MAX)])
    assert await reason_of(client.call("CreateToken", principal="ci")) is Reason.LIMIT_EXCEEDED


async def test_tokens_that_have_expired_are_forgotten_once_nobody_takes_them(db, tmp_path):
    first = await start_store(tmp_path)
    await first.stop()
    with connected(db, tmp_path) as connection:
        now_ms = time.time_ns() // 1_000_000
        # A clock may be a minute behind, for which a revoked token is remembered.
        rows = [row("old", 1), row("revoked", 1, 1), row("just", now_ms - 1, 1), row("live", NEVER_MS, 1)]
        connection.execute(insert(tokens), rows)
    server = await start_store(tmp_path)
    try:
        async with asyncio.timeout(60):
            while kept(db, tmp_path) != {"just", "live"}:  # noqa: ASYNC110 - a chore tells nobody
                await asyncio.sleep(0.05)
    finally:
        await server.stop()
    assert kept(db, tmp_path) == {"just", "live"}


def kept(db, home) -> set[str]:
    with connected(db, home) as connection:
        return set(connection.execute(select(tokens.c.token_id)).scalars())


async def test_a_revoked_token_is_listed_as_such_and_stays_so(client):
    made = (await client.call("RevokeToken", token_id="t1")).token
    assert made.HasField("revoke_time")
    assert (await client.call("RevokeToken", token_id="t1")).token == made
    assert [one.token_id for one in (await client.call("ListTokens")).tokens] == ["t1"]
    assert await reason_of(client.call("RevokeToken", token_id="")) is Reason.INVALID_FIELD
