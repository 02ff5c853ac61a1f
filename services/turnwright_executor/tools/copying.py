"""cp, mv and rm: copy, move or remove entries and files, one or many.

A destination that ends with a slash (or follows a pattern) is a folder: each source keeps its path below the fixed part
of the pattern. All destinations of one command are files, or all are entries; so are its sources. Source: rows RU025-
RU027, RU150, RU259; decision C17; architecture 3 (`mv` never changes a path in place).
"""

from __future__ import annotations

import re
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import FileEdit, FileEffect, Tier, Visibility

from turnwright_core.patterns.shapes import Shape, shape_of
from turnwright_core.patterns.typography import composed
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.effects import Effect
from turnwright_executor.domain.policy import is_flagged
from turnwright_executor.tools.attributes import summary_of, visibility_of
from turnwright_executor.tools.contract import Context, Proposed, RefusedError, refusal
from turnwright_executor.tools.files import (
    FileTool,
    carry_out,
    change_edit,
    conflict_result,
    file_proposal,
    removal_edit,
)
from turnwright_executor.tools.listing import LISTED_MAX, described, listed
from turnwright_executor.tools.parameters import SUMMARY, VISIBILITY, ToolParameter
from turnwright_executor.tools.paths import (
    PathItem,
    check_text,
    check_writable,
    find_item,
    is_file,
    is_pattern,
    normalized,
    read_file,
    removal_write,
)
from turnwright_grammar.reply import Command

_SPECIAL: Final = re.compile(r"[*?\[{!@+(/]")


def destination(pattern: str, source: str, to: str) -> str:
    """The destination of one entry that matches a pattern.

    `known://plan_*` to `known://old/`: `known://old/plan_a`. `src/**/*.py` to `lib/`: `src/a/b.py` goes to
    `lib/a/b.py`. An exact source goes exactly to `to`, or into it if it ends with a slash.
    """
    if composed(source) == composed(pattern.strip()) or shape_of(pattern) is Shape.LITERAL:
        return to + source.rstrip("/").rpartition("/")[2] if to.endswith("/") else to
    folder = _fixed_folder(pattern)
    is_below = composed(source).startswith(composed(folder))
    kept = source.split("/", folder.count("/"))[-1] if is_below else source.rpartition("/")[2]
    return f"{to}{kept}" if to.endswith("/") else f"{to}/{kept}"


def _fixed_folder(pattern: str) -> str:
    """The part of a pattern up to the last slash before its first wildcard: `src/**/*.py` -> `src/`."""
    pattern = pattern.removeprefix("./")
    special = next((found.start() for found in _SPECIAL.finditer(pattern) if found[0] != "/"), len(pattern))
    return pattern[: pattern.rfind("/", 0, special) + 1]


class Pair(Struct, frozen=True):
    """One source and its destination."""

    source: PathItem
    to: str


