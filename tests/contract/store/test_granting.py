"""Grants and tokens in the store: who may give which, and that whoever decides by them is told. ADR 66."""

import asyncio
import contextlib
from functools import partial

import pytest
import pytest_asyncio
from turnwright.runs.v1 import run_service_pb2
from turnwright.types.v1 import access_pb2, grant_pb2
from turnwright_values.types import Tier

from contract.store.harness import POSTGRESQL_ONLY, Client, start_store
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_executor.peers.policy import renew_policy
from turnwright_kit.access import method_access
from turnwright_kit.identity.caller import Caller, Kind
from turnwright_kit.identity.policy import Policy, PolicySnapshot

pytestmark = pytest.mark.asyncio

VIEWER, MEMBER = grant_pb2.GRANT_ROLE_VIEWER, grant_pb2.GRANT_ROLE_MEMBER
OWNER, OPERATOR = grant_pb2.GRANT_ROLE_OWNER, grant_pb2.GRANT_ROLE_OPERATOR
COMMAND, DECIDE = access_pb2.RIGHT_COMMAND, access_pb2.RIGHT_DECIDE


@pytest_asyncio.fixture
async def project(client):
    """A project in which nobody has a grant."""
    return (await client.call("InitProject", root="/srv/demo", workspace_id="ws-demo")).project.name


def grant(subject: str, role=MEMBER, **more) -> grant_pb2.Grant:
    return grant_pb2.Grant(subject=subject, role=role, **more)


async def reason_of(call) -> Reason:
    with pytest.raises(TurnwrightError) as told:
        await call
    return told.value.reason


async def granted(client, project: str) -> dict[str, int]:
    return {one.subject: one.role for one in (await client.call("ListGrants", project=project)).grants}


async def test_a_grant_is_as_it_was_set_until_it_is_set_anew_or_deleted(client, project):
    made = await client.call("SetGrant", project=project, grant=grant("user:bob", without=[COMMAND, DECIDE]))
    assert (made.grant.project, made.grant.by, list(made.grant.without)) == (project, "operator", [DECIDE, COMMAND])
    assert made.grant.HasField("create_time")
    [listed] = (await client.call("ListGrants", project=project)).grants
    assert listed == made.grant
    again = await client.call("SetGrant", project=project, grant=grant("user:bob", VIEWER))
    assert again.policy_version > made.policy_version
    await client.call("SetGrant", grant=grant("user:bob", OPERATOR))
    assert await granted(client, project) == {"user:bob": VIEWER}
    assert await granted(client, "") == {"user:bob": OPERATOR}
    gone = await client.call("DeleteGrant", project=project, subject="user:bob")
    assert gone.policy_version > again.policy_version
    assert (await granted(client, project), await granted(client, "")) == ({}, {"user:bob": OPERATOR})
    assert await reason_of(client.call("DeleteGrant", project=project, subject="user:bob")) is Reason.ENTRY_NOT_FOUND


UNCLEAR = [
    ("demo", {"subject": ""}, "grant.subject"),
    ("demo", {"subject": "bob"}, "grant.subject"),
    ("demo", {"subject": "user:"}, "grant.subject"),
    ("demo", {"subject": "user: bob"}, "grant.subject"),
    ("demo", {"subject": "user:bob\n"}, "grant.subject"),
    ("demo", {"subject": "team:devs"}, "grant.subject"),
    ("demo", {"subject": "**"}, "grant.subject"),
    ("demo", {"role": OPERATOR}, "grant.role"),
    ("demo", {"role": 0}, "grant.role"),
    ("", {"role": OWNER}, "grant.role"),
    ("demo", {"without": [access_pb2.RIGHT_SERVICE]}, "grant.without"),
    ("demo", {"until_time": {"seconds": 1}}, "grant.until_time"),
]


async def test_a_grant_that_says_nothing_clear_is_refused(client, project):
    for where, fields, field in UNCLEAR:
        wanted = grant_pb2.Grant(**{"subject": "user:bob", "role": MEMBER, **fields})
        with pytest.raises(TurnwrightError) as told:
            await client.call("SetGrant", project=where and project, grant=wanted)
        assert (told.value.reason, told.value.metadata["field"]) == (Reason.INVALID_FIELD, field), wanted
    assert await granted(client, project) == {}


