"""The sources of a folder as trees, which all rules about them share: parsing takes longer than most rules."""

import ast
import gc
from collections.abc import Mapping
from functools import cache
from pathlib import Path

REPO = Path(__file__).resolve().parents[1]


@cache
def trees(folder: str) -> Mapping[str, ast.Module]:
    """Every Python file below a folder of the repository: path -> tree."""
    files = sorted((REPO / folder).rglob("*.py"))
    assert files, f"no Python below {folder}/"
    # A search for garbage among millions of nodes takes several times as long as to make them, and one that runs a
    # finalizer while a tree is built upsets the parser's count of its depth (SystemError, CPython 3.11).
    gc.disable()
    try:
        return {f.relative_to(REPO).as_posix(): ast.parse(f.read_bytes(), str(f)) for f in files}
    finally:
        gc.freeze()
        gc.enable()


def services() -> dict[str, ast.Module]:
    """The same of the services, by paths below services/, without the project of the demo, which agents repair."""
    found = {path.removeprefix("services/"): tree for path, tree in trees("services").items()}
    assert len(found) > 500
    return {path: tree for path, tree in found.items() if "/demo/" not in path}
