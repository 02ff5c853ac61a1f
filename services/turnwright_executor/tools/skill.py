"""skill: loads instructions from the project, from the skills in the home, or from the web, as entries.

The entry for the whole skill is summarized, its parts are archived. Loading a skill again overwrites what it loaded
before and removes what its source no longer has; other entries under its name stay. Source: rows RU070, RU123, RU239;
decision C8.
"""

from __future__ import annotations

import asyncio
import stat
import zlib
from collections.abc import Iterator, Sequence
from io import BytesIO
from posixpath import basename
from typing import Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import Tier, Visibility

from turnwright_core.limits import PATH_CHARS_MAX
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.effects import CallEffect, Effect, EffectClass
from turnwright_executor.domain.encodings import UNKNOWN, foreign_encoding, text_in
from turnwright_executor.domain.pages import is_page
from turnwright_executor.domain.skills import (
    ARCHIVE,
    DOCUMENT,
    skill_name,
    skill_paths,
    summary_of_text,
    without_outer_folder,
)
from turnwright_executor.tools.contract import Context, Proposed, RefusedError, refusal
from turnwright_executor.tools.immediate import ImmediateTool
from turnwright_executor.tools.listing import described, plural
from turnwright_executor.tools.pages import checked_address, proposed_address
from turnwright_executor.tools.parameters import ToolParameter
from turnwright_executor.tools.paths import foreign_refusal, removal_write
from turnwright_executor.tools.ports import GatheredFiles, OutsideProjectError, TooMuchError, Web, WebError, Workspace
from turnwright_grammar.reply import Command

# Untrusted zip archives: unpacked in memory, within limits, and only if no name leaves the archive's folder.
#
# Sizes are counted while unpacking, because an archive's own figures may be wrong. Source: row RU239.

RATIO_MAX: Final = 100
"""Maximum compression ratio."""

_CHUNK_BYTES: Final = 64 * 1024
_ENCRYPTED: Final = 0x1
# Other methods may unpack pieces of any size at once.
_METHODS: Final = frozenset({ZIP_STORED, ZIP_DEFLATED})
_UNREADABLE: Final = (BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError, ValueError, OSError)


def is_archive(data: bytes) -> bool:
    return data.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def unpack(data: bytes, files_max: int, bytes_max: int) -> GatheredFiles:
    """The files in an archive. Raises RefusedError if it is broken, too large, or has a name that leaves its folder."""
    try:
        with ZipFile(BytesIO(data)) as archive:
            return _files(archive, min(bytes_max, RATIO_MAX * len(data)), files_max)
    except _UNREADABLE as error:
        raise refusal("unsupported:415", f"The archive cannot be unpacked: {error}.") from None


def _files(archive: ZipFile, bytes_max: int, files_max: int) -> GatheredFiles:
    files: dict[str, bytes] = {}
    left_out: list[str] = []
    left = bytes_max
    for info in _members(archive, files_max):
        if stat.S_ISLNK(info.external_attr >> 16):
            left_out.append(f"{info.filename} (a link)")
            continue
        files[info.filename] = _content(archive, info, left)
        left -= len(files[info.filename])
    return GatheredFiles(True, dict(sorted(files.items())), tuple(left_out))


def _members(archive: ZipFile, files_max: int) -> Iterator[ZipInfo]:
    infos = [info for info in archive.infolist() if not info.is_dir()]
    if len(infos) > files_max:
        raise refusal("too_large:413", f"The archive has {len(infos)} files; at most {files_max} are loaded.")
    for info in infos:
        parts = info.filename.split("/")
        if not info.filename.isprintable() or "\\" in info.filename or {"", ".", ".."} & set(parts) or ":" in parts[0]:
            problem = (
                f"The archive holds a file that leaves its folder ({info.filename!r}), so nothing of it was loaded."
            )
            raise refusal("permission:403", problem)
        if info.flag_bits & _ENCRYPTED:
            raise refusal("unsupported:415", "The archive is encrypted.")
        if info.compress_type not in _METHODS:
            raise refusal("unsupported:415", "The archive is packed in a way that is not unpacked here; use deflate.")
        if not any(part.startswith(".") for part in parts) and parts[0] != "__MACOSX":
            yield info


