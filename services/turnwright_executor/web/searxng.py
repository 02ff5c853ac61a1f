"""The client of a SearXNG instance. Its answers are untrusted text, and read within limits.

Its URL comes from the operator, so it may be anywhere, even on this host; redirects are not followed. Source: rows
RU179, RU309.
"""

from __future__ import annotations

import asyncio
import zlib
from base64 import b64encode
from collections.abc import Iterable, Iterator
from http import HTTPStatus
from typing import Final

import httpx

from turnwright_core.json_text import parse_json
from turnwright_core.limits import TARGET_CHARS_MAX
from turnwright_executor.domain.pages import PageAddressError, page_address
from turnwright_executor.tools.ports import WebError, WebResult
from turnwright_executor.web.fetch import USER_AGENT, network_error, read_body
from turnwright_kit.tls import tls_context

ANSWER_BYTES_MAX: Final = 4 * 1024 * 1024
"""Longest answer of the engine that is read, in bytes."""
TITLE_CHARS_MAX: Final = 120
SNIPPET_CHARS_MAX: Final = 240

_FORBIDDEN: Final = (
    "The search engine refuses to answer in JSON. "
    "(An operator lists `json` under `search: formats:` in its settings.yml.)"
)


class SearxNg:
    """Queries one instance. Its URL may contain a user and a password; they are sent to nobody else."""

    def __init__(self, base_url: str, timeout_s: float) -> None:
        self._url = httpx.URL(base_url.rstrip("/") + "/search")
        self._timeout = httpx.Timeout(timeout_s).as_dict()
        self._tls = tls_context()

    async def search(self, query: str, results_max: int) -> list[WebResult]:
        answer = await self._answer(query)
        return await asyncio.to_thread(lambda: list(hits_in(answer, results_max)))

    async def _answer(self, query: str) -> bytes:
        """The body of its answer. Raises WebError."""
        request = self._request(query)
        try:
            async with httpx.AsyncHTTPTransport(verify=self._tls, trust_env=False) as transport:
                response = await transport.handle_async_request(request)
                response.request = request
                try:
                    return await _body(response)
                finally:
                    await response.aclose()
        except (httpx.TransportError, httpx.StreamError, httpx.InvalidURL, zlib.error, EOFError) as error:
            raise network_error(f"The search engine at {self._url.host}", error) from None

    def _request(self, query: str) -> httpx.Request:
        headers = {"user-agent": USER_AGENT, "accept": "application/json", "accept-encoding": "gzip, deflate"}
        if self._url.userinfo:
            user = f"{self._url.username}:{self._url.password}"
            headers["authorization"] = f"Basic {b64encode(user.encode()).decode()}"
        url = self._url.copy_with(params={"q": query, "format": "json"}, username=None, password=None)
        return httpx.Request("GET", url, headers=headers, extensions={"timeout": self._timeout})


async def _body(response: httpx.Response) -> bytes:
    if response.status_code == HTTPStatus.FORBIDDEN:
        raise WebError("bad_gateway:502", _FORBIDDEN)
    if response.status_code != HTTPStatus.OK:
        raise WebError("bad_gateway:502", f"The search engine answered HTTP {response.status_code}. Try it later.")
    data, is_cut = await read_body(response, ANSWER_BYTES_MAX)
    if is_cut:
        raise WebError("bad_gateway:502", f"The search engine answered more than {ANSWER_BYTES_MAX} bytes.")
    return data


def hits_in(answer: bytes, results_max: int) -> Iterator[WebResult]:
    """The results in an answer, each URL once; invalid ones are left out. Raises WebError."""
    try:
        value = parse_json(answer.decode("utf-8-sig"))
    except (ValueError, RecursionError):
        raise WebError("bad_gateway:502", "The search engine answered something other than JSON.") from None
    results = value.get("results") if isinstance(value, dict) else None
    if not isinstance(results, list):
        raise WebError("bad_gateway:502", "The search engine's answer holds no results.")
    seen: set[str] = set()
    for hit in _readable(results):
        if len(seen) == results_max:
            return
        if hit.address not in seen:
            seen.add(hit.address)
            yield hit


def _readable(results: Iterable[object]) -> Iterator[WebResult]:
    for result in results:
        if not isinstance(result, dict) or not isinstance(result.get("url"), str):
            continue
        try:
            address = page_address(result["url"])
        except PageAddressError:
            continue
        # A command could not name a longer one.
        if len(address) <= TARGET_CHARS_MAX and "*" not in address:
            title, snippet = (
                _line(result.get("title"), TITLE_CHARS_MAX),
                _line(result.get("content"), SNIPPET_CHARS_MAX),
            )
            yield WebResult(address, title or address, snippet)


def _line(value: object, chars_max: int) -> str:
    if not isinstance(value, str):
        return ""
    printable = "".join(char if char.isprintable() else " " for char in value[: 10 * chars_max])
    line = " ".join(printable.split())
    return line if len(line) <= chars_max else f"{line[: chars_max - 1]}…"
