"""search: queries a search engine, lists the results, and fetches the first pages.

It has no outside effects, so an interrupted search is repeated. Pages that cannot be fetched are only listed: they were
not what was asked for. Source: rows RU119, RU123, RU179, RU292, RU309; decision C8.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from turnwright_values.store import EntryWrite

from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.tools.attributes import integer_of
from turnwright_executor.tools.contract import Context
from turnwright_executor.tools.immediate import ImmediateTool
from turnwright_executor.tools.listing import plural
from turnwright_executor.tools.pages import page_write
from turnwright_executor.tools.parameters import ToolParameter
from turnwright_executor.tools.ports import Page, Web, WebError, WebResult
from turnwright_grammar.reply import Command

RESULTS_DEFAULT: Final = 8
RESULTS_MAX: Final = 20
"""Results of one search that are listed, at most."""


class Search(ImmediateTool):
    """Lists results in its record; fetched pages become entries."""

    name = "search"
    parameters = (
        ToolParameter("path", "The words to look for.", required=True),
        ToolParameter("results", "How many results to list, 1 to 20.", "integer"),
    )

    def __init__(self, settings: ExecutorSettings, web: Web) -> None:
        self._settings = settings
        self._web = web

    async def prepare(self, command: Command, context: Context) -> Done:
        query = command.attributes.get("path", "").strip()
        if not query:
            return failed("invalid:400", "<search> needs words to look for: <search>sqlite busy timeout</search>.")
        try:
            wanted = integer_of(command, "results")
            hits = await self._web.search(query, max(1, min(wanted or RESULTS_DEFAULT, RESULTS_MAX)))
        except WebError as error:
            return failed(error.outcome, str(error))
        if not hits:
            return Done(f"Nothing was found for {query!r}. Try fewer or other words.", attributes={"results": 0})
        kept = {entry.path for entry in await context.entries.get([hit.address for hit in hits])}
        first = [hit.address for hit in hits[: self._settings.web_prefetch_max] if hit.address not in kept]
        writes = await self._opened(first) if first else ()
        body = _listed(hits, kept.union(write.path for write in writes))
        return Done(body, attributes={"results": len(hits), "opened": len(writes)}, writes=writes)

    async def _opened(self, addresses: Sequence[str]) -> tuple[EntryWrite, ...]:
        """The writes that store these pages; none for those that are not fetched in time."""
        tasks = {address: asyncio.create_task(self._page(address)) for address in addresses}
        try:
            await asyncio.wait(tasks.values(), timeout=self._settings.web_prefetch_timeout_s)
        finally:
            for task in tasks.values():
                task.cancel()
            await asyncio.gather(*tasks.values(), return_exceptions=True)
        pages = {address: task.result() for address, task in tasks.items() if not task.cancelled()}
        return tuple(page_write(address, page) for address, page in pages.items() if page)

    async def _page(self, address: str) -> Page | None:
        try:
            return await self._web.page(address)
        except WebError:
            return None


def _listed(hits: Sequence[WebResult], opened: set[str]) -> str:
    """The results, numbered; fetched ones are marked, so that they are not fetched again."""
    lines = [f"{plural(len(hits), 'result')}. <get> opens a page; those marked + are here already."]
    for number, hit in enumerate(hits, 1):
        mark = "+ " if hit.address in opened else ""
        lines.append(f"{number}. {mark}{hit.title}\n   {hit.address}")
        if hit.snippet:
            lines.append(f"   {hit.snippet}")
    return "\n".join(lines)
