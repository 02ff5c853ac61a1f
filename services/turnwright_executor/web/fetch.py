"""HTTP fetches of URLs that come from a model (SSRF protection): which hosts, how many bytes, how many redirects.

Theory of operation. A host is resolved once, and each of its addresses must be allowed. The connection goes to the
checked address, so a name that changes its meaning in between (DNS rebinding) has no effect; TLS still verifies the
name. Each redirect passes the same checks. A connection serves one request, so two names on one address never share it.
Nothing is kept between requests: no cookies, no credentials, and no proxy from the environment, which would resolve the
name again. A compressed body is unpacked piece by piece up to the limit, so a decompression bomb costs no more than the
limit.
Source: architecture 10; rows RU179, RU309.
"""

from __future__ import annotations

import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing
from http import HTTPStatus
from typing import Final
from urllib.parse import urljoin

import httpx
from msgspec import Struct

from turnwright_core import __version__
from turnwright_executor.domain.networks import Network, may_be_reached
from turnwright_executor.domain.pages import PageAddressError, page_address
from turnwright_executor.tools.ports import WebError
from turnwright_kit.decompression import GZIP, EncodingError, decompress
from turnwright_kit.threads import DaemonThreadPool
from turnwright_kit.tls import tls_context

USER_AGENT: Final = f"turnwright/{__version__}"
ADDRESSES_MAX: Final = 4
"""Maximum number of addresses of one host that are tried."""
NAMES_MAX: Final = 8
"""Names that one fetcher looks up at the same time."""
ENCODINGS: Final = GZIP | {"deflate"}
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})
_GONE: Final = frozenset({404, 410})
_HEADERS: Final = {
    "user-agent": USER_AGENT,
    "accept": "text/html,text/markdown,text/plain;q=0.9,*/*;q=0.5",
    "accept-encoding": "gzip, deflate",
}

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""The IP addresses of a host. Raises OSError."""


class FetchLimits(Struct, frozen=True):
    """Limits of one fetch. `timeout_s`: for connecting, and the longest pause between two pieces."""

    timeout_s: float
    redirects_max: int
    networks: tuple[Network, ...] = ()
    """Allowed networks besides the public ones."""


class FetchResult(Struct, frozen=True):
    """A response with the requested part of its body. `address`: after redirects."""

    address: str
    content_type: str
    data: bytes
    is_cut: bool


def system_resolver() -> Resolve:
    """The system's resolver in threads of its own: a slow one keeps them for longer than anybody waits."""
    threads = DaemonThreadPool("names", NAMES_MAX)

    async def resolve(host: str, port: int) -> Sequence[str]:
        found = await threads.run(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
        return tuple(dict.fromkeys(str(address[4][0]) for address in found))

    return resolve


class Fetcher:
    """Fetches pages, with one TLS context for all of them."""

    def __init__(self, limits: FetchLimits, resolve: Resolve | None = None) -> None:
        self._limits = limits
        self._resolve = resolve or system_resolver()
        self._tls = tls_context()

    async def fetch(self, address: str, bytes_max: int) -> FetchResult:
        """Fetch at most this many bytes of a URL. Raises WebError."""
        for _ in range(self._limits.redirects_max + 1):
            async with AsyncExitStack() as closing:
                response = await self._opened(address, closing)
                if response.status_code not in _REDIRECTS or "location" not in response.headers:
                    return await _read(response, address, bytes_max)
                address = _redirected(address, response.headers["location"])
        raise WebError("bad_gateway:502", f"It was redirected more than {self._limits.redirects_max} times.")

    async def post(self, address: str, content: str, headers: Mapping[str, str]) -> int:
        """The status with which the server of a webhook answers; what it answers is not read. Raises WebError."""
        async with AsyncExitStack() as closing:
            headers = {**headers, "user-agent": USER_AGENT, "content-type": "application/json"}
            return (await self._opened(address, closing, headers, content.encode())).status_code

    async def _opened(
        self, address: str, closing: AsyncExitStack, headers: Mapping[str, str] = _HEADERS, content: bytes | None = None
    ) -> httpx.Response:
        """The response to a request, its body unread, from the first address of the host that accepts a connection."""
        url = _url(address)
        problem: httpx.TransportError | None = None
        numbers = await self._numbers(url)
        if content is not None and url.scheme == "http" and any(may_be_reached(number, ()) for number in numbers):
            raise WebError("permission:403", f"{_host(url)} is on the public internet: a webhook there needs https.")
        for number in numbers:
            transport = httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False, http2=False)
            closing.push_async_callback(transport.aclose)
            try:
                return await _answer(transport, self._request(url, number, headers, content), closing)
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                problem = error
            except (httpx.TransportError, httpx.InvalidURL) as error:
                raise network_error(_host(url), error) from None
        raise network_error(_host(url), problem) from None

    def _request(self, url: httpx.URL, number: str, headers: Mapping[str, str], content: bytes | None) -> httpx.Request:
        """A request that connects to an IP address and uses the host name for TLS and the Host header."""
        timeout = httpx.Timeout(self._limits.timeout_s).as_dict()
        method = "GET" if content is None else "POST"
        request = httpx.Request(method, url, headers=headers, content=content, extensions={"timeout": timeout})
        request.extensions["sni_hostname"] = _host(url)
        request.url = url.copy_with(host=number)
        return request

    async def _numbers(self, url: httpx.URL) -> Sequence[str]:
        """The IP addresses of a host. Raises WebError if one of them is not allowed."""
        host = _host(url)
        try:
            numbers = await self._resolve(host, url.port or (443 if url.scheme == "https" else 80))
        except (OSError, UnicodeError):
            raise WebError("unreachable:502", f"The name of {host} cannot be resolved; check its spelling.") from None
        if not numbers or not all(may_be_reached(number, self._limits.networks) for number in numbers):
            raise WebError(
                "permission:403",
                f"{host} is not on the public internet, and only what is may be reached. "
                "(An operator names further networks in TURNWRIGHT_WEB_NETWORKS.)",
            )
        return numbers[:ADDRESSES_MAX]


