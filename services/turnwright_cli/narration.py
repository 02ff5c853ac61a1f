"""What a model says around its commands, while it is still writing: commands are shown by what became of them."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_TAG: Final = re.compile(r"<([a-z_]+)(?=[\s/>])")
_BEGUN: Final = re.compile(r"<[a-z_]*")


class Narration:
    """Takes a reply in pieces, and gives back the text outside of its commands."""

    def __init__(self, tools: Collection[str]) -> None:
        """`tools` are the names of commands; other tags are text."""
        self._tools = tools
        self._rest = ""
        self._open = ""
        """The command that is being written."""

    def feed(self, text: str) -> str:
        """The text that can be shown by now."""
        self._rest += text
        shown: list[str] = []
        while self._rest and self._step(shown):
            pass
        return "".join(shown)

    def _step(self, shown: list[str]) -> bool:
        """Take one piece of what is left; False to wait for more."""
        if self._open:
            return self._to_its_end(f"</{self._open}>")
        before, bracket, after = self._rest.partition("<")
        shown.append(before)
        self._rest = bracket + after
        tag = _TAG.match(self._rest)
        if tag is None or tag[1] not in self._tools:
            if _BEGUN.fullmatch(self._rest):
                return False
            shown.append(bracket)
            self._rest = after
            return True
        opening, end, rest = self._rest.partition(">")
        if not end:
            return False
        self._rest = rest
        self._open = "" if opening.endswith("/") else tag[1]
        return True

    def _to_its_end(self, closing: str) -> bool:
        before, end, rest = self._rest.partition(closing)
        if not end:
            self._rest = before[-len(closing) :]
            return False
        # The line feed behind a command ends its line, and is none of the text.
        self._rest, self._open = rest.removeprefix("\n"), ""
        return True
