"""HTTP with httpx: one client and one TLS context for all calls; httpx's errors are translated.

Proxies, .netrc and certificates from the environment are not used unless the operator says so, and never for loopback:
a proxy meant for the shell would otherwise see every prompt. Source: architecture 10, 15; research/wire 2.4.
"""

from __future__ import annotations

import ipaddress
import re
import socket
import ssl
import zlib
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, asynccontextmanager, contextmanager
from typing import Final
from urllib.request import getproxies_environment, proxy_bypass

import httpx
from msgspec import Struct

from turnwright_kit.decompression import GZIP, EncodingError, decompress
from turnwright_kit.tls import tls_context
from turnwright_provider.domain.failures import Failure, FailureClass, VendorError, failed

LOOPBACK: Final = ("localhost", "127.0.0.1", "::1")
_NEAR: Final = (".internal", ".lan", ".local", ".localhost")
"""Ends of names that no public server has."""

_HUNG_UP: Final = re.compile("disconnected|closed connection")
"""Distinguishes a connection that ended early from a malformed answer: httpx raises RemoteProtocolError for both."""


class HttpLimits(Struct, frozen=True):
    """Limits in seconds and bytes. `silence_timeout_s`: the longest pause between two pieces of an answer.

    `check_timeout_s` is the timeout for a server's list of models, `event_bytes_max` the longest event of a stream.
    """

    silence_timeout_s: float = 300.0
    check_timeout_s: float = 5.0
    event_bytes_max: int = 8 * 1024 * 1024
    reply_bytes_max: int = 256 * 1024 * 1024
    connect_timeout_s: float = 10.0
    connections_max: int = 512


class HttpReply:
    """An answer whose body has not been read yet; httpx looks its headers up case-insensitively."""

    def __init__(self, response: httpx.Response, limits: HttpLimits) -> None:
        self._response = response
        self._limits = limits
        self.status = response.status_code
        self.headers: Mapping[str, str] = response.headers

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises VendorError if it breaks off, stalls or is too long."""
        size = 0
        with _our_errors(self._limits):
            encoding = self.headers.get("content-encoding", "")
            async with aclosing(decompress(self._response.aiter_raw(), encoding, GZIP)) as chunks:
                async for chunk in chunks:
                    size += len(chunk)
                    if size > self._limits.reply_bytes_max:
                        raise failed(FailureClass.PROTOCOL, f"the answer is over {self._limits.reply_bytes_max} bytes")
                    yield chunk


class HttpTransport:
    """Sends requests to one server. `from_environment`: use proxies from the environment, except for loopback."""

    def __init__(self, base_url: str, limits: HttpLimits, *, from_environment: bool) -> None:
        self._limits = limits
        url = httpx.URL(base_url)
        self._client = httpx.AsyncClient(
            verify=tls_context() if url.scheme == "https" else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT),
            trust_env=from_environment and url.host not in LOOPBACK,
            follow_redirects=False,
            timeout=httpx.Timeout(
                limits.silence_timeout_s, connect=limits.connect_timeout_s, pool=limits.connect_timeout_s
            ),
            limits=httpx.Limits(max_connections=limits.connections_max, max_keepalive_connections=20),
        )

    @asynccontextmanager
    async def open(
        self, method: str, url: str, headers: dict[str, str], body: bytes
    ) -> AsyncGenerator[HttpReply, None]:
        """The answer once its headers have arrived; leaving the block closes it. Raises VendorError."""
        prepared = self._client.build_request(method, url, headers=headers, content=body or None)
        with _our_errors(self._limits):
            response = await self._client.send(prepared, stream=True)
        try:
            yield HttpReply(response, self._limits)
        finally:
            await response.aclose()

    async def close(self) -> None:
        await self._client.aclose()


@contextmanager
def _our_errors(limits: HttpLimits) -> Iterator[None]:
    try:
        yield
    except (httpx.ConnectError, httpx.ConnectTimeout, httpx.UnsupportedProtocol, httpx.ProxyError) as error:
        why, may_pass = _why_unreachable(error)
        raise VendorError(Failure(FailureClass.UNREACHABLE, why, may_retry=may_pass)) from None
    except httpx.PoolTimeout:
        raise failed(FailureClass.SERVER, f"all {limits.connections_max} connections are in use") from None
    except httpx.TimeoutException:
        timeout_s = limits.silence_timeout_s
        raise VendorError(Failure(FailureClass.TIMEOUT, f"no bytes for {timeout_s:g} s", timeout_s=timeout_s)) from None
    except EncodingError as error:
        raise failed(FailureClass.PROTOCOL, str(error)) from None
    except zlib.error as error:
        raise failed(FailureClass.PROTOCOL, f"the body cannot be unpacked: {error}") from None
    except EOFError:
        raise failed(FailureClass.SERVER, "the connection broke: the packed body was cut") from None
    except httpx.TransportError as error:
        words = str(error) or type(error).__name__
        if isinstance(error, httpx.ProtocolError) and not _HUNG_UP.search(words):
            raise failed(FailureClass.PROTOCOL, f"the answer is not HTTP: {words}") from None
        raise failed(FailureClass.SERVER, f"the connection broke: {words}") from None


def _why_unreachable(error: BaseException) -> tuple[str, bool]:
    """The root cause in httpx's chain of errors, in words that say what to check, and whether it may pass."""
    chain = list(_chain(error))
    for kind, words, may_pass in (
        (ssl.SSLCertVerificationError, "its TLS certificate is not trusted", False),
        (ssl.SSLError, "the TLS handshake failed", False),
        (socket.gaierror, "its name cannot be resolved", True),
        (ConnectionRefusedError, "connection refused", True),
        (ConnectionError, "the connection broke", True),
    ):
        for link in chain:
            if isinstance(link, kind):
                detail = getattr(link, "verify_message", "") or getattr(link, "strerror", "") or str(link)
                return words if kind is ConnectionRefusedError else f"{words} ({detail})", may_pass
    if isinstance(error, httpx.ConnectTimeout):
        return "it did not accept a connection in time", False
    return str(error) or type(error).__name__, False


def ignored_proxy(base_url: str, *, from_environment: bool) -> str:
    """The environment variable with a proxy that is not used for a server outside of this host; empty: none."""
    url = httpx.URL(base_url)
    if from_environment or url.host in LOOPBACK or proxy_bypass(url.host):
        return ""
    proxies = getproxies_environment()
    return next((f"{name.upper()}_PROXY" for name in (url.scheme, "all") if proxies.get(name)), "")


def is_near(base_url: str) -> bool:
    """Whether the address is one of this host or of a private network, where those who ask may start the server."""
    host = httpx.URL(base_url).host
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host or host.endswith(_NEAR)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        if isinstance(error, BaseExceptionGroup):
            for inner in error.exceptions:
                yield from _chain(inner)
        error = error.__cause__ or error.__context__
