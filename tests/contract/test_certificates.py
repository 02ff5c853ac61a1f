"""Callers by certificate: who a peer is, what a proxy that is trusted says of its client, and what nobody can say."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import AsyncIterator, Mapping

import grpc
import pytest
import pytest_asyncio
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from turnwright.documents.v1 import document_service_pb2_grpc
from turnwright.grants.v1 import grant_service_pb2, grant_service_pb2_grpc
from turnwright.store.v1 import policy_pb2, store_service_pb2_grpc
from turnwright.types.v1 import grant_pb2, model_pb2
from turnwright.types.v1.settings_pb2 import LoopSettings
from turnwright_values.types import Tier

from architecture.test_access import services
from certificates import Authority
from contract.executor.tool_servers import file_of
from contract.mcp.bridging import hostile
from services import token_for
from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.wiring import build as build_assembler
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.limits import MESSAGE_BYTES_MAX
from turnwright_core.rpc.certificates import Tls
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import FORWARDED, call_metadata
from turnwright_core.runs import COMPLETED
from turnwright_core.wire.resources import RESOURCES
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.identity.caller import Caller, Kind
from turnwright_kit.identity.credentials import CERTIFICATE, Credentials, header_of
from turnwright_kit.identity.own_tokens import TokenKey, make_token
from turnwright_kit.peer import path_of
from turnwright_kit.server import RunningServer
from turnwright_kit.settings import SettingsError
from turnwright_mcp.config import McpSettings
from turnwright_mcp.wiring import build as build_mcp
from turnwright_provider.config import ProviderSettings
from turnwright_provider.wiring import build as build_provider
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "certificates-secret"
MESH = "spiffe://corp.example/ns"
INDEXER, EXECUTOR, EDGE, NOBODY = (f"{MESH}/{path}" for path in ("shop/sa/indexer", "tw/sa/executor", "edge", "nobody"))
IDENTITIES = f"""
[[peer]]
uri = "{INDEXER}"
principal = "indexer"
kind = "plugin"
groups = ["shop"]

[[peer]]
uri = "{EXECUTOR}"
principal = "executor"
kind = "service"

