"""Every rpc of every service, called by everybody: the answer is the one that the written table of rights asks for.

What is expected follows from the table of `architecture/test_access.py` and from the words below, and from nothing that
the guard reads. A new rpc without a line in the table fails, as does one whose handler admits whom the table does not.
Requests name a project, or none, and besides that nothing that could be done: who is admitted is told what is missing.
No message of the contract has calls in it; where one names a second project, inside, that is tried at the end.
The column of certificates has processes of its own: test_strange_certificates.py.
Architecture 10; ADR 65, 66.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping
from typing import Any, Final

import jwt
import pytest
import pytest_asyncio
from cryptography.hazmat.primitives.asymmetric import rsa
from google.protobuf.message_factory import GetMessageClass
from msgspec import Struct
from turnwright.grants.v1 import grant_service_pb2
from turnwright.quotas.v1 import quota_service_pb2
from turnwright.store.v1 import lease_pb2, queue_pb2
from turnwright.types.v1 import grant_pb2

from architecture.test_access import ASKED, services
from oidc_provider import Provider
from services import SECRET, running, token_for
from turnwright_core.errors import DeadlineError, InternalError, Reason, TurnwrightError, UnavailableError
from turnwright_core.wire.resources import FOR_CLIENTS, RESOURCES
from turnwright_kit.identity.caller import TIERS, Caller, Kind
from turnwright_kit.identity.credentials import header_of
from turnwright_kit.identity.own_tokens import DAY_S, TokenKey, make_token
from turnwright_kit.peer import Peer, rpc_of

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

ANSWER_S: Final = 30.0

ASKED_BY: Final = {name: asked for asked, names in ASKED.items() for name in names.split()}
OTHERS: Final = {"ToolService", "LoginService"}
"""What servers of tools serve, which are none of the four."""

METHODS: Final = {
    method.full_name: method for service in services() if service.name not in OTHERS for method in service.methods
}

MOUNTED: Final = {one.service_name for one in FOR_CLIENTS}
SERVERS: Final = {
    "executor": {"ExecutorService", "SettingsService", *MOUNTED},
    "store": {"StoreService", "SettingsService", *(one.service_name for one in RESOURCES)},
    "assembler": {"AssemblerService", "SettingsService"},
    "provider": {"ProviderService", "SettingsService"},
}
"""Which services each process serves."""

ROLES: Final = {
    "viewer": "read",
    "member": "read run decide edit files command",
    "owner": "read run decide edit files command manage admin",
}
EVERYTHING: Final = set(ROLES["owner"].split())


class Column(Struct, frozen=True):
    """Somebody who calls, and what that one may do."""

    name: str
    kind: Kind = Kind.PERSON
    in_project: str = ""
    """The rights in the project that requests name, in words."""
    in_deployment: str = ""
    is_service: bool = False
    cause: str = ""
    """Why it is nobody."""


NOBODIES: Final = (
    Column("no token", cause="missing"),
    Column("not a token", cause="unknown_key"),
    Column("expired", cause="expired"),
    Column("revoked", cause="revoked"),
    Column("other audience", cause="audience"),
    Column("other deployment", cause="unknown_key"),
    Column("other issuer", cause="issuer"),
    Column("issuer's with alg none", cause="signature"),
    Column("alg none", cause="signature"),
)
SOMEBODIES: Final = (
    Column("stranger"),
    Column("wrong project"),
    Column("token of another project"),
    Column("viewer", in_project=ROLES["viewer"]),
    Column("member", in_project=ROLES["member"]),
    Column("owner", in_project=ROLES["owner"]),
    Column("an operator", in_project="admin", in_deployment="read admin"),
    Column("plugin", Kind.PLUGIN, in_project=ROLES["owner"]),
    Column("model", Kind.MODEL, in_project="read files"),
    Column("corp-viewer", in_project=ROLES["viewer"]),
)
SERVICES: Final = (
    Column("executor", Kind.SERVICE, " ".join(EVERYTHING - {"admin"}), is_service=True),
    Column("assembler", Kind.SERVICE, "read", is_service=True),
    Column("secret", in_project=ROLES["owner"], in_deployment=ROLES["owner"], is_service=True),
)

NOT_FOR_MODELS: Final = {"InitProject", "RevokeToken", "SubmitCommand", "WatchPlans", "WatchRuns"}
"""Rpcs that a model has the right for, or needs none for, and that ask for the tier `client`."""

FLOORS: Final = {
    "executor": {Kind.MODEL},
    "store": set(),
    "provider": {Kind.MODEL},
    "assembler": {Kind.MODEL, Kind.PERSON, Kind.PLUGIN},
}
"""The kinds that each process refuses, whatever they call."""

NOBODY, NO_RIGHT, NO_PROJECT, NO_TIER, ADMITTED = (
    "UNAUTHENTICATED", "RIGHT_MISSING", "PROJECT_NOT_FOUND", "TIER_FORBIDDEN", "admitted",
)  # fmt: skip
REFUSALS: Final = {NOBODY, NO_RIGHT, NO_PROJECT, NO_TIER}
FAULTS: Final = (InternalError, UnavailableError, DeadlineError)


class Stack(Struct):
    """A running stack, and the tokens of everybody."""

    services: Any
    project: str
    tokens: Mapping[tuple[str, str], str]
    """By name and audience."""
    callers: Mapping[str, Caller]

    def peer(self, server: str, column: Column) -> Peer:
        return Peer(server, self.services.addresses[server], self.tokens[column.name, server], ANSWER_S)


class ForSomebody(Peer):
    """A service's calls for somebody, as another process makes them."""

    def __init__(self, server: str, address: str, token: str, caller: Caller) -> None:
        super().__init__(server, address, token, ANSWER_S)
        self._caller = caller

    @contextlib.contextmanager
    def _sent(self, method: Any, _caller: Any) -> Iterator[dict[str, Any]]:
        with super()._sent(method, None) as sent:
            yield {"metadata": (*sent["metadata"], header_of(self._caller))}


