"""rm: remove entries from view, propose the deletion of files, or list what would be removed.

Source: rows RU025, RU150, RU259.
"""

from __future__ import annotations

from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.policy import is_flagged
from turnwright_executor.tools.contract import Context, Proposed, refusal
from turnwright_executor.tools.files import FileTool, file_proposal, removal_edit
from turnwright_executor.tools.listing import LISTED_MAX, described, listed
from turnwright_executor.tools.parameters import ToolParameter
from turnwright_executor.tools.paths import check_writable, is_file, is_pattern, normalized, read_file, removal_write
from turnwright_grammar.reply import Command


class Rm(FileTool):
    """Entries are removed at once, files after acceptance; `preview` or `manifest` only lists."""

    name = "rm"
    parameters = (
        ToolParameter("path", "Path of a file or entry, or a pattern.", required=True),
        ToolParameter("manifest", "Only list what would go.", "boolean"),
    )

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Settle the command, or propose the deletion of files."""
        path = command.attributes.get("path", "").strip()
        if not is_pattern(path) and is_file(path):
            named = await normalized(path, context)
            if await context.entries.get([named]) and await read_file(named, context) is None:
                # The file only exists in the store.
                return Done(path, writes=(removal_write(named),))
        items = await self._items(path, context)
        if is_flagged(command, "preview", "manifest"):
            lines = [described(item.path, item.text or "", self._settings.token_divisor) for item in items]
            return Done(listed(lines, self._settings.matches_max))
        files = [item for item in items if item.is_file]
        if not files:
            for item in items:
                check_writable(item.path, context)
            paths = [item.path for item in items]
            return Done(listed(paths, LISTED_MAX), writes=tuple(map(removal_write, paths)))
        if len(files) < len(items):
            raise refusal("invalid:400", f"{path} matches files and entries. Remove them with two commands.")
        for item in files:
            await normalized(item.path, context, writing=True)
        return file_proposal([removal_edit(item) for item in files], command)
