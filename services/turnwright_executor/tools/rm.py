"""rm: remove entries from view, propose the deletion of files, or list what would be removed.

Source: rows RU025, RU150, RU259.
"""

from __future__ import annotations

from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.domain.policy import is_flagged
from turnwright_executor.tools.contract import Context, Done, Proposed, RefusedError, refusal
from turnwright_executor.tools.files import carry_out, file_proposal, removal_edit
from turnwright_executor.tools.limits import ToolLimits
from turnwright_executor.tools.listing import described, listed
from turnwright_executor.tools.parameters import ToolParameter
from turnwright_executor.tools.paths import (
    PathItem,
    check_writable,
    find_items,
    get_item,
    is_file,
    is_pattern,
    normalized,
    not_found,
    read_file,
    removal_write,
)
from turnwright_grammar.reply import Command


class Rm:
    """Entries are removed at once, files after acceptance; `preview` or `manifest` only lists."""

    name = "rm"
    parameters = (
        ToolParameter("path", "Path of a file or entry, or a pattern.", required=True),
        ToolParameter("manifest", "Only list what would go.", "boolean"),
    )
    effect_class = EffectClass.IDEMPOTENT

    def __init__(self, limits: ToolLimits) -> None:
        self._limits = limits

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        return await carry_out(effect, command, context)

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Settle the command, or propose the deletion of files."""
        path = command.attributes.get("path", "").strip()
        items = await self._items(path, context)
        if items is None:
            return Done(path, writes=(removal_write(await normalized(path, context)),))
        if is_flagged(command, "preview", "manifest"):
            lines = [described(item.path, item.text or "", self._limits.token_divisor) for item in items]
            return Done(listed(lines, self._limits.matches_max))
        files = [item for item in items if item.is_file]
        if not files:
            return self._removed(items, context)
        if len(files) < len(items):
            raise refusal("invalid:400", f"{path} matches files and entries. Remove them with two commands.")
        for item in files:
            await normalized(item.path, context, writing=True)
        return file_proposal([removal_edit(item) for item in files], command)

    async def _items(self, path: str, context: Context) -> list[PathItem] | None:
        """What to remove; None for a file that only exists in the store."""
        if is_pattern(path):
            items = await find_items(path, context, self._limits.matches_max)
            if not items:
                raise RefusedError(await not_found(path, context))
            return items
        if is_file(path) and await self._is_left_over(await normalized(path, context), context):
            return None
        return [await get_item(path, context)]

    async def _is_left_over(self, path: str, context: Context) -> bool:
        return bool(await context.entries.get([path])) and await read_file(path, context) is None

    def _removed(self, items: list[PathItem], context: Context) -> Done:
        for item in items:
            check_writable(item.path, context)
        lines = [item.path for item in items]
        return Done(listed(lines, self._limits.listed_max), writes=tuple(removal_write(item.path) for item in items))
