"""Which close belongs to which open, and where an unclosed tag ends.

Bodies are opaque: inside a body only tags of the same name are counted, so that `<set>` documenting
`<set>` survives. When no close balances an open, the body ends at the first of: its own close, a
close of another tool that belongs to nothing inside the body (a typo), the next tool tag that
starts a line, the end of the text.

Source: RU287, RU289, RU290, C19, C39.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from turnwright_grammar.tags import Tag

How = Literal["self", "closed", "empty", "unbalanced", "mismatched", "sibling", "end"]

# Tools whose arguments are attributes: a tag that follows their opening at once is never their body.
_LATER_TAGS_MAX = 10
_BODILESS = frozenset({"get", "rm", "mv", "cp"})


@dataclass(frozen=True, slots=True)
class Ending:
    """How a tag ends: its body's offsets and the offset after its close."""

    how: How
    body_start: int
    body_end: int
    end: int


class Pairing:
    """The tags of one text with their partners. Building is linear; so are all `ending`s together."""

    def __init__(self, text: str, tags: list[Tag]) -> None:
        self.text = text
        self.tags = tags
        self.index_at = {tag.start: index for index, tag in enumerate(tags)}
        self.partner: dict[int, int] = {}
        self.ignored: set[int] = set()
        stacks: dict[str, list[int]] = {}
        for index, tag in enumerate(tags):
            stack = stacks.setdefault(tag.name, [])
            if tag.kind == "open" and tag.plausible:
                stack.append(index)
            elif tag.kind == "close":
                self._pop(stack, index)

    def _pop(self, stack: list[int], index: int) -> None:
        tag = self.tags[index]
        if tag.quoted:
            self.ignored.add(index)
            return
        followed = self.text.startswith("`", tag.end)
        while stack and self.tags[stack[-1]].quoted:
            opened = stack.pop()
            if followed:
                self.ignored.update((opened, index))
                return
        if stack:
            opened = stack.pop()
            self.partner[opened], self.partner[index] = index, opened

    def ending(self, index: int) -> Ending:
        """Return how the open or self-closing tag at `index` ends."""
        tag = self.tags[index]
        if tag.kind == "self":
            return Ending("self", tag.end, tag.end, tag.end)
        partner = self.partner.get(index)
        if self._emptied(index, closed=partner is not None):
            return Ending("empty", tag.end, tag.end, tag.end)
        if partner is not None:
            close = self.tags[partner]
            return Ending("closed", tag.end, close.start, close.end)
        return self._recovered(index)

    def later_closes(self, index: int) -> Iterator[int]:
        """Yield closes of the same tool after the partner of `index` that belong to no open; a few at most.

        The search stops at the next tag of another call that starts a line.
        """
        name, partner = self.tags[index].name, self.partner[index]
        for later in range(partner + 1, min(partner + 1 + _LATER_TAGS_MAX, len(self.tags))):
            tag = self.tags[later]
            if tag.kind == "close" and tag.name == name and later not in self.partner:
                yield later
            elif tag.kind != "close" and tag.first and tag.plausible:
                return

    def _emptied(self, index: int, *, closed: bool) -> bool:
        """Whether another tool tag opens before this one has any body (RU290).

        A closed `set`, `update` or `think` is left alone: only its own close ends its body (C19).
        """
        tag = self.tags[index]
        if not tag.complete:
            return True
        if closed and tag.name not in _BODILESS:
            return False
        following = self.tags[index + 1] if index + 1 < len(self.tags) else None
        if following is None or following.kind == "close" or following.quoted or not following.plausible:
            return False
        return not self.text[tag.end : following.start].strip()

    def _recovered(self, index: int) -> Ending:
        tag = self.tags[index]
        for later in range(index + 1, len(self.tags)):
            other = self.tags[later]
            if other.quoted or later in self.ignored:
                continue
            if other.kind == "close":
                if other.name == tag.name:
                    return Ending("unbalanced", tag.end, other.start, other.end)
                if self.partner.get(later, -1) < index:
                    return Ending("mismatched", tag.end, other.start, other.end)
            elif other.first and other.plausible:
                return Ending("sibling", tag.end, other.start, other.start)
        return Ending("end", tag.end, len(self.text), len(self.text))
