"""Who calls through the edge: a certificate that Envoy has verified, or a token of a local OpenID provider."""

from __future__ import annotations

import itertools
from dataclasses import dataclass, field

import grpc
import pytest
import pytest_asyncio
from turnwright.grants.v1 import grant_service_pb2, grant_service_pb2_grpc
from turnwright.runs.v1 import run_service_pb2, run_service_pb2_grpc
from turnwright.types.v1 import grant_pb2

from certificates import Authority
from edges import PROXY, Edge, edge
from oidc_provider import EC, Provider
from oidc_provider import serving as issuing
from services import SECRET, Services, running, token_for
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import FORWARDED, call_metadata

pytestmark = pytest.mark.asyncio(loop_scope="module")

INDEXER, EXECUTOR, NOBODY = (f"spiffe://corp.example/ns/{path}" for path in ("shop/indexer", "tw/executor", "nobody"))
IDENTITIES = """
[[issuer]]
name = "corp"
url = "{url}"
audience = "turnwright"
principal = "email"
groups = "groups"

[[peer]]
uri = "{indexer}"
principal = "indexer"
kind = "plugin"
groups = ["shop"]

[[peer]]
uri = "{executor}"
principal = "executor"
kind = "service"

[[proxy]]
uri = "{proxy}"
"""


@dataclass
class Served:
    """The edge, its provider, and callers with certificates."""

    at: Edge
    provider: Provider
    services: Services
    numbers: itertools.count = field(default_factory=itertools.count)

    def connected(self, address: str, signer: Authority | None = None, *uris: str) -> grpc.aio.Channel:
        """A connection, with a certificate of the signer."""
        own = (None, None)
        if signer:
            folder = signer.issue(self.services.root / f"caller-{next(self.numbers)}", *uris)
            own = (folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes()
        credentials = grpc.ssl_channel_credentials(self.at.authority.file.read_bytes(), *own)
        return grpc.aio.secure_channel(address, credentials, options=(("grpc.use_local_subchannel_pool", 1),))

    async def asked(self, address, signer=None, *uris, **more) -> tuple[str, str, list[str], str]:
        """Who a caller is told that it is, with a token and a header of its own."""
        async with self.connected(address, signer, *uris) as channel:
            try:
                told = await grant_service_pb2_grpc.GrantServiceStub(channel).GetIdentity(
                    grant_service_pb2.GetIdentityRequest(), metadata=metadata(**more)
                )
            except grpc.aio.AioRpcError as error:
                raise from_rpc(error, "executor", "") from None
        return told.principal, told.kind, list(told.groups), told.proof

    async def refused(self, address, signer=None, *uris, **more) -> str:
        with pytest.raises(TurnwrightError) as told:
            await self.asked(address, signer, *uris, **more)
        assert told.value.reason is Reason.UNAUTHENTICATED, told.value
        return told.value.metadata["cause"]


def metadata(token: str = "", forwarded: str = "") -> tuple[tuple[str, str], ...]:
    return (*(call_metadata(token) if token else ()), *(((FORWARDED, forwarded),) if forwarded else ()))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("edge_identities")
    async with issuing() as provider, running(folder) as services:
        file = folder / "edge-identity.toml"
        file.write_text(IDENTITIES.format(url=provider.url, indexer=INDEXER, executor=EXECUTOR, proxy=PROXY))
        async with edge(services, tls_mutual=True, identity=str(file)) as at:
            yield Served(at, provider, services)


INDEXED = ("indexer", "plugin", ["shop"], "proxy")


async def test_a_client_is_who_its_certificate_says_whatever_else_it_sends(served):
    at, clients = served.at, served.at.clients
    assert await served.asked(at.mutual, clients, INDEXER) == INDEXED
    # What a client makes up, Envoy replaces by what it found itself.
    for forged in (f"By={PROXY};URI={EXECUTOR}", f"URI={NOBODY},URI={PROXY}", "=;"):
        assert await served.asked(at.mutual, clients, INDEXER, forwarded=forged) == INDEXED, forged
        assert await served.refused(at.mutual, clients, NOBODY, forwarded=forged) == "certificate"
        assert await served.refused(at.mutual, clients, forwarded=forged) == "certificate"
        assert await served.refused(at.address, forwarded=forged) == "missing"
    # Nobody becomes a service by way of the edge.
    assert await served.refused(at.mutual, clients, EXECUTOR) == "certificate"


async def test_who_reaches_an_executor_past_the_edge_is_no_proxy(served):
    executor, authority = served.at.executors[0].address, served.at.authority
    for uris in ((), (NOBODY,), (f"{PROXY}/x",), (PROXY, NOBODY)):
        assert await served.refused(executor, authority, *uris, forwarded=f"URI={INDEXER}") == "certificate", uris
    told = await served.asked(executor, authority, INDEXER, forwarded=f"URI={EXECUTOR}")
    assert told == ("indexer", "plugin", ["shop"], "certificate")


async def test_a_token_of_the_provider_counts_at_the_edge_with_and_without_a_certificate(served):
    at, token = served.at, served.provider.token
    ann = ("corp/ann@corp.example", "person", ["corp/devs"], "issuer")
    assert await served.asked(at.address, token=token()) == ann
    assert await served.asked(at.mutual, at.clients, INDEXER, token=token(EC, "e1", "ES256")) == ann
    for wrong, cause in (
        (token(exp=1), "expired"), (token(aud="other"), "audience"), (token(EC, "r1", "ES256"), "signature"),
        (token(iss="https://evil.example"), "issuer"), (token_for("ann", secret="other"), "unknown_key"),
    ):  # fmt: skip
        # The certificate does not make up for it.
        assert await served.refused(at.mutual, at.clients, INDEXER, token=wrong) == cause


async def test_grants_are_given_to_whom_certificates_and_tokens_name(served):
    at, provider = served.at, served.provider
    folder = served.services.root / "shop"
    folder.mkdir()
    tls = Tls(authorities=at.authority.file)
    async with Client.connect(at.address, SECRET, 60, tls=tls) as root:
        shop = (await root.init_project(str(folder))).name
        for subject in ("group:shop", "group:corp/shop"):
            await root.set_grant(shop, subject, grant_pb2.GRANT_ROLE_VIEWER)

    async def listed(channel, **more) -> Reason | None:
        stub = run_service_pb2_grpc.RunServiceStub(channel)
        try:
            await stub.ListRuns(run_service_pb2.ListRunsRequest(project=shop), metadata=metadata(**more))
        except grpc.aio.AioRpcError as error:
            return from_rpc(error, "executor", "").reason
        return None

    async with served.connected(at.mutual, at.clients, INDEXER) as indexer, served.connected(at.address) as people:
        assert await listed(indexer) is None
        assert await listed(people, token=provider.token(groups=["shop", "devs"])) is None
        # The provider's group `devs` has no grant, and the certificate's group is not the provider's.
        assert await listed(indexer, token=provider.token()) is Reason.PROJECT_NOT_FOUND
