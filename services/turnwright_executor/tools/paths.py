"""Resolution of a path in a command: a project file, an entry, or a pattern over either.

Files are read from disk whenever a command names them, so that a command sees the changes of earlier ones in the same
turn (row RU204). What a command may not touch raises RefusedError.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from posixpath import basename, dirname
from typing import Final

from msgspec import Struct
from turnwright_values.store import EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import Entry, Tier, Visibility

from turnwright_core.json_text import JsonObject
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.matching import search
from turnwright_core.patterns.shapes import Shape, shape_of
from turnwright_core.plans.plan import SCHEME as PLANS
from turnwright_core.text import scheme_of
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.domain.encodings import FOREIGN, UNKNOWN
from turnwright_executor.tools.contract import Context, RefusedError, refusal
from turnwright_executor.tools.ports import FileText, OutsideProjectError

NEAR_MAX: Final = 3
_SIMILAR_MAX: Final = 200

BATCH_BYTES_MAX: Final = 4 * 1024 * 1024
"""Total size of bodies that one read requests, in bytes; a single entry may be longer."""

GIVEN_BYTES_MAX: Final = 64 * 1024
"""Longest file whose text is written without asking the store first: writing costs less than asking."""

BATCH_PATHS_MAX: Final = 1000
"""Paths that one read asks for."""


class PathItem(Struct, frozen=True):
    """One file or entry that a path names.

    `text` is None for a file that is not text, `hash` is that of a file's bytes and empty for an entry. `entry` is what
    the store has of it, `refresh` the writes that update the store from disk.
    """

    path: str
    text: str | None
    hash: str = ""
    entry: Entry | None = None
    refresh: tuple[EntryWrite, ...] = ()
    gives_text: bool = False
    """Whether the store was not asked what it has: `refresh` then contains the text in any case."""
    encoding: str = ""
    foreign: str = ""
    """Both as in FileText."""

    @property
    def is_file(self) -> bool:
        return is_file(self.path)


def is_file(path: str) -> bool:
    return scheme_of(path) is None


def is_pattern(path: str) -> bool:
    return shape_of(path) is not Shape.LITERAL


async def normalized(path: str, context: Context, *, writing: bool = False) -> str:
    """The normalized path; that of an entry is not changed. Raises RefusedError."""
    path = path.strip()
    if not is_file(path):
        return path
    try:
        return await context.workspace.normalise(path, writing=writing)
    except (OutsideProjectError, OSError) as error:
        raise _unreadable(path, error) from None


async def read_file(path: str, context: Context) -> FileText | None:
    """A project file from disk, None if there is none. Raises RefusedError."""
    return (await _found_file(path, context))[1]


async def _found_file(path: str, context: Context) -> tuple[str, FileText | None]:
    """The normalized path and the file there. Raises RefusedError."""
    try:
        return await context.workspace.find(path)
    except (OutsideProjectError, OSError) as error:
        raise _unreadable(path, error) from None


def _unreadable(path: str, error: OutsideProjectError | OSError) -> RefusedError:
    match error:
        case OutsideProjectError():
            return refusal("permission:403", str(error))
        case IsADirectoryError():
            return refusal("invalid:400", f"{path} is a directory. Use {path.rstrip('/')}/** for the files in it.")
        case PermissionError():
            return refusal("permission:403", f"{path} cannot be read: the system denies it.")
        case _:
            return refusal("unreadable:500", f"{path} cannot be read: {error.strerror}.")


async def find_item(path: str, context: Context, *, gives_text: bool = False) -> PathItem | None:
    """What exists at exactly this path, or None. Raises RefusedError.

    `gives_text`: a short file is returned without its entry, which saves a call to the store; its refresh then contains
    the text.
    """
    path = path.strip()
    if not is_file(path):
        entry = await _entry_at(path, context)
        is_seen = entry is not None and context.entries.scheme(entry.scheme).model_visible
        return PathItem(path, entry.body, "", entry) if entry and is_seen else None
    path, file = await _found_file(path, context)
    if file is None:
        return None
    if gives_text and file.text is not None and file.bytes_ <= GIVEN_BYTES_MAX:
        giving = (_giving(path, file),)
        return PathItem(path, file.text, file.hash, refresh=giving, gives_text=True, encoding=file.encoding)
    return _file_item(path, file, await _entry_at(path, context))


async def _entry_at(path: str, context: Context) -> Entry | None:
    return next(iter(await context.entries.get([path])), None)


def _file_item(path: str, file: FileText, entry: Entry | None) -> PathItem:
    """A file from disk; `entry` is what the store has of it, whose body is not compared."""
    refresh = refresh_write(path, file, entry)
    return PathItem(path, file.text, file.hash, entry, refresh, encoding=file.encoding, foreign=file.foreign)


def _giving(path: str, file: FileText) -> EntryWrite:
    """The write of a file's text if it is unknown what the store has; a summary stays."""
    attributes = to_attributes_json({"bytes": file.bytes_, "binary": None})
    change = SetEntry(file.text, merge_attributes_json=attributes, initial_visibility=Visibility.ARCHIVED)
    return EntryWrite(path, change, Tier.PLUGIN)


