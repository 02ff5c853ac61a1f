"""get: make entries and files visible, show some lines, or list matches.

Source: rows RU024, RU150, RU167, RU175, RU201, RU202, RU204.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec.structs import replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Entry, Tier, Visibility

from turnwright_core.patterns.shapes import Shape, shape_of
from turnwright_core.plans.plan import SCHEME as PLANS
from turnwright_core.text import scheme_of, slice_lines
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.effects import CallEffect, Effect
from turnwright_executor.domain.pages import is_page
from turnwright_executor.domain.policy import is_flagged
from turnwright_executor.tools.attributes import integer_of, visibility_of
from turnwright_executor.tools.contract import Context, Proposed, refusal
from turnwright_executor.tools.immediate import ImmediateTool
from turnwright_executor.tools.listing import LISTED_MAX, described, listed
from turnwright_executor.tools.pages import checked_address, kept_page, page_item, proposed_address
from turnwright_executor.tools.parameters import BODY, VISIBILITY, ToolParameter
from turnwright_executor.tools.paths import (
    PathItem,
    caught_up,
    check_text,
    find_entries,
    find_items,
    get_item,
    is_pattern,
    literal_match,
    normalized,
)
from turnwright_executor.tools.ports import Web
from turnwright_grammar.reply import Command

RESULT_CHARS_MAX: Final = 64 * 1024
"""Longest text that a result of a transcript contains, in code points."""

LINE_CHARS_MAX: Final = 8000
"""How much of a line is shown at once, in code points: minified files and data have lines that fit no packet."""


class Get(ImmediateTool):
    """Makes matches visible; with `line` or `limit` only shows those lines; with `preview` only lists."""

    name = "get"
    parameters = (
        ToolParameter("path", "Path of a file or entry, a pattern, or the address of a page.", required=True),
        ToolParameter("line", "Show lines from this one on; a negative number counts from the end.", "integer"),
        ToolParameter("limit", "Show so many lines.", "integer"),
        ToolParameter("offset", "Skip so many characters of the line, to read a long one in parts.", "integer"),
        ToolParameter("preview", "Only list what matches.", "boolean"),
        VISIBILITY,
        ToolParameter(BODY, "Only what contains this: a text, a glob or /regex/i."),
    )

    def __init__(self, settings: ExecutorSettings, web: Web) -> None:
        self._settings = settings
        self._web = web

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Settle the command; propose it if it would fetch a URL that the model made up."""
        path = command.attributes.get("path", "").strip()
        is_opened = is_page(path) and not command.body.strip() and not is_flagged(command, "preview", "manifest")
        if not is_opened or context.no_web or await kept_page(path, context):
            return await self._settled(command, context)
        asked = await proposed_address(checked_address(path), self._settings.trusted_hosts, context)
        return asked or await self._settled(command, context)

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        if not isinstance(effect, CallEffect):
            return await super().perform(effect, command, context)
        return await self._settled(command, context)

    async def _settled(self, command: Command, context: Context) -> Done:
        if not {"line", "limit", "offset"}.isdisjoint(command.attributes):
            return await self._slice(command, context)
        if is_flagged(command, "preview", "manifest"):
            return await self._preview(command, context)
        return await self._promote(command, context)

    async def _slice(self, command: Command, context: Context) -> Done:
        """Some lines as the body of the record; visibility does not change (RU201)."""
        path = command.attributes.get("path", "").strip()
        item = None if command.body.strip() else await self._exactly(path, context)
        if item is None and (command.body.strip() or is_pattern(path)):
            raise refusal(
                "invalid:400", "line, limit and offset need one exact path: no pattern and no text to search for."
            )
        item = item or await get_item(path, context)
        offset, limit = integer_of(command, "offset"), integer_of(command, "limit")
        part = slice_lines(check_text(item), integer_of(command, "line"), limit if offset is None else 1)
        attributes = {"first": part.first, "last": part.last, "total": part.total}
        lines = enumerate(part.text.split("\n"), part.first)
        shown = "\n".join(_beginning(line, number, max(0, offset or 0)) for number, line in lines)
        return Done(shown, attributes=attributes, writes=item.refresh)

    async def _exactly(self, path: str, context: Context) -> PathItem | None:
        return await (page_item(path, context, self._web) if is_page(path) else literal_match(path, context))

    async def _preview(self, command: Command, context: Context) -> Done:
        path, text = command.attributes.get("path", "").strip(), command.body.strip()
        pattern = path if is_pattern(path) else await normalized(path, context)
        most = self._settings.matches_max
        found = await find_entries(pattern, text, context, most + 1, bodies=False)
        if not found:
            return _nothing(path, text)
        more = ["... and more than are listed here; use a narrower pattern"] if len(found) > most else []
        return Done("\n".join([*(_preview_line(entry, self._settings.token_divisor) for entry in found[:most]), *more]))

    async def _promote(self, command: Command, context: Context) -> Done:
        path, text = command.attributes.get("path", "").strip(), command.body.strip()
        visibility = visibility_of(command) or Visibility.VISIBLE
        items = await self._matching(path, text, context)
        if not items:
            return _nothing(path, text)
        if len(items) == 1:
            check_text(items[0])
        readable = [item for item in items if item.text is not None]
        if len(items) == 1 and items[0].gives_text:
            writes = tuple(_shown(write, visibility) for write in items[0].refresh)
        else:
            # Plans are in each packet anyway, and nobody may write their visibility (C45).
            plain = (item.path for item in readable if scheme_of(item.path) != PLANS)
            shown = (_shown(EntryWrite(path, SetEntry(), Tier.PLUGIN), visibility) for path in plain)
            writes = (*await caught_up(readable, context), *shown)
        lines = [_line(item, self._settings.token_divisor) for item in items]
        listing = listed(lines, LISTED_MAX)
        return Done(_with_texts(listing, readable) if context.is_transcript else listing, writes=writes)

    async def _matching(self, path: str, text: str, context: Context) -> list[PathItem]:
        if is_page(path) and not text:
            return [await page_item(path, context, self._web)]
        if is_pattern(path):
            return await find_items(path, context, self._settings.matches_max, text)
        if text:
            return await find_items(await normalized(path, context), context, self._settings.matches_max, text)
        return [await get_item(path, context, gives_text=True)]