class Copying(FileTool):
    """The implementation of cp, and of mv with `moves`."""

    name = ""
    parameters = (
        ToolParameter("path", "Path of a file or entry, or a pattern.", required=True),
        ToolParameter("to", "Path that it goes to; a folder, with a slash at its end, for a pattern.", required=True),
        ToolParameter("preview", "Only list each source with its destination.", "boolean"),
        VISIBILITY,
        SUMMARY,
    )
    moves = False

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        """Change the files, and the entries at the other end."""
        if isinstance(effect, FileEffect) and self.moves:
            return await self._moved(effect, command, context)
        return await super().perform(effect, command, context)

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        visibility_of(command)
        pairs = await self._pairs(command, context)
        if is_flagged(command, "preview", "manifest"):
            return Done(listed(_lines(pairs), self._settings.matches_max))
        writes, edits = await self._changes(pairs, command, context)
        if edits:
            return file_proposal(edits, command)
        return Done(listed(_lines(pairs), LISTED_MAX), writes=tuple(writes))

    async def _pairs(self, command: Command, context: Context) -> list[Pair]:
        path, to = (command.attributes.get(name, "").strip() for name in ("path", "to"))
        if not to:
            raise refusal("invalid:400", f'<{self.name}> needs a destination: <{self.name} path="..." to="..."/>.')
        sources = await self._items(path, context)
        if len({source.is_file for source in sources}) > 1:
            raise refusal("invalid:400", f"{path} matches files and entries. Use one command for each.")
        pairs = [
            Pair(source, await normalized(destination(path, source.path, to), context, writing=True))
            for source in sources
        ]
        for pair in pairs:
            if pair.to == pair.source.path:
                raise refusal("invalid:400", f"{pair.to} is both source and destination.")
        if len({pair.to for pair in pairs}) < len(pairs):
            raise refusal("invalid:400", f"Several sources would go to one path below {to}.")
        return pairs

    async def _changes(
        self, pairs: list[Pair], command: Command, context: Context
    ) -> tuple[list[EntryWrite], list[FileEdit]]:
        writes: list[EntryWrite] = []
        edits: list[FileEdit] = []
        for pair in pairs:
            if is_file(pair.to):
                target = await find_item(pair.to, context)
                edits.append(change_edit(target, pair.to, check_text(pair.source), like=pair.source))
            else:
                writes.append(await self._written(pair.source, pair.to, command, context))
        if self.moves:
            for pair in pairs:
                await self._leave(pair.source, writes, edits, context)
        return writes, edits

    async def _leave(self, source: PathItem, writes: list[EntryWrite], edits: list[FileEdit], context: Context) -> None:
        """What a moved source leaves behind: nothing."""
        if source.is_file:
            await normalized(source.path, context, writing=True)
            edits.append(removal_edit(source))
            return
        check_writable(source.path, context)
        writes.append(removal_write(source.path))

    async def _written(self, source: PathItem, to: str, command: Command, context: Context) -> EntryWrite:
        """The write that makes an entry a copy; the gates are those of any other write."""
        check_writable(to, context)
        target = await find_item(to, context)
        text = check_text(source)
        self._check_size(to, text)
        summary = summary_of(command) or (source.entry.attributes.get("summary") if source.entry else None)
        attributes = dict(target.entry.attributes) if target and target.entry else {}
        change = SetEntry(
            text,
            to_attributes_json(attributes | ({"summary": summary} if summary else {})),
            visibility=visibility_of(command),
            initial_visibility=Visibility.VISIBLE,
        )
        return EntryWrite(to, change, Tier.MODEL)

    async def _moved(self, effect: FileEffect, command: Command, context: Context) -> Done:
        """Files first become entries, then they are deleted; entries are removed once the files exist.

        A crash loses nothing.
        """
        path, to = (command.attributes.get(name, "").strip() for name in ("path", "to"))
        if not is_file(to):
            for edit in effect.edits:
                source = await find_item(edit.path, context)
                if source is None:
                    continue
                if source.hash != edit.base_hash:
                    return await conflict_result(edit.path, context)
                target = destination(path, edit.path, to)
                await context.entries.write([await self._written(source, target, command, context)])
            return await carry_out(effect, command, context)
        done = await carry_out(effect, command, context)
        if is_file(path) or done.outcome:
            return done
        made = {edit.path for edit in effect.edits}
        try:
            # The sources that still exist.
            sources = await self._items(path, context)
        except RefusedError:
            sources = []
        gone = [source for source in sources if await normalized(destination(path, source.path, to), context) in made]
        writes = (*done.writes, *(removal_write(source.path) for source in gone))
        return replace(done, writes=writes)


class Cp(Copying):
    """Copies; a file as destination is proposed."""

    name = "cp"


class Mv(Copying):
    """Moves: copies, then removes the source; a file at either end is proposed."""

    name = "mv"
    moves = True


def _lines(pairs: list[Pair]) -> list[str]:
    return [f"{pair.source.path} -> {pair.to}" for pair in pairs]


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
