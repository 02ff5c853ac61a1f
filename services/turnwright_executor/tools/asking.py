"""Which addresses of the web are opened without asking.

An address carries data to whoever has the host: what a model has read, a page or a file that it was told to read may
make it put into a path or a query. So it is opened unasked where the model did not make it up: a person named it, a
search found it, a page that was opened leads there, or a setting trusts the host. Any other is a proposal.
Source: architecture 10.
"""

from __future__ import annotations

from collections.abc import Collection
from fnmatch import fnmatchcase
from typing import Final
from urllib.parse import urlsplit

from turnwright_core.entries import Entry, Tier
from turnwright_executor.domain.effects import CallEffect
from turnwright_executor.domain.pages import is_named
from turnwright_executor.tools.contract import Context, Proposed

_PEOPLE: Final = ("prompt://**", "log://**/inject/**")
_FOUND: Final = "log://**/search/**"
_PAGES: Final = ("https://**", "http://**")
_READ_MAX: Final = 100
"""Entries with the host in them that are looked through, of each kind."""


async def proposed_address(address: str, hosts: Collection[str], context: Context) -> Proposed | None:
    """The proposal to open an address; None where nobody needs to be asked. `hosts` are patterns of trusted ones."""
    host = urlsplit(address).hostname or ""
    if any(fnmatchcase(host, pattern) for pattern in hosts) or await _is_known(address, host, context):
        return None
    return Proposed(CallEffect({"address": address}), f"open {address}")


async def _is_known(address: str, host: str, context: Context) -> bool:
    for pattern in (*_PEOPLE, *_PAGES):
        if any(is_named(address, entry.body) for entry in await _theirs(pattern, host, context)):
            return True
    # A search that finds nothing repeats its words: only a line of its own is a result.
    found = await _theirs(_FOUND, host, context)
    return any(address == line.strip() for entry in found for line in entry.body.splitlines())


async def _theirs(pattern: str, host: str, context: Context) -> list[Entry]:
    """The entries with a host in them that no model has written."""
    found = await context.entries.find(pattern, host, limit=_READ_MAX)
    return [entry for entry in found if entry.writer in (Tier.PLUGIN, Tier.SYSTEM)]
