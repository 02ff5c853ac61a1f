"""Web pages as entries: which page a path names, and the write that stores what was fetched.

A page is fetched once for a run; afterwards commands read its entry. To fetch it again, remove the entry first. Source:
rows RU071, RU179.

Exfiltration protection: which URLs are fetched without asking.

A URL carries data to its host: a page or file may trick the model into putting what it has read into a path or a query.
So a URL is fetched without asking only if the model did not make it up: a person named it, a search found it, a fetched
page links to it, or a setting trusts its host. Any other URL becomes a proposal. Source: architecture 10.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Entry, Tier, Visibility

from turnwright_core.limits import SUMMARY_CHARS_MAX
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.effects import CallEffect
from turnwright_executor.domain.pages import PageAddressError, is_named, page_address
from turnwright_executor.tools.contract import Context, Proposed, refusal
from turnwright_executor.tools.paths import PathItem, find_item
from turnwright_executor.tools.ports import Page, Web, WebError

EMPTY = "(The page has no text.)"


async def page_item(path: str, context: Context, web: Web) -> PathItem:
    """The stored page, or the page as fetched now with the write that stores it. Raises RefusedError."""
    if item := await kept_page(path, context):
        return item
    address = checked_address(path)
    if context.no_web:
        raise refusal("permission:403", f"{address} is not here, and this loop works without the web.")
    try:
        page = await web.page(address)
    except WebError as error:
        raise refusal(error.outcome, f"{address} could not be opened. {error}") from None
    write = page_write(address, page)
    text = write.change.body if isinstance(write.change, SetEntry) else None
    return PathItem(address, text, refresh=(write,))


async def kept_page(path: str, context: Context) -> PathItem | None:
    """The stored page; None if it would have to be fetched. Raises RefusedError."""
    for spelling in dict.fromkeys((checked_address(path), path.strip())):
        if item := await find_item(spelling, context):
            return item
    return None


def checked_address(path: str) -> str:
    """The canonical URL of a page. Raises RefusedError."""
    try:
        return page_address(path)
    except PageAddressError as error:
        raise refusal("invalid:400", f"{path} cannot be opened. {error}") from None


def page_write(address: str, page: Page) -> EntryWrite:
    """The write that stores a page: summarized if it is new, else with its current visibility."""
    shown = {"title": page.title, "summary": (page.title or address)[:SUMMARY_CHARS_MAX], "type": page.media_type}
    found = {"address": page.address} if page.address != address else {}
    cut = {"cut": True} if page.is_cut else {}
    change = SetEntry(
        page.text or EMPTY,
        to_attributes_json({name: value for name, value in (shown | found | cut).items() if value}),
        initial_visibility=Visibility.SUMMARIZED,
    )
    return EntryWrite(address, change, Tier.PLUGIN)


_PEOPLE: Final = ("prompt://**", "log://**/inject/**")
_FOUND: Final = "log://**/search/**"
_PAGES: Final = ("https://**", "http://**")
_READ_MAX: Final = 100
"""Maximum number of entries with the host that are searched, of each kind."""


async def proposed_address(address: str, hosts: Collection[str], context: Context) -> Proposed | None:
    """The proposal to fetch a URL; None if it needs no approval. `hosts` are patterns of trusted ones."""
    host = urlsplit(address).hostname or ""
    if any(fnmatchcase(host, pattern) for pattern in hosts) or await _is_known(address, host, context):
        return None
    return Proposed(CallEffect({"address": address}), f"open {address}")


async def _is_known(address: str, host: str, context: Context) -> bool:
    for pattern in (*_PEOPLE, *_PAGES):
        if any(is_named(address, entry.body) for entry in await _theirs(pattern, host, context)):
            return True
    # A search without results repeats its query: only a line of its own is a result.
    found = await _theirs(_FOUND, host, context)
    return any(address == line.strip() for entry in found for line in entry.body.splitlines())


async def _theirs(pattern: str, host: str, context: Context) -> list[Entry]:
    """Entries that contain a host and were not written by a model."""
    found = await context.entries.find(pattern, host, limit=_READ_MAX)
    return [entry for entry in found if entry.writer in (Tier.PLUGIN, Tier.SYSTEM)]
