"""A service behind the sidecar of a mesh: a real Envoy with mutual TLS that connects in plaintext, from its own address."""

from __future__ import annotations

import subprocess
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import grpc
import pytest
import pytest_asyncio
import yaml
from turnwright.grants.v1 import grant_service_pb2, grant_service_pb2_grpc

from certificates import Authority
from edges import ENVOY, listening
from ports import free_ports
from turnwright_core.errors import TurnwrightError
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import FORWARDED
from turnwright_executor.config import ExecutorSettings
from turnwright_kit.server import RunningServer
from turnwright_kit.settings import SettingsError
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build

pytestmark = pytest.mark.asyncio(loop_scope="module")

SECRET = "sidecar-secret"
SIDECAR = "127.0.0.6"
EXECUTOR, NOBODY = (f"spiffe://cluster.local/ns/{path}" for path in ("turnwright-executors/sa/executor", "x/sa/y"))
IDENTITIES = f"""
[[proxy]]
address = "{SIDECAR}"

[[peer]]
uri = "{EXECUTOR}"
principal = "executor"
kind = "service"
"""
HTTP = "envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager"
ROUTER = {
    "name": "router",
    "typed_config": {"@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router"},
}


def as_istio_has_it(folder, authority: Authority, port: int, to: int) -> dict:
    """The listener of a sidecar for what comes in: mutual TLS, and the client's certificate told to the service."""
    own = authority.issue(folder / "sidecar", "spiffe://cluster.local/ns/turnwright/sa/store")
    tls = {
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext",
        "require_client_certificate": True,
        "common_tls_context": {
            "alpn_protocols": ["h2"],
            "tls_certificates": [
                {
                    "certificate_chain": {"filename": f"{own}/cert.pem"},
                    "private_key": {"filename": f"{own}/key.pem"},
                }
            ],
            "validation_context": {"trusted_ca": {"filename": str(authority.file)}},
        },
    }
    manager = {
        "@type": f"type.googleapis.com/{HTTP}",
        "stat_prefix": "in",
        "forward_client_cert_details": "APPEND_FORWARD",
        "set_current_client_cert_details": {"subject": True, "dns": True, "uri": True},
        "route_config": {
            "virtual_hosts": [
                {"name": "in", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "route": {"cluster": "in"}}]}
            ]
        },
        "http_filters": [ROUTER],
    }
    http2 = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    place = {"socket_address": {"address": "127.0.0.1", "port_value": to}}
    cluster = {
        "name": "in",
        "type": "STATIC",
        "upstream_bind_config": {"source_address": {"address": SIDECAR, "port_value": 0}},
        "typed_extension_protocol_options": {
            http2: {
                "@type": f"type.googleapis.com/{http2}",
                "explicit_http_config": {"http2_protocol_options": {}},
            }
        },
        "load_assignment": {
            "cluster_name": "in",
            "endpoints": [{"lb_endpoints": [{"endpoint": {"address": place}}]}],
        },
    }
    chain = {
        "transport_socket": {"name": "envoy.transport_sockets.tls", "typed_config": tls},
        "filters": [{"name": "http", "typed_config": manager}],
    }
    listener = {
        "name": "in",
        "address": {"socket_address": {"address": "127.0.0.1", "port_value": port}},
        "filter_chains": [chain],
    }
    return {"static_resources": {"listeners": [listener], "clusters": [cluster]}}


class Pod:
    """A store, at its own address and behind its sidecar."""

    def __init__(self, authority: Authority, store: str, sidecar: str) -> None:
        self._authority, self.store, self._sidecar = authority, store, sidecar

    async def asked(self, *uris: str, forwarded: str = "", past: bool = False) -> tuple[str, str]:
        """Principal and proof of who calls the sidecar with a certificate, or the store past it; or why not."""
        own = self._authority.issue(self._authority.file.parent / "caller", *uris)
        credentials = grpc.ssl_channel_credentials(
            self._authority.file.read_bytes(), (own / "key.pem").read_bytes(), (own / "cert.pem").read_bytes()
        )
        options = (("grpc.use_local_subchannel_pool", 1),)
        async with (
            grpc.aio.insecure_channel(self.store, options=options)
            if past
            else grpc.aio.secure_channel(self._sidecar, credentials, options=options)
        ) as channel:
            stub = grant_service_pb2_grpc.GrantServiceStub(channel)
            try:
                told = await stub.GetIdentity(
                    grant_service_pb2.GetIdentityRequest(), metadata=((FORWARDED, forwarded),) if forwarded else ()
                )
            except grpc.aio.AioRpcError as error:
                refused = from_rpc(error, "store", "")
                assert isinstance(refused, TurnwrightError)
                return refused.reason.name, refused.metadata.get("cause", "")
        return told.principal, told.proof


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pod(tmp_path_factory) -> AsyncIterator[Pod]:
    folder = tmp_path_factory.mktemp("sidecar")
    (folder / "identity.toml").write_text(IDENTITIES)
    authority = Authority(folder / "ca.pem")
    async with AsyncExitStack() as stopping:
        server = RunningServer(
            build(StoreSettings(home=folder, token=SECRET, log_level="error"), SECRET), "127.0.0.1:0", SECRET, 1.0
        )
        await server.start()
        stopping.push_async_callback(server.stop)
        (port,) = free_ports(1)
        config = folder / "envoy.yaml"
        config.write_text(yaml.safe_dump(as_istio_has_it(folder, authority, port, int(server.address.split(":")[1]))))
        with (folder / "envoy.log").open("w") as log:
            process = subprocess.Popen(  # noqa: ASYNC220 - its start is what takes no time
                [ENVOY, "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1"], stderr=log, stdout=log
            )
        stopping.callback(process.wait)
        stopping.callback(process.kill)
        await listening(port, process)
        yield Pod(authority, server.address, f"127.0.0.1:{port}")


async def test_a_sidecar_says_whose_certificate_it_has_verified(pod):
    assert await pod.asked(EXECUTOR) == ("executor", "proxy")
    assert await pod.asked(NOBODY) == ("UNAUTHENTICATED", "certificate")
    assert await pod.asked() == ("UNAUTHENTICATED", "certificate")
    # What a client says of itself stands before what the sidecar says.
    assert await pod.asked(EXECUTOR, forwarded=f"URI={NOBODY}") == ("executor", "proxy")
    assert await pod.asked(NOBODY, forwarded=f"URI={EXECUTOR}") == ("UNAUTHENTICATED", "certificate")


async def test_who_comes_past_the_sidecar_is_nobody(pod):
    assert await pod.asked(past=True) == ("UNAUTHENTICATED", "missing")
    assert await pod.asked(past=True, forwarded=f"URI={EXECUTOR}") == ("UNAUTHENTICATED", "missing")


async def test_where_commands_run_no_address_is_trusted(tmp_path):
    (tmp_path / "identity.toml").write_text(IDENTITIES)
    with pytest.raises(SettingsError, match="commands of models run there"):
        ExecutorSettings(home=tmp_path, token=SECRET).identities()


@pytest.mark.parametrize(
    "proxy", ['address = "10.0.0.1"', 'address = "sidecar"', f'address = "127.0.0.6"\nuri = "{NOBODY}"', ""]
)
async def test_a_sidecar_is_within_the_pod(tmp_path, proxy):
    (tmp_path / "identity.toml").write_text(f"[[proxy]]\n{proxy}\n")
    with pytest.raises(SettingsError, match=r"address of a sidecar|spiffe://TRUST-DOMAIN/PATH"):
        StoreSettings(home=tmp_path, token=SECRET).identities()
