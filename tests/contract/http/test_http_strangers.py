"""What a client can make the port hold: bodies, heads, connections and answers that nobody reads are bounded."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import socket
import ssl
import struct

import httpx
import pytest
from turnwright_values.types import Grant, GrantRole

from certificates import Authority
from contract.http.doors import ANN, EXECUTOR, WAIT_S, bearer, open_door, reason_of
from contract.test_callers_that_never_read import GET, LIST, PROJECT, WATCH, Pages, request_to, token_of
from services import SECRET, token_for
from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import MESSAGE_BYTES_MAX, STOCK_MESSAGE_BYTES_MAX
from turnwright_executor.config import ExecutorSettings
from turnwright_kit.http import listener
from turnwright_kit.identity.policy import EVERYBODY, Policy, PolicySnapshot
from turnwright_kit.server import RunningServer
from turnwright_kit.service import Service
from turnwright_kit.settings import HttpBounds, HttpPort, Settings, SettingsError

pytestmark = pytest.mark.asyncio

AS_SERVED = HttpBounds()
JSON = {"content-type": "application/json"}


def head(path: str, *headers: str) -> bytes:
    kind = () if any(one.startswith("content-type") for one in headers) else ("content-type: application/json",)
    lines = (f"POST {path} HTTP/1.1", "host: localhost", *kind, *headers)
    return "\r\n".join((*lines, "", "")).encode()


async def answer(reader: asyncio.StreamReader) -> bytes:
    """All that comes until the other end closes."""
    return await asyncio.wait_for(reader.read(), WAIT_S)


async def test_a_stranger_is_refused_before_a_byte_of_the_body_is_sent(tmp_path):
    async with open_door(tmp_path) as door:
        for path in (f"/{EXECUTOR}/Act", "/nowhere"):
            reader, writer = await door.raw(head(path, "content-length: 1000000"))
            data = await answer(reader)
            assert data.startswith((b"HTTP/1.1 401 ", b"HTTP/1.1 404 "))
            assert b"\r\nconnection: close\r\n" in data
            writer.close()


TOO_LONG = {
    "chunks": (
        {"content-type": "application/proto", "transfer-encoding": "chunked"},
        lambda: bytes(MESSAGE_BYTES_MAX + 1),
    ),
    "json": (JSON, lambda: b'{"task": {"prompt": "' + b"a" * STOCK_MESSAGE_BYTES_MAX + b'"}}'),
    "bomb": (JSON | {"content-encoding": "gzip"}, lambda: gzip.compress(bytes(100 * MESSAGE_BYTES_MAX), 1)),
    "json-packed": (
        JSON | {"content-encoding": "gzip"},
        lambda: gzip.compress(b" " * 2 * STOCK_MESSAGE_BYTES_MAX + b"{}"),
    ),
}
"""Headers, and what makes the body: seconds, which whoever only collects tests need not wait for."""


@pytest.mark.parametrize("kind", TOO_LONG)
async def test_a_request_that_is_too_long_is_refused(tmp_path, kind):
    headers, body = bearer(ANN) | TOO_LONG[kind][0], TOO_LONG[kind][1]()
    async with open_door(tmp_path) as door:

        async def chunks():
            for at in range(0, len(body), 1 << 20):
                yield body[at : at + (1 << 20)]

        content = chunks() if "transfer-encoding" in headers else body
        found = await door.http.post(f"/{EXECUTOR}/Act", content=content, headers=headers)
        assert (found.status_code, reason_of(found.json())) == (429, "MESSAGE_TOO_LARGE")
        assert (await door.call("Discover", {}, ANN)).is_success


async def test_a_request_that_says_that_it_is_too_long_is_refused_before_it_comes(tmp_path):
    async with open_door(tmp_path) as door:
        sent = (f"authorization: Bearer {ANN}", f"content-length: {MESSAGE_BYTES_MAX + 1}")
        reader, writer = await door.raw(head(f"/{EXECUTOR}/Act", *sent))
        data = await answer(reader)
        assert data.startswith(b"HTTP/1.1 429 ")
        assert b"MESSAGE_TOO_LARGE" in data
        writer.close()


async def test_a_head_that_is_too_long_is_refused(tmp_path):
    async with open_door(tmp_path) as door:
        reader, writer = await door.raw(b"GET /" + b"a" * listener.HEAD_BYTES_MAX + b" HTTP/1.1\r\nx: ")
        with contextlib.suppress(ConnectionResetError):
            assert (await answer(reader)).startswith(b"HTTP/1.1 400 ")
        writer.close()


@pytest.mark.parametrize(
    "framing",
    [
        ("content-length: 2", "transfer-encoding: chunked"),
        ("content-length: 2", "content-length: 3"),
        ("content-length: -1",),
        ("transfer-encoding: gzip, chunked",),
        ("transfer-encoding : chunked",),
    ],
)
async def test_a_body_whose_end_two_readers_could_see_elsewhere_is_no_request(tmp_path, framing):
    async with open_door(tmp_path) as door:
        sent = head(f"/{EXECUTOR}/Discover", f"authorization: Bearer {ANN}", *framing)
        reader, writer = await door.raw(
            sent + b"2\r\n{}\r\n0\r\n\r\nGET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
        )
        writer.write_eof()
        data = await answer(reader)
        # With both, the standard lets the chunks count and ends the connection.
        assert data.count(b"HTTP/1.1 ") == 1
        assert b'"openapi"' not in data
        writer.close()


class CountedPages(Pages):
    """Counts the pages that were made: each asks for its size once."""

    made = 0

    @property
    def size(self) -> int:
        self.made += 1
        return self._size

    @size.setter
    def size(self, size: int) -> None:
        self._size = size


@contextlib.asynccontextmanager
async def pages(tmp_path, bounds=AS_SERVED, **settings):
    """A server of every rpc, each with large answers, and the port of its HTTP."""
    made, policy = CountedPages(), Policy(lambda: 0)
    everybody = [Grant(PROJECT, EVERYBODY, GrantRole.OWNER), Grant("", EVERYBODY, GrantRole.OPERATOR)]
    policy.replace(PolicySnapshot(1, everybody))
    service = Service(
        "store", "turnwright.store.v1.StoreService", made.register, settings=Settings(home=tmp_path, **settings),
        policy=policy, http=HttpPort("127.0.0.1:0", bounds=bounds),
    )  # fmt: skip
    server = RunningServer(service, "127.0.0.1:0", SECRET, 0.1)
    await server.start()
    made.server = server
    try:
        yield made, int(server.http.address.rpartition(":")[2])
    finally:
        await server.stop()


async def never_reading(
    port: int, path: str, body: bytes, *headers: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A call of mallory, whose answer waits in the connection: this end takes in a few bytes at a time."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
    token = dict(token_of("mallory"))["authorization"]
    writer.write(head(path, f"authorization: {token}", f"content-length: {len(body)}", *headers) + body)
    return reader, writer


async def test_a_stream_waits_for_a_client_that_does_not_read(tmp_path):
    async with pages(tmp_path) as (served, port):
        served.size = 256 * 1024
        body = request_to(WATCH)
        framed = struct.pack(">BI", 0, len(body)) + body
        reader, writer = await never_reading(port, WATCH, framed, "content-type: application/connect+proto")
        assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")
        await asyncio.sleep(2)
        # What the kernel takes for a connection, and one more.
        assert 0 < served.made < 64
        writer.close()


async def test_an_answer_that_nobody_reads_counts_until_it_is_read(tmp_path):
    async with pages(tmp_path, caller_unsent_bytes_max=10 * STOCK_MESSAGE_BYTES_MAX) as (served, port):
        served.size = 4 * STOCK_MESSAGE_BYTES_MAX
        found = []
        held = []
        for _ in range(5):
            more = ("content-type: application/proto", f"turnwright-receive-bytes: {MESSAGE_BYTES_MAX}")
            reader, writer = await never_reading(port, GET, request_to(GET), *more)
            found.append((await asyncio.wait_for(reader.readline(), WAIT_S)).split()[1])
            held.append(writer)
        assert found == [b"200", b"200", b"429", b"429", b"429"]
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            served.size = 10
            headers = {"content-type": "application/proto"} | bearer(token_for("bob", audience="store"))
            assert (await http.post(LIST, content=request_to(LIST), headers=headers)).is_success
        for writer in held:
            writer.transport.abort()


async def connected(port: int, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection on which these bytes were sent."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(data)
    return reader, writer


@pytest.mark.parametrize("path", [GET, WATCH])
async def test_a_body_that_does_not_come_is_given_up(tmp_path, path):
    async with pages(tmp_path, HttpBounds(body_s=0.3)) as (_, port):
        token = dict(token_of("mallory"))["authorization"]
        sent = (f"authorization: {token}", "accept: text/event-stream", "content-length: 100000")
        reader, writer = await connected(port, head(path, *sent) + b'{"project": ')
        data = await answer(reader)
        assert data.startswith(b"HTTP/1.1 400 ")
        assert b"LIMIT_EXCEEDED" in data
        writer.close()


@pytest.mark.parametrize("before", ["", "GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"], ids=["first", "second"])
@pytest.mark.parametrize("sent", [b"POST / HTTP/1.1\r\nhost: ", b"P", b""])
async def test_a_head_that_does_not_come_is_given_up(tmp_path, before, sent):
    async with pages(tmp_path, HttpBounds(head_s=0.3, idle_s=1)) as (_, port):
        reader, writer = await connected(port, before.encode())
        if before:
            await asyncio.wait_for(reader.readuntil(b'lists them."}'), WAIT_S)
        writer.write(sent)
        with contextlib.suppress(ConnectionResetError):
            assert await answer(reader) == b""
        writer.close()


async def test_connections_are_bounded(tmp_path):
    async with pages(tmp_path, HttpBounds(connections_max=3, stalled_s=10 * WAIT_S)) as (_, port):
        body = request_to(WATCH)
        framed = struct.pack(">BI", 0, len(body)) + body
        held = [await never_reading(port, WATCH, framed, "content-type: application/connect+proto") for _ in range(3)]
        for reader, _ in held:
            assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")
        reader, writer = await connected(port, b"")
        with contextlib.suppress(ConnectionResetError):
            assert await answer(reader) == b""
        for _, one in (*held, (reader, writer)):
            one.close()
        ended = b""
        async with asyncio.timeout(WAIT_S):
            # Who left makes room, once it is known.
            while not ended.startswith(b"HTTP/1.1 404 "):
                reader, writer = await connected(
                    port, b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n"
                )
                with contextlib.suppress(ConnectionError):
                    ended = await answer(reader)
                writer.close()


@pytest.mark.parametrize("begun", ["GET / HTTP/1.1\r\nhost: localhost\r\n\r\n", "GET "], ids=["idle", "head"])
async def test_who_asks_for_nothing_makes_room_for_who_does(tmp_path, begun):
    asked = b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n"
    bounds = HttpBounds(connections_max=2, head_s=10 * WAIT_S, idle_s=10 * WAIT_S)
    async with pages(tmp_path, bounds) as (_, port):
        held = []
        for sent in (begun.encode(), asked):
            reader, writer = await connected(port, sent)
            if sent == asked:
                await asyncio.wait_for(reader.readuntil(b'lists them."}'), WAIT_S)
            held.append((reader, writer))
        newcomer = await connected(port, asked)
        await asyncio.wait_for(newcomer[0].readuntil(b'lists them."}'), WAIT_S)
        with contextlib.suppress(ConnectionResetError):
            assert await answer(held[0][0]) == b""
        # Who was idle for less time is still there.
        held[1][1].write(asked)
        await asyncio.wait_for(held[1][0].readuntil(b'lists them."}'), WAIT_S)
        for _, one in (*held, newcomer):
            one.close()


async def test_strangers_who_do_not_read_what_everybody_may_keep_no_caller_out(tmp_path):
    asked = b"GET /openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n"
    async with pages(tmp_path, HttpBounds(connections_max=3, stalled_s=10 * WAIT_S)) as (served, port):
        served.size = 10
        body = request_to(WATCH)
        framed = struct.pack(">BI", 0, len(body)) + body
        watching = await never_reading(port, WATCH, framed, "content-type: application/connect+proto")
        assert (await asyncio.wait_for(watching[0].readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")
        strangers = []
        for _ in range(6):
            reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1024)
            # So many that they fit into no buffer: the connection never gets to wait for a request.
            writer.write(asked * 40)
            assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")
            strangers.append(writer)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=WAIT_S) as http:
            headers = {"content-type": "application/proto"} | bearer(token_for("bob", audience="store"))
            assert (await http.post(LIST, content=request_to(LIST), headers=headers)).is_success
        # A caller's stream is no stranger's, however long it has been there.
        assert await asyncio.wait_for(watching[0].read(1), WAIT_S)
        assert served.server._calls._tasks
        for writer in (*strangers, watching[1]):
            writer.transport.abort()


async def test_a_client_that_takes_nothing_loses_its_connection(tmp_path):
    async with pages(tmp_path, HttpBounds(stalled_s=0.5)) as (served, port):
        body = request_to(WATCH)
        framed = struct.pack(">BI", 0, len(body)) + body
        reader, writer = await never_reading(port, WATCH, framed, "content-type: application/connect+proto")
        assert (await asyncio.wait_for(reader.readline(), WAIT_S)).startswith(b"HTTP/1.1 200 ")
        async with asyncio.timeout(WAIT_S):
            while served.server._calls._tasks:  # noqa: ASYNC110 - nobody is told
                await asyncio.sleep(0.01)
        with contextlib.suppress(ConnectionResetError, asyncio.IncompleteReadError):
            # It ends, though the stream has no end.
            await answer(reader)
        writer.close()


async def test_pages_of_named_origins_may_call(tmp_path):
    origin = "https://agents.example.com"
    async with open_door(tmp_path, http_origins=f"{origin},http://localhost:3000") as door:
        asks = {"origin": origin, "access-control-request-method": "POST"}
        preflight = await door.http.options(f"/{EXECUTOR}/Act", headers=asks)
        assert preflight.status_code == 204
        assert "authorization" in preflight.headers["access-control-allow-headers"]
        found = await door.call("Discover", {}, ANN, origin=origin)
        assert found.is_success
        for one in (preflight, found):
            assert one.headers["access-control-allow-origin"] == origin
            assert "access-control-allow-credentials" not in one.headers
        same = await door.call("Discover", {}, ANN, origin=door.url)
        assert same.is_success
        assert "access-control-allow-origin" not in same.headers
        assert (await door.call("Discover", {}, ANN, origin=f"{origin}.evil.example")).status_code == 403


@pytest.mark.parametrize("address", ["127.0.0.1:0", "0.0.0.0:0"])
async def test_only_the_names_of_a_port_may_be_called_wherever_it_listens(tmp_path, address):
    settings = {"http_listen": address, "http_hosts": "Agents.example.com,[::1]", "insecure": True}
    async with open_door(tmp_path, **settings) as door:
        for host in ("agents.example.com", "AGENTS.example.com:1234", "[::1]:7444"):
            assert (await door.call("Discover", {}, ANN, host=host)).is_success
        for host in ("localhost", "evil.example", "agents.example.com.evil.example", "[", ""):
            found = await door.call("Discover", {}, ANN, host=host, origin=f"http://{host}")
            assert found.status_code == 403
            assert "TURNWRIGHT_HTTP_HOSTS" in found.json()["message"]


@pytest.mark.parametrize("hosts", ["https://agents.example.com", "agents.example.com:443", "a/b", "a@b", "[", "::1"])
async def test_what_is_no_name_of_a_port_is_no_setting(hosts):
    with pytest.raises(SettingsError, match="without a port"):
        ExecutorSettings(http_hosts=hosts)


async def test_other_hosts_need_tls(tmp_path):
    with pytest.raises(TurnwrightError, match="plaintext"):
        async with open_door(tmp_path, http_listen="0.0.0.0:0"):
            pass


async def test_tls_takes_the_certificates_of_grpc_and_newer_ones_when_they_come(tmp_path):
    authority = Authority(tmp_path / "ca.pem")
    folder = authority.issue(tmp_path / "tls")
    files = {"tls_cert": str(folder / "cert.pem"), "tls_key": str(folder / "key.pem")}
    async with open_door(tmp_path, **files) as door:
        assert door.url.startswith("https://127.0.0.1:")
        trusting = ssl.create_default_context(cafile=str(authority.file))
        async with httpx.AsyncClient(base_url=door.url, verify=trusting, trust_env=False) as http:
            found = await http.post(f"/{EXECUTOR}/Discover", json={}, headers=bearer(ANN))
            assert found.is_success

        def number() -> int:
            with (
                socket.create_connection(("127.0.0.1", door.port), timeout=WAIT_S) as plain,
                trusting.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
            ):
                return secure.getpeercert()["serialNumber"]

        before = await asyncio.to_thread(number)
        authority.issue(tmp_path / "tls")
        async with asyncio.timeout(WAIT_S):
            while await asyncio.to_thread(number) == before:  # noqa: ASYNC110 - files tell nobody
                await asyncio.sleep(0.1)


async def test_where_grpc_asks_for_a_certificate_http_does_too_and_forgets_an_authority_that_was_taken_away(tmp_path):
    authority, other = Authority(tmp_path / "ca.pem"), Authority(tmp_path / "other.pem")
    folder, client = authority.issue(tmp_path / "tls"), other.issue(tmp_path / "client")
    trusted = tmp_path / "trusted.pem"
    trusted.write_bytes(authority.file.read_bytes() + other.file.read_bytes())
    files = {"tls_cert": folder / "cert.pem", "tls_key": folder / "key.pem", "tls_ca": trusted, "tls_mutual": True}
    settings = Settings(
        home=tmp_path, **{key: str(value) if key != "tls_mutual" else value for key, value in files.items()}
    )

    def knock(port: int, *, presents: bool) -> bool:
        """Whether a request is answered."""
        context = ssl.create_default_context(cafile=str(authority.file))
        if presents:
            context.load_cert_chain(client / "cert.pem", client / "key.pem")
        try:
            with (
                socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as plain,
                context.wrap_socket(plain, server_hostname="127.0.0.1") as secure,
            ):
                secure.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\n\r\n")
                return secure.recv(16).startswith(b"HTTP/1.1 404")
        except (ssl.SSLError, ConnectionError):
            return False

    service = Service(
        "store", "turnwright.store.v1.StoreService", Pages().register, settings=settings, http=HttpPort("127.0.0.1:0")
    )
    server = RunningServer(service, "127.0.0.1:0", SECRET, 0.1)
    await server.start()
    try:
        port = int(server.http.address.rpartition(":")[2])
        assert await asyncio.to_thread(knock, port, presents=True)
        assert not await asyncio.to_thread(knock, port, presents=False)
        trusted.write_bytes(authority.file.read_bytes())
        async with asyncio.timeout(WAIT_S):
            while await asyncio.to_thread(knock, port, presents=True):  # noqa: ASYNC110 - files tell nobody
                await asyncio.sleep(0.1)
    finally:
        await server.stop()


async def test_no_header_stands_for_a_certificate(tmp_path):
    uri = "spiffe://turnwright/ns/a/sa/ann"
    proxy = '[[proxy]]\naddress = "127.0.0.6"\n'
    (tmp_path / "identity.toml").write_text(f'{proxy}[[peer]]\nuri = "{uri}"\nprincipal = "ann"\n')
    async with pages(tmp_path) as (served, port):
        served.size = 10
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False) as http:
            for headers in ({}, {"x-forwarded-client-cert": f"URI={uri}"}):
                found = await http.post(LIST, json={"project": PROJECT}, headers=headers)
                assert (found.status_code, reason_of(found.json())) == (401, "UNAUTHENTICATED")
            token = bearer(token_for("bob", audience="store"))
            assert (await http.post(LIST, json={"project": PROJECT}, headers=token)).is_success