def rsa_token(issuer: str, key: Any, algorithm: str, **claims: Any) -> str:
    now_s = int(time.time())
    whole = {"iss": issuer, "aud": "turnwright", "sub": "viewer", "email": "corp-viewer", "iat": now_s,
             "exp": now_s + 600, **claims}  # fmt: skip
    return jwt.encode(whole, key, algorithm=algorithm, headers={"kid": "r1"})


def tokens_for(provider: Provider) -> Iterator[tuple[tuple[str, str], str]]:
    """The token of each column, for each process."""
    stranger = rsa.generate_private_key(65537, 2048)
    for audience in SERVERS:
        key = TokenKey.of(SECRET, audience)
        other = next(name for name in SERVERS if name != audience)
        ours = jwt.decode(token_for("owner", audience=audience), options={"verify_signature": False})
        past = {**ours, "iat": ours["iat"] - 2 * DAY_S, "exp": ours["iat"] - DAY_S}
        for name, token in {
            "not a token": "guess",
            "expired": jwt.encode(past, key.value, "HS256", {"kid": key.id}),
            "revoked": token_for("owner", audience=audience),
            "other audience": token_for("owner", audience=other),
            "other deployment": token_for("owner", audience=audience, secret="another-secret"),
            "other issuer": rsa_token("https://issuer.example", stranger, "RS256"),
            "issuer's with alg none": rsa_token(provider.url, None, "none"),
            "alg none": jwt.encode(ours, None, "none", {"kid": key.id}),
            "token of another project": token_for("member", audience=audience, projects=["another"]),
            "corp-viewer": provider.token(email="viewer"),
            "executor": make_token(key, "executor", Kind.SERVICE, DAY_S),
            "assembler": make_token(key, "assembler", Kind.SERVICE, DAY_S),
            "secret": SECRET,
        }.items():
            yield (name, audience), token
        for column in SOMEBODIES:
            if column.name not in ("token of another project", "corp-viewer"):
                yield (column.name, audience), token_for(column.name.replace(" ", "-"), column.kind, audience=audience)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory):
    root, issuer = tmp_path_factory.mktemp("matrix"), Provider()
    serving = await asyncio.start_server(issuer.serve, "127.0.0.1", 0)
    issuer.url = f"http://127.0.0.1:{serving.sockets[0].getsockname()[1]}"
    (root / "home").mkdir()
    (root / "home" / "identity.toml").write_text(
        f'[[issuer]]\nname = "corp"\nurl = "{issuer.url}"\naudience = "turnwright"\nprincipal = "email"\n'
    )
    (root / "another").mkdir()
    async with serving, running(root) as made:
        client, project = made.client, made.project
        await client.delete_grant(project, "*")
        another = (await client.init_project(str(root / "another"))).name
        for name in ("viewer", "member", "owner"):
            await client.set_grant(project, f"user:{name}", getattr(grant_pb2, f"GRANT_ROLE_{name.upper()}"))
        for name in ("plugin", "model"):
            await client.set_grant(project, f"user:{name}", grant_pb2.GRANT_ROLE_OWNER)
        await client.set_grant(project, "user:corp/viewer", grant_pb2.GRANT_ROLE_VIEWER)
        await client.set_grant(another, "user:wrong-project", grant_pb2.GRANT_ROLE_OWNER)
        await client.set_grant("", "user:an-operator", grant_pb2.GRANT_ROLE_OPERATOR)
        tokens = dict(tokens_for(issuer))
        for audience in SERVERS:
            revoked = jwt.decode(tokens["revoked", audience], options={"verify_signature": False})
            await client.revoke_token(revoked["jti"])
        named = {column.name: jwt.decode(tokens[column.name, "store"], options={"verify_signature": False})
                 for column in SOMEBODIES if column.name != "corp-viewer"}  # fmt: skip
        callers = {
            name: Caller(claims["sub"], Kind(claims["kind"]), TIERS[Kind(claims["kind"])],
                         projects=frozenset(claims["prj"]) if "prj" in claims else None)
            for name, claims in named.items()
        }  # fmt: skip
        callers["corp-viewer"] = Caller("corp/viewer", Kind.PERSON, TIERS[Kind.PERSON])
        yield Stack(made, project, tokens, callers)