async def test_a_project_that_does_not_exist_has_no_grants(client):
    for call in (
        client.call("SetGrant", project="none", grant=grant("user:bob")),
        client.call("DeleteGrant", project="none", subject="user:bob"),
        client.call("ListGrants", project="none"),
    ):
        assert await reason_of(call) is Reason.PROJECT_NOT_FOUND


async def test_long_lists_of_grants_come_in_pages(client, project):
    names = sorted(f"user:u{number}" for number in range(5))
    for name in names:
        await client.call("SetGrant", project=project, grant=grant(name))
    found, token = [], ""
    while True:
        page = await client.call("ListGrants", project=project, page_size=2, page_token=token)
        found += [one.subject for one in page.grants]
        token = page.next_page_token
        if not token:
            break
    assert found == names


@contextlib.asynccontextmanager
async def policies(client):
    """The policies that a service is told, whole, one after the other."""

    async def told():
        grants, revoked = [], []
        async for part in client.stream("WatchPolicy"):
            grants += part.grants
            revoked += part.revoked_token_ids
            if part.last:
                yield part.version, {(one.project, one.subject): one.role for one in grants}, revoked
                grants, revoked = [], []

    async with contextlib.aclosing(told()) as messages:
        yield messages


async def expect_policy(messages, expected) -> None:
    """Read policies until one is as expected: changes that came at once may be told as one."""
    async with asyncio.timeout(60):
        async for _, grants, revoked in messages:
            if (grants, revoked) == expected:
                return


async def test_whoever_decides_by_the_policy_is_told_each_change(server, client, project):
    async with policies(client) as first:
        version, *_ = await anext(first)
        made = await client.call("SetGrant", project=project, grant=grant("*"))
        assert made.policy_version > version
        await expect_policy(first, ({(project, "*"): MEMBER}, []))
        await client.call("RevokeToken", token_id="t1")
        await expect_policy(first, ({(project, "*"): MEMBER}, ["t1"]))
        await client.call("DeleteGrant", project=project, subject="*")
        await expect_policy(first, ({}, ["t1"]))


@POSTGRESQL_ONLY  # one process has a SQLite database
async def test_a_replica_is_told_what_another_one_changed(server, client, project, tmp_path):
    other = await start_store(tmp_path, "other")
    beside = Client(other.address)
    try:
        async with policies(beside) as told:
            await anext(told)
            await client.call("SetGrant", project=project, grant=grant("*"))
            await expect_policy(told, ({(project, "*"): MEMBER}, []))
    finally:
        await beside.close()
        await other.stop()


async def test_the_holder_of_the_secret_is_told_to_be_that(client):
    answer = await client.call("GetIdentity")
    assert (answer.principal, answer.kind, answer.proof, answer.root) == ("operator", "person", "secret", True)
    assert access_pb2.RIGHT_ADMIN in answer.deployment_rights


async def test_nobody_is_refused_by_what_a_service_has_not_been_told_yet(client, project):
    """Another executor may have registered the project, a moment ago, for a caller whom a proxy sends here next."""
    policy, reads = Policy(lambda: 0), []
    bob, access = Caller("bob", Kind.PERSON, Tier.CLIENT), method_access("/turnwright.runs.v1.RunService/GetRun")
    asked = run_service_pb2.GetRunRequest(project=project)

    async def read() -> None:
        reads.append(policy.version)
        await renew_policy(client.peer, policy)

    policy.reads = read
    await policy.renew()
    assert policy.version > 0
    assert await reason_of(access.check(policy, bob, asked)) is Reason.PROJECT_NOT_FOUND
    await client.call("SetGrant", project=project, grant=grant("user:bob", VIEWER))
    await access.check(policy, bob, asked)
    known, reads[:] = policy.version, []
    eve = Caller("eve", Kind.PERSON, Tier.CLIENT)
    refused = await asyncio.gather(*(reason_of(access.check(policy, eve, asked)) for _ in range(50)))
    # Those that ask while it is read for the first of them share the next reading.
    assert (set(refused), reads) == ({Reason.PROJECT_NOT_FOUND}, [known, known])


async def test_while_the_store_is_away_a_policy_stays_as_it_was():
    nowhere, policy = Client("127.0.0.1:1"), Policy(lambda: 0)
    policy.reads = partial(renew_policy, nowhere.peer, policy)
    policy.replace(PolicySnapshot(7))
    await policy.renew()
    assert policy.version == 7
    await nowhere.close()