[[proxy]]
uri = "{EDGE}"
"""
WHOLE = "/turnwright.grants.v1.GrantService/GetIdentity"
OPTIONS = (("grpc.max_send_message_length", MESSAGE_BYTES_MAX), ("grpc.use_local_subchannel_pool", 1))
Told = grant_service_pb2.GetIdentityResponse


class Store:
    """A store that takes certificates, and what a caller with one of its authority is told."""

    def __init__(self, server: RunningServer, authority: Authority) -> None:
        self._server, self._authority = server, authority
        self._numbers = itertools.count()

    def connected(self, *uris: str, more: str = "", address: str = "") -> grpc.aio.Channel:
        folder = self._authority.file.parent / f"caller-{next(self._numbers)}"
        self._authority.issue(folder, *uris, more=more)
        key, chain = (folder / "key.pem").read_bytes(), (folder / "cert.pem").read_bytes()
        own = grpc.ssl_channel_credentials(self._authority.file.read_bytes(), key, chain)
        return grpc.aio.secure_channel(address or self._server.address, own, options=OPTIONS)

    async def asked(self, *uris: str, metadata: tuple[tuple[str, str], ...] = (), more: str = "") -> Told:
        async with self.connected(*uris, more=more) as channel:
            stub = grant_service_pb2_grpc.GrantServiceStub(channel)
            try:
                return await stub.GetIdentity(grant_service_pb2.GetIdentityRequest(), metadata=metadata)
            except grpc.aio.AioRpcError as error:
                raise from_rpc(error, "store", "") from None

    async def refused(self, *uris: str, forwarded: str = "", more: str = "") -> tuple[str, str]:
        with pytest.raises(TurnwrightError) as told:
            await self.asked(*uris, metadata=((FORWARDED, forwarded),) if forwarded else (), more=more)
        assert told.value.reason is Reason.UNAUTHENTICATED, told.value
        return told.value.metadata["cause"], told.value.message


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory) -> AsyncIterator[Store]:
    folder = tmp_path_factory.mktemp("certificates")
    authority = Authority(folder / "ca.pem")
    server = RunningServer(build(settings_in(folder, authority), SECRET), "127.0.0.1:0", SECRET, 1.0)
    await server.start()
    yield Store(server, authority)
    await server.stop()


def settings_in(folder, authority: Authority, identities: str = IDENTITIES, **more: object) -> StoreSettings:
    own = authority.issue(folder / "own")
    (folder / "identity.toml").write_text(identities)
    return StoreSettings(**{
        "home": folder, "token": SECRET, "log_level": "error", "tls_mutual": True, "tls_ca": str(authority.file),
        "tls_cert": f"{own}/cert.pem", "tls_key": f"{own}/key.pem", **more,
    })  # fmt: skip


def shown(told: Told) -> tuple[str, str, list[str], str]:
    return told.principal, told.kind, list(told.groups), told.proof


async def test_the_uri_of_a_certificate_names_a_caller(store):
    assert shown(await store.asked(INDEXER)) == ("indexer", "plugin", ["shop"], "certificate")


async def test_a_proxy_that_is_named_says_who_its_client_is_and_nobody_else_does(store):
    client = ("indexer", "plugin", ["shop"], "proxy")
    for forwarded in (
        f"URI={INDEXER}",
        f'By={EDGE};Hash=0a1b;Subject="CN=\\"x\\", URI={NOBODY};,O=corp";uri="{INDEXER}"',
        # What others have said before it reached the proxy.
        f"By={EDGE};URI={EXECUTOR},By={EDGE};URI={INDEXER};DNS=a;DNS=b",
    ):
        assert shown(await store.asked(EDGE, metadata=((FORWARDED, forwarded),))) == client, forwarded
    # From a caller that is no proxy the header counts for nothing, well-formed or not.
    for forwarded in (f"URI={EXECUTOR}", "=;"):
        told = await store.asked(INDEXER, metadata=((FORWARDED, forwarded), (FORWARDED, forwarded)))
        assert shown(told) == ("indexer", "plugin", ["shop"], "certificate")
    assert (await store.refused(NOBODY, forwarded=f"URI={INDEXER}"))[0] == "certificate"


async def test_a_token_is_what_a_call_says_and_counts_before_the_certificate(store):
    ann = token_for("ann", audience="store", secret=SECRET)
    for uri in (INDEXER, EDGE, NOBODY):
        told = await store.asked(uri, metadata=(*call_metadata(ann), (FORWARDED, f"URI={INDEXER}")))
        assert shown(told) == ("ann", "person", [], "token")
    # A certificate does not make up for a token that is wrong.
    with pytest.raises(TurnwrightError) as wrong:
        await store.asked(INDEXER, metadata=call_metadata("wrong"))
    assert wrong.value.metadata["cause"] == "unknown_key"


async def test_a_service_is_known_by_its_certificate_and_says_for_whom_it_calls(store):
    sent = Credentials(SECRET, "store", service="executor", given=CERTIFICATE)
    assert shown(await store.asked(EXECUTOR, metadata=sent.metadata()))[:2] == ("executor", "service")
    ann = Caller("ann", Kind.PERSON, Tier.CLIENT)
    assert (await store.asked(EXECUTOR, metadata=sent.metadata(ann))).principal == "ann"
    with pytest.raises(TurnwrightError) as refused:
        await store.asked(INDEXER, metadata=(header_of(ann),))
    assert refused.value.reason is Reason.RIGHT_MISSING
    # Who has taken over the edge is none of the services.
    assert (await store.refused(EDGE, forwarded=f"URI={EXECUTOR}"))[0] == "certificate"


WRONG: Mapping[str, tuple[tuple[str, ...], str, str, str]] = {
    "no URI": ((), "", "certificate", "has no URI"),
    "two URIs": ((INDEXER, EXECUTOR), "", "certificate", "has 2 URIs"),
    "an unknown path": ((NOBODY,), "", "certificate", "of no `[[peer]]`"),
    "another trust domain": (("spiffe://other.example/ns/shop/sa/indexer",), "", "certificate", "trust domain"),
    "the URI and more": ((f"{INDEXER}/x",), "", "certificate", "of no `[[peer]]`"),
    "a proxy without a client's": ((EDGE,), "", "missing", "says of no certificate"),
    "a proxy with an element without URI": ((EDGE,), f"URI={INDEXER},Hash=0a", "certificate", "has no URI"),
    "a proxy with two URIs": ((EDGE,), f"URI={INDEXER};URI={EXECUTOR}", "certificate", "has 2 URIs"),
    "a proxy with an unknown one": ((EDGE,), f"URI={NOBODY}", "certificate", "of no `[[peer]]`"),
    "a proxy of a proxy": ((EDGE,), f"URI={EDGE}", "certificate", "of no `[[peer]]`"),
    "without a key": ((EDGE,), INDEXER, "certificate", "not well-formed"),
    "an open quotation": ((EDGE,), f'Subject="x;URI={INDEXER}', "certificate", "not well-formed"),
    "an empty element": ((EDGE,), f"URI={INDEXER},", "certificate", "not well-formed"),
    "text behind a quotation": ((EDGE,), f'URI="{INDEXER}"x', "certificate", "not well-formed"),
}


async def test_a_certificate_that_names_nobody_is_refused_with_what_is_wrong(store):
    for name, (uris, forwarded, cause, words) in WRONG.items():
        told = await store.refused(*uris, forwarded=forwarded)
        assert (told[0], words in told[1]) == (cause, True), (name, told)
    # A DNS name is no URI, whatever it spells.
    assert (await store.refused(more=INDEXER))[0] == "certificate"


async def test_a_stranger_is_refused_before_a_message_was_sent(store):
    served = ("StoreService", "SettingsService", *(one.service_name for one in RESOURCES))
    methods = [path_of(method) for service in services() if service.name in served for method in service.methods]
    assert len(methods) > len(RESOURCES)
    for uri, cause in ((NOBODY, "certificate"), (EDGE, "missing")):
        async with store.connected(uri) as channel:
            for method in methods:
                call = channel.stream_stream(method)()
                with pytest.raises(grpc.aio.AioRpcError) as refused:
                    async with asyncio.timeout(60):
                        # Nothing is ever written to it: only its connection can be what is refused.
                        await call.read()
                failed = from_rpc(refused.value, "store", "")
                assert (failed.reason, failed.metadata["cause"]) == (Reason.UNAUTHENTICATED, cause), method


async def test_each_kind_of_call_is_taken_by_certificate(store):
    async with store.connected(EXECUTOR) as channel:
        policy = store_service_pb2_grpc.StoreServiceStub(channel).WatchPolicy(policy_pb2.WatchPolicyRequest())
        async with asyncio.timeout(60):
            assert (await policy.read()).version
        policy.cancel()
        reflected = reflection_pb2_grpc.ServerReflectionStub(channel).ServerReflectionInfo()
        await reflected.write(reflection_pb2.ServerReflectionRequest(list_services=""))
        assert (await reflected.read()).list_services_response.service
        await reflected.done_writing()
        upload = document_service_pb2_grpc.DocumentServiceStub(channel).ImportRun()
        await upload.done_writing()
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await upload
        assert from_rpc(refused.value, "store", "").reason is Reason.INVALID_FIELD
        # A call that ends without the message that it should have.
        empty = channel.stream_stream(WHOLE)()
        await empty.done_writing()
        with pytest.raises(grpc.aio.AioRpcError) as missing:
            await empty.read()
        assert from_rpc(missing.value, "store", "").reason is Reason.INVALID_FIELD
        # One that is too large for what follows is refused as any other is.
        with pytest.raises(grpc.aio.AioRpcError) as large:
            await channel.unary_unary(WHOLE)(b"\xff\xff\xff")
        assert from_rpc(large.value, "store", "").reason is Reason.INVALID_FIELD


FILES: Mapping[str, tuple[str, str]] = {
    "root": (IDENTITIES.replace('"indexer"', '"operator"'), "holder of the deployment's secret"),
    "the name of a service": (IDENTITIES.replace('"indexer"', '"store"'), "name of a service"),
    "no name": (IDENTITIES.replace('"indexer"', '"a b"'), "1 to 64 characters"),
    "a URI twice": (IDENTITIES.replace(EDGE, INDEXER), "URI of a peer or proxy stands there once"),
    "a URI of the web": (IDENTITIES.replace(INDEXER, "https://corp.example/x"), "spiffe://TRUST-DOMAIN/PATH"),
    "a trust domain alone": (IDENTITIES.replace(INDEXER, "spiffe://corp.example/"), "spiffe://TRUST-DOMAIN/PATH"),
    "an unknown kind": (IDENTITIES.replace('"plugin"', '"robot"'), "robot"),
    "an unknown key": (IDENTITIES.replace("groups", "grups"), "grups"),
}


async def test_a_file_with_a_fault_stops_the_start(tmp_path):
    authority = Authority(tmp_path / "ca.pem")
    for name, (text, words) in FILES.items():
        with pytest.raises(SettingsError) as told:
            settings_in(tmp_path, authority, text).identities()
        assert words in str(told.value), (name, told.value)
    with pytest.raises(SettingsError, match="TURNWRIGHT_TLS_MUTUAL"):
        settings_in(tmp_path, authority, tls_mutual=False).identities()


async def test_a_task_runs_through_services_that_share_no_secret_and_know_each_other_by_certificates(tmp_path):
    authority = Authority(tmp_path / "ca.pem")
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    reply = "=== reply chunk_chars=64 delay_ms=0 ===\n"
    (tmp_path / "m.txt").write_text(
        f'{reply}<well.read/><update status="102">On</update>\n{reply}<update status="200">Done</update>\n'
    )
    servers = file_of(tmp_path / "servers.toml", {"well": {"mcp": hostile("well")}})
    names = ("store", "provider", "assembler", "executor")
    (tmp_path / "identity.toml").write_text(
        "".join(f'[[peer]]\nuri = "{MESH}/{name}"\nprincipal = "{name}"\nkind = "service"\n' for name in names)
    )
    key, at = TokenKey.of(SECRET, "executor"), dict[str, str]()

    def settings_of(name: str) -> dict[str, object]:
        own = authority.issue(tmp_path / name, f"{MESH}/{name}")
        return {
            "home": tmp_path / "home", "token": SECRET if name == "store" else f"of the {name} alone",
            "log_level": "error", "identity": str(tmp_path / "identity.toml"), "tls_mutual": True,
            "tls_ca": str(authority.file), "tls_cert": f"{own}/cert.pem", "tls_key": f"{own}/key.pem",
            "peer_tokens": ",".join(f"{each}={CERTIFICATE}" for each in (*names, "mcp")),
        }  # fmt: skip

    builds = {
        "store": lambda of: build(StoreSettings(**of), of["token"]),
        "provider": lambda of: build_provider(ProviderSettings(**of, scripted_dir=tmp_path), of["token"]),
        "assembler": lambda of: build_assembler(AssemblerSettings(**of, store=at["store"]), of["token"]),
        # Beside the executor, with its certificate.
        "mcp": lambda of: build_mcp(McpSettings(**of, store=at["store"], sh_sandbox="limits"), of["token"]),
        "executor": lambda of: build_executor(
            ExecutorSettings(
                **of, **at, keys=key.text, client_roots=str(tmp_path), sh_sandbox="limits", tool_servers=servers
            ),
            of["token"],
        ),
    }
    async with contextlib.AsyncExitStack() as stopping:
        for name, make in builds.items():
            of = settings_of("executor" if name == "mcp" else name)
            server = RunningServer(make(of), "127.0.0.1:0", str(of["token"]), 1.0)
            await server.start()
            stopping.push_async_callback(server.stop)
            at[name] = server.address
        grant = grant_pb2.Grant(subject="user:ann", role=grant_pb2.GRANT_ROLE_OPERATOR)
        async with Store(server, authority).connected(address=at["store"]) as root:
            await grant_service_pb2_grpc.GrantServiceStub(root).SetGrant(
                grant_service_pb2.SetGrantRequest(grant=grant), metadata=call_metadata(SECRET)
            )
        tls = Tls(tmp_path / "store" / "cert.pem", tmp_path / "store" / "key.pem", authority.file)
        ann = make_token(key, "ann", Kind.PERSON, 600)
        async with Client.connect(at["executor"], ann, tls=tls) as client:
            await client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
            project = (await client.init_project(str(tmp_path / "project"))).name
            queued = await client.act(project, "Do it.", settings=LoopSettings(model="m"))
            done = await client.run_to_end(queued)
            assert (done.status, done.loop.by) == (COMPLETED, "ann")
            record = await client.get_entry(project, queued.run, "log://turn_1/result/well.read/1")
            assert record.body == "done"
