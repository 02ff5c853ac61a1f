"""TLS between services and clients, with real certificates: who is refused, and what happens when they are replaced."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl

import pytest
from turnwright.types.v1 import model_pb2, settings_pb2

from certificates import Authority
from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.wiring import build as build_assembler
from turnwright_cli.discovery import is_serving
from turnwright_client import Client
from turnwright_client.client import loop_in
from turnwright_client.watch import WatchPolicy
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.rpc.certificates import Tls
from turnwright_core.runs import COMPLETED, LOOP_ENDED
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.server import RunningServer
from turnwright_kit.settings import SettingsError
from turnwright_provider.config import ProviderSettings
from turnwright_provider.wiring import build as build_provider
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build as build_store

SECRET = "tls-secret"
AT_ONCE = WatchPolicy(retries_max=0)
WAIT_S = 30


@pytest.fixture
def authority(tmp_path):
    return Authority(tmp_path / "ca.pem")


def files(folder, authority: Authority) -> dict[str, str]:
    return {
        "tls_cert": str(folder / "cert.pem"),
        "tls_key": str(folder / "key.pem"),
        "tls_ca": str(authority.file),
    }


def caller(authority: Authority, folder=None) -> Tls:
    """What a client trusts, and what it presents."""
    certificate, key = (folder / "cert.pem", folder / "key.pem") if folder else (None, None)
    return Tls(certificate, key, authority.file)


@contextlib.asynccontextmanager
async def serving(tmp_path, **tls):
    """The four services at TCP ports, each called with TLS; the executor's address."""
    for name in ("home", "project"):
        (tmp_path / name).mkdir()
    (tmp_path / "m.txt").write_text('=== reply chunk_chars=64 delay_ms=0 ===\n<update status="200">Done</update>\n')
    common = {"home": tmp_path / "home", "token": SECRET, "log_level": "error", **tls}
    at: dict[str, str] = {}
    services = (
        ("store", lambda: build_store(StoreSettings(**common), SECRET)),
        ("provider", lambda: build_provider(ProviderSettings(**common, scripted_dir=tmp_path), SECRET)),
        ("assembler", lambda: build_assembler(AssemblerSettings(**common, **only("store")), SECRET)),
        ("executor", lambda: build_executor(ExecutorSettings(**common, **at, sh_sandbox="limits"), SECRET)),
    )

    def only(name: str) -> dict[str, str]:
        return {name: at[name]}

    async with contextlib.AsyncExitStack() as stopping:
        for name, build in services:
            server = RunningServer(build(), "127.0.0.1:0", SECRET, 1.0)
            await server.start()
            stopping.push_async_callback(server.stop)
            at[name] = server.address
        yield at["executor"]


@contextlib.asynccontextmanager
async def listening(tmp_path, **tls):
    """A store alone, at a TCP port."""
    settings = StoreSettings(home=tmp_path / "home", token=SECRET, log_level="error", **tls)
    server = RunningServer(build_store(settings, SECRET), "127.0.0.1:0", SECRET, 1.0)
    await server.start()
    try:
        yield server.address
    finally:
        await server.stop()


async def presented(address: str, authority: Authority) -> bytes:
    """The certificate that a new connection is shown, in DER."""

    def connect() -> bytes:
        host, _, port = address.rpartition(":")
        context = ssl.create_default_context(cafile=str(authority.file))
        context.set_alpn_protocols(["h2"])
        with (
            socket.create_connection((host, int(port)), 10) as plain,
            context.wrap_socket(plain, server_hostname=host) as secure,
        ):
            return secure.getpeercert(binary_form=True) or b""

    return await asyncio.to_thread(connect)


async def until_presented(address: str, authority: Authority, wanted: bytes) -> None:
    async with asyncio.timeout(WAIT_S):
        while await presented(address, authority) != wanted:  # noqa: ASYNC110 - nothing tells when files are read
            await asyncio.sleep(0.1)


