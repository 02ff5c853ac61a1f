"""Repositories as somebody would make them who wants more than to be read."""

from __future__ import annotations

import hashlib
import struct
import subprocess
from collections.abc import Mapping
from pathlib import Path

FILE, GITLINK = 0o100644, 0o160000


def git(folder: Path, *arguments: str) -> None:
    subprocess.run(["git", *arguments], cwd=folder, check=True, capture_output=True)


def index_of(names: Mapping[str, int]) -> bytes:
    """An index that lists these names with these modes; git itself would not write most of them."""
    data = struct.pack(">4sLL", b"DIRC", 2, len(names))
    for name, mode in sorted(names.items(), key=lambda one: one[0].encode()):
        path = name.encode()
        entry = struct.pack(">10L20sH", 0, 0, 0, 0, 0, 0, mode, 0, 0, 0, b"\1" * 20, min(len(path), 0xFFF)) + path
        data += entry + b"\0" * (8 - len(entry) % 8)
    return data + hashlib.sha1(data).digest()


def write_index(root: Path, *names: str, mode: int = FILE) -> None:
    (root / ".git" / "index").write_bytes(index_of(dict.fromkeys(names, mode)))


def promising(root: Path, program: str) -> None:
    """A sparse clone that lacks a folder's tree and has a program fetch it: git wants the tree to list the files."""
    origin = root.parent / "origin"
    (origin / "far").mkdir(parents=True)
    (origin / "far" / "b.txt").write_text("b")
    (origin / "a.txt").write_text("a")
    git(origin, "init", "-q")
    git(origin, "add", ".")
    git(origin, "-c", "user.name=x", "-c", "user.email=x", "commit", "-qm", "x")
    root.rmdir()
    git(root.parent, "clone", "-q", "--no-local", f"file://{origin}", str(root))
    git(root, "sparse-checkout", "set", "--cone", "--sparse-index", "near")
    (tree,) = subprocess.run(
        ["git", "rev-parse", "HEAD:far"], cwd=root, check=True, capture_output=True, text=True
    ).stdout.split()
    for pack in (root / ".git" / "objects" / "pack").glob("*.pack"):
        # Out of the pack, into single files, of which one is missing.
        outside = root.parent / pack.name
        pack.rename(outside)
        pack.with_suffix(".idx").unlink()
        with outside.open("rb") as objects:
            subprocess.run(["git", "unpack-objects", "-q"], cwd=root, check=True, stdin=objects)
    missing = root / ".git" / "objects" / tree[:2] / tree[2:]
    missing.unlink(missing_ok=True)
    for key, value in (
        ("core.repositoryFormatVersion", "1"),
        ("extensions.partialClone", "origin"),
        ("remote.origin.promisor", "true"),
        ("remote.origin.uploadpack", program),
        ("protocol.allow", "always"),
    ):
        git(root, "config", key, value)