async def get_item(path: str, context: Context, *, gives_text: bool = False) -> PathItem:
    """What exists at exactly this path, as `find_item`. Raises RefusedError, with similar paths if there is nothing."""
    item = await find_item(path, context, gives_text=gives_text)
    if item is None:
        raise RefusedError(await not_found(await normalized(path, context), context))
    return item


async def find_items(pattern: str, context: Context, limit: int, body_pattern: str = "") -> list[PathItem]:
    """The matches of a pattern, including a path that equals it literally; files are read. Raises RefusedError.

    Unreadable files are left out. More than `limit` matches are refused, because acting on some of them would be
    arbitrary.
    """
    if not body_pattern and (exact := await literal_match(pattern, context)):
        return [exact]
    # Without bodies first: a pattern may match more text than one message can carry.
    found = await find_entries(pattern, body_pattern, context, limit + 1, bodies=False)
    if len(found) > limit:
        problem = f"{pattern} stands for more than {limit} entries, which is too many for one command."
        raise refusal("too_large:413", f"{problem} Use a narrower pattern, such as one for each folder.")
    bodies = await _bodies([entry for entry in found if not is_file(entry.path)], context)
    items: list[PathItem | None] = []
    for entry in found:
        if not is_file(entry.path):
            items.append(bodies.get(entry.path))
            continue
        with suppress(RefusedError):
            file = await read_file(entry.path, context)
            items.append(_file_item(entry.path, file, entry) if file else None)
    return [item for item in items if item is not None]


async def _bodies(found: Sequence[Entry], context: Context) -> dict[str, PathItem]:
    """Entries with their bodies, read in messages of bounded size."""
    items: dict[str, PathItem] = {}
    batch: list[Entry] = []
    for index, entry in enumerate(found):
        batch.append(entry)
        is_full = sum(each.body_size_bytes for each in batch) >= BATCH_BYTES_MAX or len(batch) >= BATCH_PATHS_MAX
        if is_full or index == len(found) - 1:
            read = await context.entries.get([each.path for each in batch])
            items |= {each.path: PathItem(each.path, each.body, "", each) for each in read}
            batch = []
    return items


async def literal_match(path: str, context: Context) -> PathItem | None:
    """What exists at a path that could also be a pattern, such as `app/[id]/page.tsx`. Raises RefusedError."""
    if shape_of(path) is Shape.REGEX:
        return None
    try:
        return await find_item(path, context)
    except RefusedError:
        if is_pattern(path):
            return None
        raise


async def find_entries(pattern: str, body_pattern: str, context: Context, limit: int, *, bodies: bool) -> list[Entry]:
    """The matches of a pattern among entries that a model may see. Raises RefusedError for a bad pattern.

    A glob without a scheme matches files only.
    """
    for one in (pattern, body_pattern):
        check_pattern(one)
    files_only = is_file(pattern) and shape_of(pattern) is not Shape.REGEX
    if files_only:
        pattern = pattern.removeprefix("./")
    found = await context.entries.find(pattern, body_pattern, limit=limit, bodies=bodies, files_only=files_only)
    return [entry for entry in found if context.entries.scheme(entry.scheme).model_visible]


def check_pattern(pattern: str) -> None:
    """Raises RefusedError for an invalid pattern (RU276)."""
    try:
        search(pattern, "")
    except PatternError as error:
        raise refusal("invalid:400", str(error)) from None


