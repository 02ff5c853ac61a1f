"""The identity of a workspace: a marker at the project's root, which survives a move of the directory.

Source: architecture 3.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final
from uuid import NAMESPACE_URL, uuid4, uuid5

from turnwright_executor.edge.leftovers import temporary_name
from turnwright_executor.edge.workspace import MARKER_FOLDER

_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_NAME: Final = "workspace"


def workspace_id(root: str | Path, new_id: Callable[[], str] = lambda: str(uuid4())) -> str:
    """The id in the marker below the root, made where there is none.

    Where no marker can be written, or something else stands in its place, the id is that of the real path: it is
    the same again as long as the directory is not moved. Never raises OSError.
    """
    real = Path(os.path.realpath(root))
    folder = real / MARKER_FOLDER
    with suppress(OSError):
        return _read(folder) or _made(folder, new_id())
    return str(uuid5(NAMESPACE_URL, real.as_uri()))


def _read(folder: Path) -> str | None:
    """The id of a marker, None where there is none. Raises OSError for one that is none of ours."""
    try:
        if folder.is_symlink():
            raise OSError(f"{folder} is a link")
        text = (folder / _NAME).read_text("ascii", errors="replace").strip()
    except FileNotFoundError:
        return None
    if not _ID.fullmatch(text):
        raise OSError(f"{folder / _NAME} holds no workspace id")
    return text


def _made(folder: Path, new: str) -> str:
    folder.mkdir(exist_ok=True)
    with suppress(FileExistsError), (folder / ".gitignore").open("x") as ignore:
        ignore.write("*\n")
    temporary = folder / temporary_name()
    try:
        temporary.write_text(f"{new}\n")
        # Who comes second takes the id of who came first.
        with suppress(FileExistsError):
            os.link(temporary, folder / _NAME)
    finally:
        temporary.unlink(missing_ok=True)
    return _read(folder) or new
