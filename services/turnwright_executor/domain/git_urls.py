"""URLs of git repositories, and those that an operator allows. A URL that is not plain is refused, not interpreted."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Final
from urllib.parse import unquote

from msgspec import Struct

URL_CHARS_MAX: Final = 2048
"""Longest URL, in characters."""

REF_CHARS_MAX: Final = 255
"""Longest name of a branch or tag, in characters."""

_URL: Final = re.compile(
    r"(https?://|ssh://(?:[A-Za-z0-9_][A-Za-z0-9._-]*@)?)"
    r"((?:[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?)(/.*)?"
)
_FILE: Final = re.compile(r"(file://)()(/.*)")
_PATH: Final = re.compile(r"(?:/[A-Za-z0-9._~@+-][A-Za-z0-9._~@+ -]*)*")
_REF: Final = re.compile(r"(?!-)[^\s\x00-\x20\x7f~^:?*\[\\]+")


class GitUrl(Struct, frozen=True):
    """A URL in its one form, without a slash at its end."""

    text: str
    server: str
    """What is before the path: the protocol, the user for ssh, the host and the port."""
    path: str

    @property
    def protocol(self) -> str:
        return self.server.partition(":")[0]

    @property
    def name(self) -> str:
        """A name for a directory of it."""
        last = re.sub(r"[^A-Za-z0-9._-]", "-", self.path.rpartition("/")[2].removesuffix(".git"))
        return last.lstrip(".-")[:100] or "project"

    def is_below(self, other: GitUrl) -> bool:
        return self.server == other.server and f"{self.path}/".startswith(f"{other.path}/")


def git_url(text: str) -> GitUrl:
    """Raises ValueError with a sentence, which does not repeat the URL: it may have a password."""
    plain = text.rstrip("/") if len(text) <= URL_CHARS_MAX else ""
    found = _URL.fullmatch(plain) or _FILE.fullmatch(plain)
    raw = (found[3] or "") if found else ""
    path = unquote(raw)
    is_plain = _PATH.fullmatch(path) and not {".", ".."} & set(path.split("/")) and "%2f" not in raw.lower()
    if not found or not is_plain:
        raise ValueError(
            "must be a URL such as https://git.example.com/team/shop.git or ssh://git@git.example.com/team/shop.git, "
            "without a password, `..`, `?` or `#`"
        )
    server = found[1] + found[2].lower()
    return GitUrl(server + raw, server, path)


def check_ref(text: str) -> str:
    """The name of a branch or tag, or nothing. Raises ValueError with a sentence."""
    if text and (len(text) > REF_CHARS_MAX or not _REF.fullmatch(text) or ".." in text or "@{" in text):
        raise ValueError("must be the name of a branch or a tag, such as main")
    return text


def git_urls(text: str) -> Sequence[GitUrl]:
    """Those of a setting. Raises ValueError with a sentence."""
    return [git_url(part.strip()) for part in text.split(",") if part.strip()]
