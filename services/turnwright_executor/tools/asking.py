"""Exfiltration protection: which URLs are fetched without asking.

A URL carries data to its host: a page or file may trick the model into putting what it has read into a path or a query.
So a URL is fetched without asking only if the model did not make it up: a person named it, a search found it, a fetched
page links to it, or a setting trusts its host. Any other URL becomes a proposal. Source: architecture 10.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from turnwright_values.types import Entry, Tier

from turnwright_executor.domain.effects import CallEffect
from turnwright_executor.domain.pages import is_named
from turnwright_executor.tools.contract import Context, Proposed

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
