"""Skills as entries: the name of a skill, and the path of each of its files.

`guide.md` is `skill://guide`; in a folder `guide`, `index.md` is `skill://guide`, `parts/index.md` is
`skill://guide/parts`, and `parts/table.md` is `skill://guide/parts/table`. Other files keep their extensions. Source:
rows RU070, RU239.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from posixpath import basename, dirname
from typing import Final
from urllib.parse import unquote, urlsplit

from turnwright_core.limits import SUMMARY_CHARS_MAX
from turnwright_executor.domain.pages import is_page

NAME_CHARS_MAX: Final = 100
"""Longest name of a skill, in characters."""

DOCUMENT: Final = ".md"
ARCHIVE: Final = ".zip"
INDEXES: Final = ("index.md", "skill.md")
"""Names of a folder's index file, in any letter case; the first that exists counts."""

_UNNAMED: Final = re.compile(r"[^\w.-]+")
_FRONT: Final = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*$\s*", re.DOTALL | re.MULTILINE)
_DESCRIPTION: Final = re.compile(r"^description:[ \t]*(\S.*)$", re.MULTILINE)


def skill_name(source: str) -> str:
    """The name of a skill from its path or URL; empty if no part of it can be a name."""
    if is_page(source):
        source = unquote(urlsplit(source).path)
    source = source.rstrip("/")
    if basename(source).lower() in INDEXES:
        source = dirname(source)
    name = basename(source)
    for ending in (DOCUMENT, ARCHIVE):
        if name.lower().endswith(ending):
            name = name[: -len(ending)]
    return _UNNAMED.sub("-", name).strip("-.")[:NAME_CHARS_MAX]


def skill_paths(name: str, files: Iterable[str]) -> dict[str, str]:
    """Paths for the files of a skill's folder; if two collide, the first in order wins."""
    placed: dict[str, str] = {}
    for file in sorted(files, key=_rank):
        placed.setdefault(_path_of(name, file), file)
    return placed


def _rank(file: str) -> tuple[int, str]:
    """Sort key: index files first, the preferred name first."""
    lower = basename(file).lower()
    return (INDEXES.index(lower) if lower in INDEXES else len(INDEXES), file)


def _path_of(name: str, file: str) -> str:
    folder, last = dirname(file), basename(file)
    if last.lower() in INDEXES:
        return f"skill://{name}/{folder}".rstrip("/")
    return f"skill://{name}/{file[: -len(DOCUMENT)] if last.lower().endswith(DOCUMENT) else file}"


def without_outer_folder(files: Mapping[str, bytes]) -> dict[str, bytes]:
    """The files of an archive without a folder that contains them all."""
    outer = {file.partition("/")[0] if "/" in file else "" for file in files}
    if len(outer) != 1 or outer == {""}:
        return dict(files)
    return {file.partition("/")[2]: data for file, data in files.items()}


def summary_of_text(text: str) -> str:
    """A one-line summary of a document: its description, its heading, or its first line."""
    front = _FRONT.match(text)
    if front and (described := _DESCRIPTION.search(front[1])):
        return " ".join(described[1].strip("\"'").split())[:SUMMARY_CHARS_MAX]
    lines = (line.strip("# \t\r") for line in text[front.end() if front else 0 :].splitlines())
    return " ".join(next((line for line in lines if line), "").split())[:SUMMARY_CHARS_MAX]