def methods_of(server: str) -> list[Any]:
    return [method for method in METHODS.values() if method.containing_service.name in SERVERS[server]]


def names_a_project(method: Any) -> bool:
    return bool({"project", "task"} & set(method.input_type.fields_by_name))


def projects_named(method: Any, column: Column, project: str) -> tuple[str, ...]:
    if not names_a_project(method):
        return ("",)
    # Who may do everything gets no further with a request that names no project where one is needed.
    return (project,) if column.is_service and " in " not in ASKED_BY[method.name] else (project, "")


def request_for(method: Any, project: str) -> Any:
    request = GetMessageClass(method.input_type)()
    about = request.task if "task" in method.input_type.fields_by_name else request
    if project:
        about.project = project
    if "run" in about.DESCRIPTOR.fields_by_name:
        about.run = "none"
    return request


def expected(server: str, method: Any, column: Column, project: str, *, passed_on: bool = False) -> str:
    """The cell of the table."""
    if column.cause == "revoked" and server in ("assembler", "provider"):
        # They are not told what is revoked: they take calls of services alone, of which this is none.
        return NO_TIER if Kind.PERSON in FLOORS[server] else NO_RIGHT
    if column.cause:
        return f"{NOBODY} {column.cause}"
    if column.kind in FLOORS[server] and not column.is_service:
        return NO_TIER
    right, _, reach = ASKED_BY[method.name].partition(" in ")
    answer = _of_grants(right, reach, column, project)
    if answer is not ADMITTED:
        return answer
    if column.kind is Kind.MODEL and method.name in NOT_FOR_MODELS:
        return NO_TIER
    if method.name == "SetScheme" and not column.is_service:
        # For operators, and they register schemes as plugins do: with a plugin.
        return NO_RIGHT if column.kind is Kind.PLUGIN else NO_TIER
    if method.name == "InitProject" and server == "store" and not (column.is_service or passed_on):
        # Only an executor knows which directories somebody may register.
        return NO_RIGHT
    return ADMITTED


def _of_grants(right: str, reach: str, column: Column, project: str) -> str:
    if right == "identity":
        return ADMITTED
    if right == "service":
        return ADMITTED if column.is_service else NO_RIGHT
    if reach == "deployment" or (reach == "project_or_deployment" and not project):
        return ADMITTED if right in column.in_deployment.split() else NO_RIGHT
    if not project:
        return ADMITTED if reach == "projects" else NO_PROJECT
    if not column.in_project:
        return NO_PROJECT
    return ADMITTED if right in column.in_project.split() else NO_RIGHT


async def called(peer: Peer, method: Any, request: Any) -> str:
    async def sent() -> Any:
        yield request

    rpc = rpc_of(peer.channel, method)
    try:
        if method.client_streaming:
            await peer.upload(rpc, sent(), ANSWER_S)
        elif method.server_streaming:
            async with peer.stream(rpc, request, ANSWER_S) as answers:
                await anext(answers, None)
        else:
            await peer.call(rpc, request)
    except TurnwrightError as error:
        if isinstance(error, FAULTS):
            raise
        if error.reason is Reason.UNAUTHENTICATED:
            return f"{NOBODY} {error.metadata['cause']}"
        return error.reason.name if error.reason.name in REFUSALS else ADMITTED
    return ADMITTED


async def check(peer: Peer, server: str, column: Column, project: str, *, passed_on: bool = False) -> None:
    """Call everything that a process serves, about a project and about none, and compare each cell."""
    found, wanted = {}, {}
    for method in methods_of(server):
        if column.kind is Kind.SERVICE and server == "executor" and method.containing_service.name in MOUNTED:
            # Services call the store for these. What an executor passes on is refused there, what it does itself is not.
            continue
        for named in projects_named(method, column, project):
            cell = f"{method.full_name} {'in a project' if named else ''}"
            found[cell] = await called(peer, method, request_for(method, named))
            wanted[cell] = expected(server, method, column, named, passed_on=passed_on)
    assert found == wanted
    assert found


