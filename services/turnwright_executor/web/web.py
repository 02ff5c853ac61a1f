"""Web access for tools: pages as text, downloads, and a search engine, within limits. Implements tools.ports.Web.

Nothing is imported before a command needs it, and then outside the event loop: loading HTTP and TLS takes a quarter of
a second. Source: rows RU119, RU123, RU179, RU309.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Final

from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.networks import networks_of
from turnwright_executor.tools.ports import Download, Page, WebError, WebResult

if TYPE_CHECKING:
    from turnwright_executor.web.fetch import Fetcher, FetchResult
    from turnwright_executor.web.searxng import SearxNg

POST_S: Final = 10.0
"""Seconds that the server of a webhook has to answer."""

FETCHES_MAX: Final = 16
"""Concurrent fetches over all runs; others wait within their deadline."""

UNCONFIGURED: Final = (
    "No search engine is configured here, so <search> finds nothing in this run: go on without it. "
    'A page whose address you know opens with <get path="https://..."/>. '
    "(An operator sets TURNWRIGHT_WEB_SEARXNG_URL to the address of a SearXNG instance.)"
)


class HttpWeb:
    """The web over HTTP."""

    def __init__(self, settings: ExecutorSettings) -> None:
        self._settings = settings
        self._places = asyncio.Semaphore(FETCHES_MAX)

    async def page(self, address: str) -> Page:
        async with self._bounded(address):
            fetcher = await asyncio.to_thread(lambda: self._fetcher)
            fetched = await fetcher.fetch(address, self._settings.web_page_bytes)
            return await _page_of(fetched, self._settings.web_text_bytes)

    async def download(self, address: str, bytes_max: int) -> Download:
        """Download a URL. Raises WebError."""
        from turnwright_executor.web.text import media_type_of  # noqa: PLC0415

        async with self._bounded(address):
            fetcher = await asyncio.to_thread(lambda: self._fetcher)
            fetched = await fetcher.fetch(address, bytes_max)
        if fetched.is_cut:
            raise WebError("too_large:413", f"{address} has more than {bytes_max} bytes.")
        return Download(fetched.address, media_type_of(fetched.content_type, fetched.data), fetched.data)

    async def search(self, query: str, results_max: int) -> list[WebResult]:
        """Search results. Raises WebError, also if no engine is configured."""
        if not self._settings.web_searxng_url:
            raise WebError("unavailable:503", UNCONFIGURED)
        async with self._bounded("The search engine"):
            engine = await asyncio.to_thread(lambda: self._engine)
            return await engine.search(query, results_max)

    async def post(self, address: str, content: str, headers: Mapping[str, str]) -> int:
        """The status with which the server of a webhook answers. Raises WebError."""
        fetcher = await asyncio.to_thread(lambda: self._poster)
        try:
            async with asyncio.timeout(POST_S):
                return await fetcher.post(address, content, headers)
        except TimeoutError:
            raise WebError("timeout:504", f"It did not answer within {POST_S:g} s.") from None

    @asynccontextmanager
    async def _bounded(self, what: str) -> AsyncIterator[None]:
        """A slot among the concurrent fetches, and a deadline for everything."""
        try:
            async with asyncio.timeout(self._settings.web_timeout_s), self._places:
                yield
        except TimeoutError:
            text = f"{what} did not answer within {self._settings.web_timeout_s:g} s. Try another one, or try it later."
            raise WebError("timeout:504", text) from None

    @cached_property
    def _fetcher(self) -> Fetcher:
        return self._new_fetcher()

    @cached_property
    def _poster(self) -> Fetcher:
        """Of webhooks: slow names of theirs keep no page waiting."""
        return self._new_fetcher()

    def _new_fetcher(self) -> Fetcher:
        from turnwright_executor.web.fetch import Fetcher, FetchLimits  # noqa: PLC0415

        limits = self._settings
        return Fetcher(FetchLimits(limits.web_timeout_s, limits.web_redirects_max, networks_of(limits.web_networks)))

    @cached_property
    def _engine(self) -> SearxNg:
        from turnwright_executor.web.searxng import SearxNg  # noqa: PLC0415

        return SearxNg(self._settings.web_searxng_url, self._settings.web_timeout_s)


async def _page_of(fetched: FetchResult, text_bytes: int) -> Page:
    """The text of a response. Raises WebError if it has none."""
    from turnwright_executor.web.markdown import markdown_of  # noqa: PLC0415
    from turnwright_executor.web.text import (  # noqa: PLC0415
        HTML_TYPES,
        decoded,
        is_readable,
        media_type_of,
        title_of,
    )

    media_type = media_type_of(fetched.content_type, fetched.data)
    if not is_readable(media_type):
        problem = f"It is {media_type[:80]}, which cannot be shown as text. Look for a page that says the same."
        raise WebError("unsupported:415", problem)
    text = await asyncio.to_thread(decoded, fetched.data, fetched.content_type, is_cut=fetched.is_cut)
    is_html = media_type in HTML_TYPES
    if is_html:
        # One more byte tells whether there is more.
        shown = await markdown_of(text, fetched.address, text_bytes + 1)
    else:
        shown = text[: text_bytes + 1].encode("utf-8", "replace")
    kept = shown[:text_bytes].decode("utf-8", "ignore")
    is_cut = fetched.is_cut or len(shown) > text_bytes
    return Page(fetched.address, title_of(text) if is_html else "", kept, media_type, is_cut)
