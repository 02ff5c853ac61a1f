"""set: write or edit an entry or a file, or change its visibility.

Source: rows RU023, RU124, RU203, RU205, RU221; decisions C5, C17, C37.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier, Visibility

from turnwright_executor.domain.command_record import Done
from turnwright_executor.tools.attributes import summary_of, visibility_of, with_summary
from turnwright_executor.tools.contract import Context, Proposed, refusal
from turnwright_executor.tools.files import FileTool, change_edit, file_proposal
from turnwright_executor.tools.listing import LISTED_MAX, described, listed
from turnwright_executor.tools.parameters import BODY, SUMMARY, VISIBILITY, ToolParameter
from turnwright_executor.tools.paths import (
    PathItem,
    caught_up,
    check_text,
    check_writable,
    find_item,
    is_file,
    is_pattern,
    literal_match,
    normalized,
)
from turnwright_grammar.reply import Command

if TYPE_CHECKING:
    from turnwright_grammar.edits.apply import EditResult


class Set(FileTool):
    """With a body edits one path; without one sets visibility and summary of all matches."""

    name = "set"
    parameters = (
        ToolParameter("path", "Path of a file or entry; a pattern to set visibility or summary only.", required=True),
        ToolParameter(BODY, "Blocks such as <<SEARCH ... SEARCH and <<REPLACE ... REPLACE, or the whole text."),
        VISIBILITY,
        SUMMARY,
    )

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Settle the command, or propose the change of a file."""
        path = command.attributes.get("path", "").strip()
        visibility_of(command)
        if not command.body and ({"visibility", "summary"} & command.attributes.keys()):
            return await self._show(path, command, context)
        return await self._edit(path, command, context)

    async def _show(self, path: str, command: Command, context: Context) -> Done:
        """Visibility and summary, bodies untouched."""
        items = await self._items(path, context)
        shown = [_shown(item, command, context) for item in items]
        writes = (*await caught_up(items, context), *shown)
        return Done(listed([item.path for item in items], LISTED_MAX), writes=writes)

    async def _edit(self, path: str, command: Command, context: Context) -> Done | Proposed:
        # A bracket is common in the name of a new file; a star or a regex is a pattern.
        if is_pattern(path) and ("*" in path or path.startswith("/")) and await literal_match(path, context) is None:
            raise refusal("invalid:400", f"A body needs one exact path, and {path} is a pattern.")
        path = await normalized(path, context, writing=True)
        if not is_file(path):
            check_writable(path, context)
        item = await find_item(path, context)
        if item is not None and not command.body:
            raise refusal(
                "invalid:400", f"There is nothing to set: {path} exists, and neither body nor visibility is given."
            )
        result = await asyncio.to_thread(_edited, item, path, command)
        if item is not None and result.text == item.text:
            return self._unchanged(item, command, context)
        if is_file(path):
            return file_proposal([change_edit(item, path, result.text)], command, result.notes)
        return self._written(item, path, result, command)

    def _unchanged(self, item: PathItem, command: Command, context: Context) -> Done:
        names_view = visibility_of(command) or summary_of(command) is not None
        writes = (*item.refresh, _shown(item, command, context)) if names_view else item.refresh
        return Done(f"{item.path} already reads like this; nothing was changed.", writes=writes)

    def _written(self, item: PathItem | None, path: str, result: EditResult, command: Command) -> Done:
        self._check_size(path, result.text)
        change = SetEntry(
            result.text,
            with_summary(command, item.entry if item else None),
            visibility=visibility_of(command),
            initial_visibility=Visibility.VISIBLE,
        )
        lines = [described(path, result.text, self._settings.token_divisor), *result.notes]
        return Done("\n".join(lines), writes=(EntryWrite(path, change, Tier.MODEL),))


def _edited(item: PathItem | None, path: str, command: Command) -> EditResult:
    # Imported with the first edit: tools are listed long before they are used.
    from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit  # noqa: PLC0415
    from turnwright_grammar.edits.operations import EditSyntaxError  # noqa: PLC0415

    if item is not None and item.entry is not None and item.entry.state is State.STREAMING:
        raise refusal("conflict:409", f"{path} is still growing; set it when it has ended.")
    result = apply_edit(None if item is None else check_text(item), command.body, path=path)
    match result:
        case EditConflict():
            raise refusal("conflict:409", result.message)
        case EditSyntaxError():
            raise refusal("invalid:400", result.message)
        case EditResult():
            return result


def _shown(item: PathItem, command: Command, context: Context) -> EntryWrite:
    """The view of an item as a command sets it; allowed for a record, too."""
    change = SetEntry(attributes_json=with_summary(command, item.entry), visibility=visibility_of(command))
    is_record = item.path.startswith("log://")
    if not item.is_file and (change.attributes_json is not None or not is_record):
        check_writable(item.path, context)
    return EntryWrite(item.path, change, Tier.MODEL)
