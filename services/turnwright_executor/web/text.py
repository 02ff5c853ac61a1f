"""The text of a page: its media type, its charset, and its title.

Source: rows RU071, RU179.
"""

from __future__ import annotations

import codecs
import html
import re
from email.message import Message
from typing import Final

HTML_TYPES: Final = frozenset({"text/html", "application/xhtml+xml"})
_TEXT_TYPES: Final = re.compile(
    r"text/.+|application/(?:json|xml|yaml|x-yaml|toml|javascript|ecmascript|x-sh|sql)|[^;]+\+(?:json|xml|yaml)"
)
_CHARSETS: Final = re.compile(
    r"utf-(?:8|16|32)(?:-[bl]e)?|utf-8-sig|ascii|cp\d+|(?:iso8859|iso2022)[\w-]*|koi8-\w|mac-\w+|gb\w+|big5\w*|euc_\w+"
    r"|shift_jis\w*|johab|hz"
)
# Browsers treat these names as supersets. Without a BOM, UTF-16 and UTF-32 are little-endian.
_SUPERSETS: Final = {"ascii": "cp1252", "iso8859-1": "cp1252", "utf-16": "utf-16-le", "utf-32": "utf-32-le"}
_MARKS: Final = ((codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16"))
_META_CHARSET: Final = re.compile(
    rb"<meta[^>]{0,200}?charset\s{0,20}=\s{0,20}[\"']?\s{0,20}([\w.:-]{2,40})", re.IGNORECASE
)
_META_BYTES: Final = 2048
_TITLE: Final = re.compile(r"<title[^>]{0,200}>([^<]{1,2000})", re.IGNORECASE)
_HEAD_CHARS: Final = 64 * 1024
TITLE_CHARS_MAX: Final = 200


def media_type_of(content_type: str, data: bytes) -> str:
    """The media type in a header, in lower case; if there is none, guessed from the bytes."""
    named = content_type.partition(";")[0].strip().lower()
    if "/" in named and named != "application/octet-stream":
        return named
    start = data[:_META_BYTES].lstrip().lower()
    if start.startswith((b"<!doctype html", b"<html")):
        return "text/html"
    return "application/octet-stream" if b"\0" in data or not _is_utf8(data) else "text/plain"


def is_readable(media_type: str) -> bool:
    return media_type in HTML_TYPES or _TEXT_TYPES.fullmatch(media_type) is not None


def decoded(data: bytes, content_type: str, *, is_cut: bool = False) -> str:
    """The decoded text of a page: by BOM, header or meta tag, else guessed from the bytes.

    Never raises: undecodable bytes are replaced. If the end `is_cut` off, so is half a character.
    """
    names = [*_marked(data), *_named(content_type), *_declared(data), "utf-8"]
    for name in names:
        try:
            return _clean(codecs.getincrementaldecoder(name)().decode(data, final=not is_cut))
        except UnicodeError:
            continue
    fallback = names[0] if len(names) > 1 else "cp1252"
    return _clean(data.decode(fallback, "replace"))


def _clean(text: str) -> str:
    """The text without characters that the store refuses, and without carriage returns."""
    return text.replace("\0", "").replace("\r\n", "\n").replace("\r", "\n")


def _marked(data: bytes) -> list[str]:
    return [name for mark, name in _MARKS if data.startswith(mark)][:1]


def _named(content_type: str) -> list[str]:
    message = Message()
    message["content-type"] = content_type[:500]
    charset = message.get_param("charset", "")
    return _codec(charset if isinstance(charset, str) else "")


def _declared(data: bytes) -> list[str]:
    found = _META_CHARSET.search(data[:_META_BYTES])
    named = _codec(found[1].decode("ascii", "replace")) if found else []
    # The meta tag was found byte by byte, so it cannot be a wide encoding.
    return [name for name in named if not name.startswith(("utf-16", "utf-32"))]


def _codec(name: str) -> list[str]:
    """The codec of a charset's name; None for anything else: Python has codecs that are not charsets."""
    try:
        found = codecs.lookup(name.strip()).name
    except (LookupError, ValueError):
        return []
    return [_SUPERSETS.get(found, found)] if _CHARSETS.fullmatch(found) else []


def _is_utf8(data: bytes) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        decoder.decode(data)
    except UnicodeDecodeError:
        return False
    return True


def title_of(text: str) -> str:
    """The title of an HTML page, one line; empty if it has none."""
    found = _TITLE.search(text[:_HEAD_CHARS])
    return " ".join(html.unescape(found[1]).split())[:TITLE_CHARS_MAX] if found else ""