async def test_every_rpc_is_called_at_each_process_that_serves_it() -> None:
    """So nothing of the contract is left out of the table, or of the matrix."""
    assert set().union(*SERVERS.values()) == {method.containing_service.name for method in METHODS.values()}
    of_others = {method.name for service in services() if service.name in OTHERS for method in service.methods}
    assert {method.name for method in METHODS.values()} | of_others == set(ASKED_BY)


@pytest.mark.parametrize("column", [*NOBODIES, *SOMEBODIES, *SERVICES], ids=lambda column: column.name)
@pytest.mark.parametrize("server", SERVERS)
async def test_each_rpc_answers_as_the_table_says(stack, server, column):
    if column.cause == "missing":
        peer = stack.peer(server, SERVICES[-1])
        peer._sent = lambda _method, _caller: contextlib.nullcontext({})
    else:
        peer = stack.peer(server, column)
    try:
        await check(peer, server, column, stack.project)
    finally:
        await peer.close()


@pytest.mark.parametrize("column", SOMEBODIES, ids=lambda column: column.name)
@pytest.mark.parametrize("sender", ["executor", "secret"])
@pytest.mark.parametrize("server", SERVERS)
async def test_what_a_service_passes_on_is_decided_by_whom_it_calls_for(stack, server, sender, column):
    address = stack.services.addresses[server]
    peer = ForSomebody(server, address, stack.tokens[sender, server], stack.callers[column.name])
    try:
        await check(peer, server, column, stack.project, passed_on=True)
    finally:
        await peer.close()


@pytest.mark.parametrize("sender", ["owner", "an operator", "plugin", "model"])
@pytest.mark.parametrize("server", SERVERS)
async def test_nobody_but_a_service_calls_for_others(stack, server, sender):
    address = stack.services.addresses[server]
    peer = ForSomebody(server, address, stack.tokens[sender, server], stack.callers["member"])
    try:
        found = {method.full_name: await called(peer, method, request_for(method, "")) for method in methods_of(server)}
    finally:
        await peer.close()
    assert found == dict.fromkeys(found, NO_RIGHT)


def second_projects(message: Any, above: frozenset[str] = frozenset()) -> Iterator[str]:
    """The messages of a request that name a project below its own fields."""
    for field in message.fields:
        inner = field.message_type
        if inner and inner.full_name not in above:
            if "project" in inner.fields_by_name:
                yield inner.name
            yield from second_projects(inner, above | {inner.full_name})


INSIDE: Final = {
    "Ask": {"Task"},
    "Act": {"Task"},
    "SetGrant": {"Grant"},
    "SetQuota": {"Quota"},
    "EnqueueLoop": {"ClaimRunRequest"},
    "Explain": {"AssembleRequest"},
    "RenewLeases": {"Lease"},
}
"""The guard looks at the project of a task. Explain and RenewLeases are for services, and so is the claim of EnqueueLoop."""


async def test_a_project_that_is_named_inside_of_a_request_counts_for_nothing(stack):
    found = {name: set(second_projects(method.input_type)) for name, method in
             ((method.name, method) for method in METHODS.values())}  # fmt: skip
    assert {name: names for name, names in found.items() if names} == INSIDE
    client, outsider = stack.services.client, Column("owner")
    before = [one.subject async for one in client.list_grants("another")], await client.list_quotas("another")
    grant = grant_pb2.Grant(project="another", subject="user:mallory", role=grant_pb2.GRANT_ROLE_OWNER)
    quota = quota_service_pb2.Quota(project="another", metric=quota_service_pb2.QUOTA_METRIC_TOKENS_DAY, limit=1)
    claim = queue_pb2.NewRun(claim=lease_pb2.ClaimRunRequest(project="another", run="r", owner="me"))
    for server, name, request in (
        ("executor", "SetGrant", grant_service_pb2.SetGrantRequest(project=stack.project, grant=grant)),
        ("executor", "SetQuota", quota_service_pb2.SetQuotaRequest(project=stack.project, quota=quota)),
        ("store", "EnqueueLoop", queue_pb2.EnqueueLoopRequest(project=stack.project, run="r", new=claim)),
    ):
        peer, method = stack.peer(server, outsider), next(one for one in METHODS.values() if one.name == name)
        try:
            answer = await called(peer, method, request)
        finally:
            await peer.close()
        assert (answer, name) == (NO_RIGHT if name == "EnqueueLoop" else ADMITTED, name)
    assert ([one.subject async for one in client.list_grants("another")], await client.list_quotas("another")) == before
    assert "user:mallory" in [one.subject async for one in client.list_grants(stack.project)]
    await client.delete_grant(stack.project, "user:mallory")