def _url(address: str) -> httpx.URL:
    try:
        return httpx.URL(address)
    except httpx.InvalidURL:
        raise WebError("invalid:400", "Its host name cannot be resolved; check its spelling.") from None


def _host(url: httpx.URL) -> str:
    """The host in the form in which it is sent; not every IDNA name can be decoded."""
    return url.raw_host.decode("ascii")


async def _answer(
    transport: httpx.AsyncHTTPTransport, request: httpx.Request, closing: AsyncExitStack
) -> httpx.Response:
    response = await transport.handle_async_request(request)
    response.request = request
    closing.push_async_callback(response.aclose)
    return response


def _redirected(address: str, location: str) -> str:
    """The target of a redirect. Raises WebError if it is not the URL of a page."""
    try:
        return page_address(urljoin(address, location))
    except (PageAddressError, ValueError) as error:
        raise WebError("permission:403", f"It was redirected to where commands may not go. {error}") from None


async def _read(response: httpx.Response, address: str, bytes_max: int) -> FetchResult:
    if response.status_code != HTTPStatus.OK:
        raise _refused(response.status_code)
    try:
        data, is_cut = await read_body(response, bytes_max)
    except (httpx.TransportError, httpx.StreamError, zlib.error, EOFError) as error:
        raise network_error(_host(httpx.URL(address)), error) from None
    return FetchResult(address, response.headers.get("content-type", ""), data, is_cut)


def _refused(status: int) -> WebError:
    if status in _GONE:
        return WebError("not_found:404", f"There is no such page (HTTP {status}). Look for its address with <search>.")
    return WebError("bad_gateway:502", f"The server answered HTTP {status} instead of a page.")


async def read_body(response: httpx.Response, bytes_max: int) -> tuple[bytes, bool]:
    """The decompressed body up to this many bytes, and whether there was more.

    Raises WebError for an encoding that was not requested, httpx.TransportError, zlib.error, EOFError.
    """
    kept = bytearray()
    encoding = response.headers.get("content-encoding", "")
    try:
        async with aclosing(decompress(response.aiter_raw(), encoding, ENCODINGS)) as pieces:
            async for piece in pieces:
                kept += piece
                if len(kept) > bytes_max:
                    return bytes(kept[:bytes_max]), True
    except EncodingError:
        message = f"The server packed its answer as {encoding[:40]!r}, which was not requested."
        raise WebError("unsupported:415", message) from None
    return bytes(kept), False


def network_error(host: str, error: Exception | None) -> WebError:
    """The error for a network failure; without an exception nothing accepted a connection."""
    if isinstance(error, httpx.TimeoutException):
        return WebError("timeout:504", f"{host} did not answer in time. Try another page, or try it later.")
    chain: BaseException | None = error
    while chain is not None:
        if isinstance(chain, ssl.SSLCertVerificationError):
            return WebError("unreachable:502", f"The certificate of {host} is not trusted ({chain.verify_message}).")
        chain = chain.__cause__ or chain.__context__
    if isinstance(error, httpx.ConnectError):
        return WebError("unreachable:502", f"{host} accepts no connection.")
    return WebError("bad_gateway:502", f"The answer of {host} broke off or cannot be read.")
