"""Where the body of an open tag ends.

Bodies are opaque: inside one only tags of the same name are counted, so that `<set>` documenting
`<set>` survives. When no close balances an open, the body ends at the first of: its own close, a
close of another tool that belongs to nothing inside the body (a typo), the next tool tag that
starts a line, the end of the text.

A tool whose arguments are attributes (`get`, `rm`, `mv`, `cp`) has no body where another tool's tag
follows at once, and when it is unclosed at most what stands on its line.

An ending is `settled` when no further text can change it. Before the end of the reply only a balanced
close settles a body that has begun. Source: RU287, RU289, RU290, C19, C39.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from turnwright_grammar import dialects
from turnwright_grammar.find import Finder
from turnwright_grammar.reader.tags import Tag, begins_line, follows_backtick, lex_tag, opener_of, plain_of

How = Literal["self", "reopened", "closed", "empty", "unbalanced", "mismatched", "sibling", "end"]

LATER_TAGS_MAX = 10
# An unclosed tool without a body does not consume the text that was searched for its end, so the search is bounded.
STOPS_TRIED_MAX = 20
CALL_LINES_TRIED_MAX = 1_000
TAG_SHOWN = re.compile(r"<[^<>\n]{0,200}[<>\n]|<[^<>\n]{200}")
"""What an unfinished text must hold at a `<` to tell what tag it begins."""
_CALL_LINE = re.compile(r"^[ \t]*(?=[<\[{A>f`*\u273f])", re.MULTILINE)
_CALL_SHAPE = re.compile(
    r"""<\|(?:channel|start)\|>|\*\*\*\ Begin\ Patch|```(?:tool_c|json\s*\n\s*[\[{])|\[[A-Za-z_][\w.]{0,40}\("""
    r"""|[\[{]\s{0,16}(?:[\[{]\s{0,16})?["'](?:name|function|tool|tool_name|tool_calls?|function_?[cC]all)["']\s{0,4}:"""
)
_BLANKS = re.compile(r"\s*")
BODILESS = frozenset({"get", "rm", "mv", "cp"})
_REST_OF_LINE = re.compile(r"[^\n]*")
_FIRST_LINE = re.compile(r"\s*[^\n]*")


class TagEnd(Struct, frozen=True):
    """How a tag ends: its body's offsets and the offset after its close."""

    how: How
    body_start: int
    body_end: int
    end: int
    settled: bool = True


class Bodies:
    """Finds the endings of the tags of one text; all of them together are linear in it."""

    def __init__(self, finder: Finder, tools: frozenset[str]) -> None:
        self.finder = finder
        self.any_tool = opener_of(tools)
        self._plain = plain_of(tools)
        self._own: dict[str, re.Pattern[str]] = {}
        self._partners: dict[str, dict[int, Tag]] = {}

    def plain(self, start: int) -> re.Match[str] | None:
        """Return the call at `start` if nothing before or behind it can change how it ends; see `plain_of`."""
        found = self._plain.match(self.finder.text, start)
        if found is None or found[1] in self._partners:
            return None
        # `<set path="a"/>` may have a body after all.
        return None if found[3] is None and found[1] == "set" else found

    def ending(self, tag: Tag) -> TagEnd:
        """Return how an open or self-closing tag ends."""
        if tag.kind == "self":
            return self._self_closed(tag)
        if not tag.complete:
            return TagEnd("empty", tag.end, tag.end, tag.end)
        if tag.name in BODILESS and (empty := self._emptied(tag)):
            return empty
        close, settled = self._balanced(tag)
        if close is not None:
            return TagEnd("closed", tag.end, close.start, close.end)
        return self._unclosed(tag) if settled else TagEnd("end", tag.end, tag.end, tag.end, settled=False)

    def _unclosed(self, tag: Tag) -> TagEnd:
        if not tag.attributes and not begins_line(self.finder.text, tag.start):
            # The word `<get>` in a sentence; nothing that follows would be its body.
            return TagEnd("end", tag.end, tag.end, tag.end)
        return self._recovered(tag)

    def _self_closed(self, tag: Tag) -> TagEnd:
        """Where `<set path="a"/>` ends: it has a body after all when its own close is the next tool tag."""
        ending = TagEnd("self", tag.end, tag.end, tag.end)
        if tag.name != "set" or tag.attributes.keys() != {"path"}:
            return ending
        other = next(self._tags(tag.end, 1), tag)
        if other is None:
            return _unsettled(tag)
        if other.kind == "close" and other.name == tag.name:
            return TagEnd("reopened", tag.end, other.start, other.end)
        return ending

    def later_closes(self, tag: Tag, ending: TagEnd) -> Iterator[Tag | None]:
        """Yield closes of the same tool after `ending` that belong to no open; None where more text is needed.

        The search stops at the next tag of another call that starts a line, or after ten tags.
        """
        depth = 0
        for other in self._tags(ending.end, LATER_TAGS_MAX):
            if other is None:
                yield None
                return
            if other.kind != "close" and other.plausible and begins_line(self.finder.text, other.start):
                return
            if other.name == tag.name and other.kind == "open":
                depth += 1
            elif other.name == tag.name and other.kind == "close":
                depth -= 1
                if depth < 0:
                    yield other

    def _balanced(self, tag: Tag) -> tuple[Tag | None, bool]:
        """Return the close that balances `tag`, and whether that is settled."""
        if tag.name in self._partners:
            return self._partners[tag.name].get(tag.start), True
        finder, text = self.finder, self.finder.text
        pattern = self._own_pattern(tag.name)
        partners: dict[int, Tag] = {}
        stack: list[tuple[int, bool]] = [(tag.start, False)]
        position = tag.end
        while found := pattern.search(text, position):
            other = lex_tag(text, found)
            position = max(other.end, found.end())
            if not finder.final and (other.touched or self._needs_next(other, stack)):
                return None, False
            if other.kind == "open" and other.plausible:
                stack.append((other.start, follows_backtick(text, other.start)))
            elif other.kind == "close":
                opened = _popped(text, stack, other)
                if opened == tag.start:
                    return other, True
                if opened is not None:
                    partners[opened] = other
        if finder.final:
            self._partners[tag.name] = partners
        return None, finder.final

    def _needs_next(self, other: Tag, stack: list[tuple[int, bool]]) -> bool:
        # Whether a backtick follows a close matters only where one precedes it or its open.
        text = self.finder.text
        return other.end >= len(text) and (follows_backtick(text, other.start) or stack[-1][1])

    def _emptied(self, tag: Tag) -> TagEnd | None:
        """Return the ending of a tag that another tool's tag follows at once, or None when none does."""
        text = self.finder.text
        begin = _BLANKS.match(text, tag.end).end()  # type: ignore[union-attr]
        if not text.startswith("<", begin):
            return _unsettled(tag) if begin >= len(text) and not self.finder.final else None
        if not self.finder.final and not TAG_SHOWN.match(text, begin):
            return _unsettled(tag)
        found = self.any_tool.match(text, begin)
        other = lex_tag(text, found) if found else None
        if other is None or (other.touched and not self.finder.final):
            return _unsettled(tag) if other else None
        follows = other.kind != "close" and other.plausible
        return TagEnd("empty", tag.end, tag.end, tag.end) if follows else None

    def _on_its_line(self, tag: Tag, how: How, stop: int) -> TagEnd:
        # What follows on later lines is said to the reader, not a filter of this command.
        line = (_REST_OF_LINE if "path" in tag.attributes else _FIRST_LINE).match(self.finder.text, tag.end, stop)
        end = line.end() if line else tag.end
        return TagEnd(how, tag.end, end, end)

    def _recovered(self, tag: Tag) -> TagEnd:
        """Where a body without a balancing close ends; the whole text is known."""
        ending = self._stopped(tag)
        if tag.name == "think" and (call := self._call_line(tag.end, ending.body_end)) is not None:
            # Reasoning that was never closed holds no vendor's call: the model went on to it.
            return TagEnd("sibling", tag.end, call, call)
        if tag.name in BODILESS and ending.how in ("sibling", "end"):
            return self._on_its_line(tag, ending.how, ending.body_end)
        return ending

    def _call_line(self, position: int, end: int) -> int | None:
        """Where the first line begins that is a call in a vendor's notation, or None."""
        text = self.finder.text
        for _ in range(CALL_LINES_TRIED_MAX):
            line = self.finder.search(_CALL_LINE, position)
            if line is None or line.end() >= end:
                return None
            start = position = line.end()
            token = dialects.TOKEN.match(text, start)
            if token and dialects.announces_call(token[0]):
                return start
            if dialects.FUNCTION_TAG.match(text, start) or _CALL_SHAPE.match(text, start):
                return start
        return None

    def _stopped(self, tag: Tag) -> TagEnd:
        text = self.finder.text
        inner: Counter[str] = Counter()
        for other in self._tags(tag.end, STOPS_TRIED_MAX if tag.name in BODILESS else None):
            if other is None:
                break
            if other.kind == "close":
                if other.name == tag.name:
                    return TagEnd("unbalanced", tag.end, other.start, other.end)
                if not inner[other.name]:
                    return TagEnd("mismatched", tag.end, other.start, other.end)
                inner[other.name] -= 1
            elif other.plausible:
                if not text[tag.end : other.start].strip():
                    return TagEnd("empty", tag.end, tag.end, tag.end)
                if begins_line(text, other.start):
                    return TagEnd("sibling", tag.end, other.start, other.start)
                if other.kind == "open":
                    inner[other.name] += 1
        return TagEnd("end", tag.end, len(text), len(text))

    def _tags(self, position: int, tags_max: int | None = None) -> Iterator[Tag | None]:
        """Yield the tool tags from `position` on that are not quoted; None where more text is needed."""
        finder, text = self.finder, self.finder.text
        count = 0
        while tags_max is None or count < tags_max:
            found = finder.search(self.any_tool, position)
            if found is None:
                if not finder.final:
                    yield None
                return
            tag = lex_tag(text, found)
            if tag.touched and not finder.final:
                yield None
                return
            position = max(tag.end, found.end())
            count += 1
            if not follows_backtick(text, tag.start):
                yield tag

    def _own_pattern(self, name: str) -> re.Pattern[str]:
        pattern = self._own.get(name)
        if pattern is None:
            pattern = self._own[name] = opener_of(frozenset({name}))
        return pattern


def _popped(text: str, stack: list[tuple[int, bool]], close: Tag) -> int | None:
    """Take the open that `close` ends off the stack and return where it starts; None when it ends none."""
    followed = text.startswith("`", close.end)
    if followed and follows_backtick(text, close.start):
        return None
    while stack and stack[-1][1]:
        stack.pop()
        if followed:
            return None
    return stack.pop()[0] if stack else None


def _unsettled(tag: Tag) -> TagEnd:
    return TagEnd("self", tag.end, tag.end, tag.end, settled=False)