async def refusal(address: str, tls: Tls) -> str:
    """Why a call is not answered."""
    async with Client.connect(address, SECRET, 10, AT_ONCE, tls) as client:
        with pytest.raises(TurnwrightError) as caught:
            await client.discover()
        return caught.value.message


def der(folder) -> bytes:
    return ssl.PEM_cert_to_DER_cert((folder / "cert.pem").read_text())


@pytest.mark.asyncio
async def test_a_task_runs_through_four_services_that_know_each_other_by_certificates(tmp_path, authority):
    own = authority.issue(tmp_path / "own")
    async with (
        serving(tmp_path, **files(own, authority), tls_mutual=True) as address,
        Client.connect(address, SECRET, tls=caller(authority, own)) as client,
    ):
        await client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        project = (await client.init_project(str(tmp_path / "project"))).name
        queued = await client.act(project, "Do it.", settings=settings_pb2.LoopSettings(model="m", yolo=True))
        async with contextlib.aclosing(client.watch(project, queued.run, queued.cursor)) as events:
            async for event in events:
                if (loop := loop_in(event)) and loop.status in LOOP_ENDED:
                    assert loop.status == COMPLETED
                    break


@pytest.mark.asyncio
async def test_callers_without_a_certificate_of_the_authority_are_refused(tmp_path, authority):
    own = authority.issue(tmp_path / "own")
    stranger = Authority(tmp_path / "stranger.pem")
    foreign = stranger.issue(tmp_path / "foreign")
    async with serving(tmp_path, **files(own, authority), tls_mutual=True) as address:
        for tls, told in (
            (caller(authority), "TURNWRIGHT_TLS_CERT"),
            (caller(authority, foreign), "Socket closed"),
            (Tls(), "set TURNWRIGHT_TLS_CA"),
        ):
            async with Client.connect(address, SECRET, 10, AT_ONCE, tls) as client:
                with pytest.raises(TurnwrightError, match=told) as caught:
                    await client.list_models()
                assert caught.value.reason is Reason.SERVICE_UNAVAILABLE
            assert not await is_serving(address, 10, tls)
        assert await is_serving(address, 30, caller(authority, own))


@pytest.mark.asyncio
async def test_a_server_of_another_authority_is_not_called(tmp_path, authority):
    stranger = Authority(tmp_path / "stranger.pem")
    own = stranger.issue(tmp_path / "own")
    async with listening(tmp_path, **files(own, stranger)) as address:
        assert not await is_serving(address, 10, caller(authority))
        told = await refusal(address, caller(authority))
        assert "is not of an authority in TURNWRIGHT_TLS_CA" in told
        told = await refusal(address, Tls(authorities=stranger.file, name="other.example"))
        assert "set TURNWRIGHT_TLS_NAME" in told


@pytest.mark.asyncio
async def test_a_name_that_the_certificate_has_may_stand_for_the_address(tmp_path, authority):
    own = authority.issue(tmp_path / "own")
    async with listening(tmp_path, **files(own, authority)) as address:
        told = await refusal(address, Tls(authorities=authority.file, name="executor"))
        assert "UNIMPLEMENTED" in told


@pytest.mark.asyncio
async def test_a_service_that_speaks_plaintext_is_named(tmp_path, authority):
    async with listening(tmp_path) as address:
        assert "It speaks plaintext" in await refusal(address, caller(authority))


@pytest.mark.asyncio
async def test_a_replaced_certificate_is_used_without_a_restart_and_a_wrong_one_never(tmp_path, authority):
    own = authority.issue(tmp_path / "own")
    async with listening(tmp_path, **files(own, authority)) as address:
        first = der(own)
        assert await presented(address, authority) == first
        authority.issue(own, days=-1)
        await asyncio.sleep(1.5)
        assert await presented(address, authority) == first
        authority.issue(own, names=False)
        await asyncio.sleep(1.5)
        assert await presented(address, authority) == first
        authority.issue(own)
        await until_presented(address, authority, der(own))