def _beginning(line: str, number: int, offset: int) -> str:
    """A line from a character on, as far as it is shown at once, and how to read on."""
    shown = line[offset : offset + LINE_CHARS_MAX]
    if len(shown) == len(line):
        return line
    end = min(offset + len(shown), len(line))
    more = f'; line="{number}" offset="{end}" shows what follows' if end < len(line) else ""
    return f"{shown}\n[characters {min(offset, end) + 1} to {end} of {len(line)} of line {number}{more}]"


def _with_texts(listing: str, items: Sequence[PathItem]) -> str:
    """A result with the texts that it is about, as far as a result may be long."""
    parts, room = [listing], RESULT_CHARS_MAX
    for item in items:
        text = item.text or ""
        if len(text) > room:
            parts.append(f"{item.path} is too long to be shown here: read it with line and limit.")
            continue
        room -= len(text)
        parts.append(text if len(items) == 1 else f"== {item.path} ==\n{text}")
    return "\n\n".join(part for part in parts if part)


def _shown(write: EntryWrite, visibility: Visibility) -> EntryWrite:
    assert isinstance(write.change, SetEntry)
    return replace(write, change=replace(write.change, visibility=visibility))


def _line(item: PathItem, divisor: int) -> str:
    if item.text is None:
        return f"{item.path}: no text"
    longest = max(map(len, item.text.split("\n")))
    parts = f"; line and offset show its line of {longest} characters in parts" if longest > LINE_CHARS_MAX else ""
    return described(item.path, item.text, divisor) + parts


def _nothing(path: str, text: str) -> Done:
    # A pattern without matches is an answer; a path that does not exist is a failure (RU150).
    what = f" with {text!r}" if text else ""
    kind = "regex" if shape_of(path) is Shape.REGEX else "path"
    return Done(f"Nothing matches the {kind} {path}{what}.")


def _preview_line(entry: Entry, divisor: int) -> str:
    return f"* {entry.path} - {-(-entry.body_size_bytes // divisor)} tokens"