def _content(archive: ZipFile, info: ZipInfo, bytes_max: int) -> bytes:
    """The bytes of one file. Raises RefusedError if they exceed the limit."""
    kept = bytearray()
    with archive.open(info) as file:
        while chunk := file.read(_CHUNK_BYTES):
            kept += chunk
            if len(kept) > bytes_max:
                raise refusal("too_large:413", "The archive unpacks to more than is loaded.")
    return bytes(kept)


SOURCE: Final = "source"
"""Attribute of an entry loaded from a skill: the path or URL that it came from."""
LEFT_OUT_MAX: Final = 5
"""Files that were not loaded and are listed in the record; the rest is only counted."""
_UNREAD: Final = {"": "binary", UNKNOWN: "in an unknown encoding"}
_HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})


class _Skill(Struct, frozen=True):
    """The texts of a skill by entry path, and what was left out, with reasons."""

    name: str
    source: str
    texts: dict[str, str]
    left_out: Sequence[str]

    @property
    def root(self) -> str:
        return f"skill://{self.name}"


class Skill(ImmediateTool):
    """Writes entries only. `shelf`: the folder of skills shared by all projects."""

    name = "skill"
    parameters = (ToolParameter("path", "Name, path or address of the skill.", required=True),)
    effect_class = EffectClass.PURE

    def __init__(self, settings: ExecutorSettings, web: Web, shelf: Workspace | None = None) -> None:
        self._settings = settings
        self._web = web
        self._shelf = shelf

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Settle the command; propose it if it would load a URL that the model made up."""
        source = command.attributes.get("path", "").strip()
        asked = None
        if is_page(source) and not context.no_web:
            asked = await proposed_address(checked_address(source), self._settings.trusted_hosts, context)
        return asked or await self._settled(source, context)

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        if not isinstance(effect, CallEffect):
            return await super().perform(effect, command, context)
        return await self._settled(command.attributes.get("path", "").strip(), context)

    async def _settled(self, source: str, context: Context) -> Done:
        if not source:
            raise refusal("invalid:400", '<skill> needs a name, a path or an address: <skill path="release-notes"/>.')
        skill = await self._skill(source, context)
        gone = await _no_longer_in_source(skill, context)
        writes = (*_writes(skill), *map(removal_write, gone))
        return Done(
            _result_text(skill, self._settings.token_divisor),
            attributes={"name": skill.name, "entries": len(skill.texts)},
            writes=writes,
        )

    async def _skill(self, source: str, context: Context) -> _Skill:
        gathered = await (self._from_web(source, context) if is_page(source) else self._from_disk(source, context))
        name = skill_name(source)
        if not name:
            raise refusal(
                "invalid:400", f"{source} gives no name for the skill. Name a file or folder such as guide.md."
            )
        return await asyncio.to_thread(self._read, name, source, gathered)

    def _read(self, name: str, source: str, gathered: GatheredFiles) -> _Skill:
        """Decode the files. Raises RefusedError if none is text."""
        if not gathered.is_folder:
            ((_, data),) = gathered.files.items()
            if not is_archive(data):
                return _skill_of(name, source, GatheredFiles(False, {f"index{DOCUMENT}": data}))
            gathered = unpack(data, self._settings.skill_files_max, self._settings.skill_bytes_max)
            gathered = replace(gathered, files=without_outer_folder(gathered.files))
        return _skill_of(name, source, gathered)

    async def _from_web(self, source: str, context: Context) -> GatheredFiles:
        address = checked_address(source)
        if context.no_web:
            raise refusal("permission:403", f"This loop works without the web, so {address} cannot be loaded.")
        try:
            download = await self._web.download(address, self._settings.skill_bytes_max)
        except WebError as error:
            raise refusal(error.outcome, f"{address} could not be loaded. {error}") from None
        if download.media_type in _HTML_TYPES:
            problem = f"{address} is a web page. Name the address of the Markdown file or the zip archive itself."
            raise refusal("unsupported:415", problem)
        return GatheredFiles(False, {basename(download.address): download.data})

    async def _from_disk(self, source: str, context: Context) -> GatheredFiles:
        """The skill at a path in the project, else on the shelf, there also without its extension."""
        places = [(context.workspace, source)]
        if self._shelf:
            places += [(self._shelf, source + ending) for ending in ("", DOCUMENT, ARCHIVE)]
        for place, path in places:
            if found := await self._gathered(place, path):
                return found
        problem = (
            f"There is no skill {source}: it is neither in the project nor in the folder `skills` of TURNWRIGHT_HOME."
        )
        raise refusal("not_found:404", problem)

    async def _gathered(self, place: Workspace, path: str) -> GatheredFiles | None:
        try:
            return await place.gather(path, self._settings.skill_files_max, self._settings.skill_bytes_max)
        except OutsideProjectError as error:
            raise refusal("permission:403", str(error)) from None
        except TooMuchError as error:
            raise refusal("too_large:413", f"{path} is too large for a skill: {error}.") from None
        except OSError as error:
            raise refusal("unreadable:500", f"{path} cannot be read: {error.strerror}.") from None


def _skill_of(name: str, source: str, gathered: GatheredFiles) -> _Skill:
    placed = skill_paths(name, gathered.files)
    left_out = [
        *gathered.left_out,
        *(f"{file} (hidden by another)" for file in gathered.files.keys() - placed.values()),
    ]
    texts: dict[str, str] = {}
    foreign: RefusedError | None = None
    for path, file in placed.items():
        data = gathered.files[file]
        text = text_in(data)
        if text is None:
            encoding = foreign_encoding(data)
            left_out.append(f"{file} ({_UNREAD.get(encoding, f'likely {encoding}')})")
            if encoding and not foreign:
                foreign = foreign_refusal(f"{source}/{file}" if gathered.is_folder else source, encoding)
        elif len(path) > PATH_CHARS_MAX or not path.isprintable():
            left_out.append(f"{file[:80]} (no name for an entry)")
        else:
            texts[path] = text.removeprefix("\ufeff")
    if not texts:
        raise foreign or refusal("unsupported:415", f"{source} holds no text, so there is nothing to load.")
    return _Skill(name, source, dict(sorted(texts.items())), sorted(left_out))


async def _no_longer_in_source(skill: _Skill, context: Context) -> list[str]:
    """What the same source loaded before and no longer has."""
    found = await context.entries.find(f"{skill.root}/**", bodies=False)
    kept = {entry.path for entry in found if entry.attributes.get(SOURCE) == skill.source}
    return sorted(kept - skill.texts.keys())


def _writes(skill: _Skill) -> list[EntryWrite]:
    """The whole skill summarized, its parts archived; existing entries keep their visibility."""
    return [
        EntryWrite(
            path,
            SetEntry(
                text,
                to_attributes_json({"summary": summary_of_text(text), SOURCE: skill.source}),
                initial_visibility=Visibility.SUMMARIZED if path == skill.root else Visibility.ARCHIVED,
            ),
            Tier.PLUGIN,
        )
        for path, text in skill.texts.items()
    ]


def _result_text(skill: _Skill, divisor: int) -> str:
    parts = len(skill.texts) - (skill.root in skill.texts)
    lines = []
    if skill.root in skill.texts:
        lines.append(described(skill.root, skill.texts[skill.root], divisor))
    else:
        lines.append(f"{skill.root} itself is empty: the skill has no index{DOCUMENT}.")
    if parts:
        lines.append(f'{plural(parts, "part")}, archived; <get path="{skill.root}/**" preview/> lists them.')
    if skill.left_out:
        more = len(skill.left_out) - LEFT_OUT_MAX
        rest = f" and {more} more" if more > 0 else ""
        lines.append(_printable(f"Not loaded: {', '.join(skill.left_out[:LEFT_OUT_MAX])}{rest}."))
    return "\n".join(lines)


def _printable(text: str) -> str:
    """A text that any store can hold: file names may not be valid text."""
    return "".join(char if char.isprintable() else "?" for char in text)
