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

from turnwright_executor.edge.confinement import MARKER_FOLDER, Tree
from turnwright_executor.edge.contents import put_new, written_aside
from turnwright_executor.tools.ports import OutsideProjectError

_ID: Final = re.compile(r"[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}")
_MARKER: Final = f"{MARKER_FOLDER}/workspace"
_MARKER_BYTES_MAX: Final = 200


def workspace_id(root: str | Path, new_id: Callable[[], str] = lambda: str(uuid4())) -> str:
    """The id in the marker below the root, made where there is none.

    Where no marker can be written, or something else stands in its place, the id is that of the real path: it is
    the same again as long as the directory is not moved. Never raises OSError.
    """
    real = os.path.realpath(root)
    with suppress(OSError, OutsideProjectError), Tree(real) as tree:
        return _read(tree) or _made(tree, new_id())
    return str(uuid5(NAMESPACE_URL, Path(real).as_uri()))


def _read(tree: Tree) -> str | None:
    """The id of a marker, None where there is none. Raises OSError, OutsideProjectError where it is none of ours."""
    try:
        with tree.opened(_MARKER) as found:
            data = os.read(found[0], _MARKER_BYTES_MAX) if found else b""
    except FileNotFoundError:
        return None
    text = data.decode("ascii", errors="replace").strip()
    if not _ID.fullmatch(text):
        raise OSError(f"{tree.root}/{_MARKER} holds no workspace id")
    return text


def _made(tree: Tree, new: str) -> str:
    folder, name = tree.place(_MARKER, make=True)
    # Who comes second takes what came first.
    for data, wanted in ((b"*\n", ".gitignore"), (f"{new}\n".encode(), name)):
        with written_aside(folder, data) as temporary:
            put_new(temporary, wanted, folder)
    return _read(tree) or new
