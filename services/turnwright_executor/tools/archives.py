"""Untrusted zip archives: unpacked in memory, within limits, and only if no name leaves the archive's folder.

Sizes are counted while unpacking, because an archive's own figures may be wrong. Source: row RU239.
"""

from __future__ import annotations

import stat
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Final
from zipfile import ZIP_DEFLATED, ZIP_STORED, BadZipFile, ZipFile, ZipInfo

from turnwright_executor.tools.contract import refusal
from turnwright_executor.tools.ports import GatheredFiles

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
