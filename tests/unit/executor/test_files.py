"""Project files as entries: what a run is told of the disk. Rows RU115, RU165, RU166, RU168."""

from __future__ import annotations

import hashlib

import pytest
from turnwright_values.store import RemoveEntry, SetEntry
from turnwright_values.types import Visibility

from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.turn.project_files import EMPTY_HASH, FileSync, in_batches

pytestmark = pytest.mark.asyncio


def sync(root, known=None) -> FileSync:
    return FileSync(DiskScanner(root, file_bytes_max=10_000, files_max=100), known or {})


def told(writes) -> dict[str, str | None]:
    """The body that each path is written with, None where it is removed."""
    return {write.path: getattr(write.change, "body", None) for write in writes}


async def test_the_first_look_tells_every_file_archived(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.bin").write_bytes(b"\xff\xfe")
    writes = await sync(tmp_path).writes()
    assert told(writes) == {"a.txt": "one", "b.bin": ""}
    assert {write.change.initial_visibility for write in writes} == {Visibility.ARCHIVED}
    assert all(isinstance(write.change, SetEntry) for write in writes)


async def test_later_looks_tell_what_changed_only(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("one")
    (tmp_path / "b.txt").write_text("two")
    looking = sync(tmp_path)
    await looking.writes()
    (tmp_path / "a.txt").write_text("other")
    (tmp_path / "b.txt").unlink()
    assert told(await looking.writes()) == {"a.txt": "other", "b.txt": None}
    assert await looking.writes() == []


async def test_a_run_that_knows_the_files_is_told_nothing_but_what_is_gone(tmp_path) -> None:
    (tmp_path / "a.txt").write_text("one")
    known = {"a.txt": hashlib.sha256(b"one").hexdigest(), "gone.txt": EMPTY_HASH}
    writes = await sync(tmp_path, known).writes()
    assert [(write.path, write.change) for write in writes] == [("gone.txt", RemoveEntry())]


async def test_the_manifest_lists_every_file_with_its_tokens_in_path_order(tmp_path) -> None:
    (tmp_path / "b.txt").write_text("12345")
    (tmp_path / "a.txt").write_text("")
    looking = sync(tmp_path)
    await looking.writes()
    manifest = looking.manifest()
    assert (manifest.path, manifest.change.body) == (
        "log://turn_0/repo/manifest",
        "* a.txt - 0 tokens\n* b.txt - 3 tokens",
    )


async def test_batches_hold_every_write_once_and_fit_a_message(tmp_path) -> None:
    for number in range(60):
        (tmp_path / f"{number}.txt").write_text("x" * 9_000)
    writes = await sync(tmp_path).writes() * 6
    batches = list(in_batches(writes))
    assert [write for batch in batches for write in batch] == writes
    assert len(batches) == 2