def refresh_write(path: str, file: FileText, entry: Entry | None) -> tuple[EntryWrite, ...]:
    """The write that updates a file's entry from disk; none if it is up to date."""
    if entry is not None and (entry.hash == file.hash or (file.text is None and not entry.body_size_bytes)):
        return ()
    attributes = file_attributes(file.text, file.bytes_, entry)
    change = SetEntry(file.text or "", to_attributes_json(attributes), initial_visibility=Visibility.ARCHIVED)
    return (EntryWrite(path, change, Tier.PLUGIN),)


def file_attributes(text: str | None, bytes_: int, entry: Entry | None) -> JsonObject:
    """The attributes of a file's entry; those of others, such as a summary, are kept."""
    kept = {key: value for key, value in (entry.attributes if entry else {}).items() if key not in ("bytes", "binary")}
    return kept | {"bytes": bytes_} | ({"binary": True} if text is None else {})


def removal_write(path: str) -> EntryWrite:
    return EntryWrite(path, RemoveEntry(), Tier.PLUGIN)


def check_writable(path: str, context: Context) -> None:
    """Raises RefusedError for an entry that a model may not write; the store would refuse the whole request.

    Records are history: a model may hide them, which needs no right to write, but not change them. Plans have their own
    tools (C45).
    """
    name = scheme_of(path) or ""
    if name == PLANS:
        raise refusal(
            "plan_tool:409", f"{path} is part of a plan: use set_plan to replace a plan, update_plan to add to it."
        )
    if Tier.MODEL not in context.entries.scheme(name).writable_by:
        raise refusal("permission:403", f"{path} cannot be written: {name}:// is not for models to write.")
    if name == "log":
        raise refusal("permission:403", f"{path} is a record of what happened: only its visibility can be set.")


def check_text(item: PathItem) -> str:
    """The text of an item. Raises RefusedError for a file that is not text."""
    if item.text is None and item.foreign:
        raise foreign_refusal(item.path, item.foreign)
    if item.text is None:
        raise refusal("unsupported:415", f"{item.path} is binary, or is too large to be read as text.")
    return item.text


def foreign_refusal(path: str, encoding: str) -> RefusedError:
    """The error for a text in an encoding that is not read here, with the way out."""
    what = "`file -i` may name it" if encoding == UNKNOWN else f"likely {encoding}"
    problem = f"{path} is text, but neither UTF-8 nor UTF-16 or UTF-32 with a byte order mark ({what})."
    advice = "Read it by <sh>, such as `iconv -f ENCODING -t UTF-8 FILE`; to edit it, convert it and convert it back."
    return RefusedError(failed("unsupported:415", f"{problem} {advice}", **{FOREIGN: encoding}))


async def caught_up(items: Sequence[PathItem], context: Context) -> tuple[EntryWrite, ...]:
    """The writes that update the store from disk; if they are large, they are written at once."""
    writes = [write for item in items for write in item.refresh]
    if sum(len(item.text or "") for item in items if item.refresh) < BATCH_BYTES_MAX:
        return tuple(writes)
    for write in writes:
        await context.entries.write([write])
    return ()


async def not_found(path: str, context: Context) -> Done:
    """The result for a command whose target does not exist, with similar paths."""
    near = await _similar_paths(path, context)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    return failed("not_found:404", f"{path} was not found.{hint}")


async def _similar_paths(path: str, context: Context) -> list[str]:
    scheme = scheme_of(path)
    if scheme is not None:
        candidates = await _paths(f"{scheme}://*", context)
        return get_close_matches(path, candidates, NEAR_MAX)
    same_name = await _paths(f"**/{_plain(basename(path))}", context)
    folder = dirname(path)
    siblings = await _paths(f"{_plain(folder)}/*" if folder else "*", context)
    close = get_close_matches(path, siblings, NEAR_MAX)
    return [*dict.fromkeys([*same_name, *close])][:NEAR_MAX]


async def _paths(pattern: str, context: Context) -> list[str]:
    try:
        return [entry.path for entry in await find_entries(pattern, "", context, _SIMILAR_MAX, bodies=False)]
    except RefusedError:
        return []


def _plain(path: str) -> str:
    """A glob that matches the path literally, and paths with any character in place of its special ones."""
    return "".join("?" if char in "*?[]{}()!@+\\" else char for char in path)