@pytest.mark.asyncio
async def test_a_caller_follows_to_another_authority_and_its_calls_go_on(tmp_path, authority):
    own, other = authority.issue(tmp_path / "own"), Authority(tmp_path / "other.pem")
    async with serving(tmp_path, **files(own, authority)) as address:
        trusted = tmp_path / "trusted.pem"
        trusted.write_bytes(authority.file.read_bytes())
        tls = Tls(authorities=trusted)
        async with Client.connect(address, SECRET, 30, tls=tls) as client:
            await client.list_models()
            trusted.write_bytes(other.file.read_bytes())
            await asyncio.sleep(1.5)
            with pytest.raises(TurnwrightError):
                async with Client.connect(address, SECRET, 10, AT_ONCE, tls) as second:
                    await second.list_models()
            trusted.write_bytes(authority.file.read_bytes() + other.file.read_bytes())
            await asyncio.sleep(1.5)
            await client.list_models()


@pytest.mark.asyncio
async def test_a_service_does_not_listen_in_plaintext_where_others_could_read_it(tmp_path):
    for insecure in (False, True):
        settings = StoreSettings(home=tmp_path / "home", token=SECRET, log_level="error", insecure=insecure)
        server = RunningServer(build_store(settings, SECRET), "0.0.0.0:0", SECRET, 1.0)
        if insecure:
            await server.start()
            await server.stop()
        else:
            with pytest.raises(TurnwrightError, match="TURNWRIGHT_TLS_CERT"):
                await server.start()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "address", ["10.0.0.1:7440", "store:7441", "dns:///store:7441", "[2001:db8::1]:7440", "127.0.0.1.example.com:1"]
)
async def test_no_token_is_sent_in_plaintext_to_another_host(address):
    with pytest.raises(TurnwrightError) as refused:
        async with Client.connect(address, SECRET):
            raise AssertionError("connected")
    assert "`tls=Tls(authorities=Path(...))`, or `tls=Tls(insecure=True)`" in refused.value.message
    assert "TURNWRIGHT_" not in refused.value.message  # The library reads no settings.


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "address", ["127.0.0.1:7440", "127.8.0.1:1", "localhost:7441", "dns:///localhost:1", "[::1]:7440", "unix:/tmp/x"]
)
async def test_plaintext_reaches_this_host(address):
    async with Client.connect(address, SECRET) as client:
        assert client.address == address


def test_each_unusable_file_is_named(tmp_path, authority):
    good = files(authority.issue(tmp_path / "good"), authority)
    old = files(authority.issue(tmp_path / "old", days=-1), authority)
    nameless = files(authority.issue(tmp_path / "nameless", names=False), authority)
    other = files(authority.issue(tmp_path / "other"), authority)
    text = tmp_path / "text.pem"
    text.write_text("no certificate")
    open_key = authority.issue(tmp_path / "open") / "key.pem"
    open_key.chmod(0o644)
    for wrong, told in (
        ({**good, "tls_cert": str(tmp_path / "none.pem")}, "TURNWRIGHT_TLS_CERT: .*none.pem cannot be read"),
        ({**good, "tls_ca": str(text)}, "TURNWRIGHT_TLS_CA: .*text.pem holds no certificate"),
        ({**good, "tls_key": str(text)}, "TURNWRIGHT_TLS_KEY: .*"),
        ({**good, "tls_key": other["tls_key"]}, "is not the key of the certificate"),
        ({**good, "tls_key": str(open_key)}, "chmod o-rwx"),
        ({**good, "tls_key": ""}, "go together"),
        (old, "expired on"),
        (nameless, "no subject alternative names"),
        ({"tls_mutual": True}, "TURNWRIGHT_TLS_MUTUAL needs"),
    ):
        with pytest.raises(SettingsError, match=told):
            StoreSettings(home=tmp_path, token=SECRET, **wrong)
    assert StoreSettings(home=tmp_path, token=SECRET, **good).tls.is_on
