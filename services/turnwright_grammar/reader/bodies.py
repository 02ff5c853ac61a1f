"""Matching of open and close tags: where the body of an open tag ends.

Bodies are opaque: inside one, only tags of the same name are counted, so that a `<set>` can document `<set>`.
Error recovery for an open tag without its close: the body ends at the first of its own close, a close of another tool
without an open inside the body (a typo), the next tool tag that starts a line, the end of the text.

A tool whose arguments are attributes (`get`, `rm`, `mv`, `cp`) has no body if another tool's tag follows at once; an
unclosed one has at most the rest of its line.

An end is `settled` when no further text can change it. Before the end of the reply, only a balanced close settles a
body. Source: RU287, RU289, RU290, C19, C39.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

from turnwright_grammar import dialects
from turnwright_grammar.reader.tags import Tag, begins_line, follows_backtick, lex_tag, simple_call_pattern, tag_pattern
from turnwright_grammar.scanner import TextScanner

How = Literal["self", "reopened", "closed", "empty", "unbalanced", "mismatched", "sibling", "end"]

LATER_TAGS_MAX = 10
# An unclosed tool without a body does not consume the text that was searched for its end, so the search is bounded.
STOPS_TRIED_MAX = 20
WHOLE_TAG = re.compile(r"<[^<>\n]{0,200}[<>\n]|<[^<>\n]{200}")
"""The lookahead at a `<` that decides which tag it begins."""
_CALL_SHAPE = re.compile(
    r"""<\|(?:channel|start)\|>|\*\*\*\ Begin\ Patch|```(?:tool_c|json\s*\n\s*[\[{])|\[[A-Za-z_][\w.]{0,40}\("""
    r"""|[\[{]\s{0,16}(?:[\[{]\s{0,16})?["'](?:name|function|tool|tool_name|tool_calls?|function_?[cC]all)["']\s{0,4}:"""
)
_CALL_BEGIN = re.compile(
    r"(?=(?P<message><\|(?:channel|start)\|>)|<[|\uff5c]|<(?:[a-z]\w{0,20}[:|])?(?:tool|function|longcat|dots|invoke|action)"
    r"|\[(?:TOOL_|ARGS)|functools\[)|(?<=\n)[ \t]*+(?=[<\[{A>f`*\u273f])",
    re.IGNORECASE,
)
_BLANKS = re.compile(r"\s*")
THOUGHT_END = re.compile(
    r"""
      </\s?(?:think(?:ing)?|thoughts?|reason(?:ing)?|reflection|scratchpad|seed:think)\s{0,8}>
    | <\|(?:END_THINKING|end_of_thought|inner_suffix)\|> | <channel\|> | \[/THINK\] | \u25c1/think\u25b7
    """,
    re.VERBOSE | re.IGNORECASE,
)
"""The close of a thought, in any dialect. One that was never opened ends a body that is not closed, too (C59)."""
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


class BodyFinder:
    """Finds the ends of the tags of one text, in linear time for all of them together."""

    def __init__(self, scanner: TextScanner, tools: frozenset[str]) -> None:
        self.scanner = scanner
        self.any_tool = tag_pattern(tools)
        self._plain = simple_call_pattern(tools)
        self._own: dict[str, re.Pattern[str]] = {}
        self._partners: dict[str, dict[int, Tag]] = {}
        self._call_at = -1
        self._no_call_before = 0

    def simple_call(self, start: int) -> re.Match[str] | None:
        """The call at `start` if no other text can change how it ends; see `simple_call_pattern`."""
        found = self._plain.match(self.scanner.text, start)
        if found is None or found[1] in self._partners:
            return None
        # `<set path="a"/>` may have a body after all.
        return None if found[3] is None and found[1] == "set" else found

    def find_end(self, tag: Tag) -> TagEnd:

        if tag.kind == "self":
            return self._self_closed(tag)
        if not tag.complete:
            return TagEnd("empty", tag.end, tag.end, tag.end)
        if tag.name in BODILESS and (empty := self._empty_body(tag)):
            return empty
        close, settled = self._balanced(tag)
        if close is not None:
            return TagEnd("closed", tag.end, close.start, close.end)
        return self._unclosed(tag) if settled else TagEnd("end", tag.end, tag.end, tag.end, settled=False)

    def _unclosed(self, tag: Tag) -> TagEnd:
        if not tag.attributes and not begins_line(self.scanner.text, tag.start):
            # The word `<get>` in a sentence; nothing that follows would be its body.
            return TagEnd("end", tag.end, tag.end, tag.end)
        return self._recover(tag)

    def _self_closed(self, tag: Tag) -> TagEnd:
        """The end of `<set path="a"/>`: it has a body after all if its own close is the next tool tag."""
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
        """Yield unmatched closes of the same tool after `ending`; None if more text is needed.

        Stops at the next tag of another call that starts a line, or after ten tags.
        """
        depth = 0
        for other in self._tags(ending.end, LATER_TAGS_MAX):
            if other is None:
                yield None
                return
            if other.kind != "close" and other.plausible and begins_line(self.scanner.text, other.start):
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
        scanner, text = self.scanner, self.scanner.text
        pattern = self._own_pattern(tag.name)
        partners: dict[int, Tag] = {}
        stack: list[tuple[int, bool]] = [(tag.start, False)]
        position = tag.end
        while found := pattern.search(text, position):
            other = lex_tag(text, found)
            position = max(other.end, found.end())
            if not scanner.final and (other.touched or self._needs_next(other, stack)):
                return None, False
            if other.kind == "open" and other.plausible:
                stack.append((other.start, follows_backtick(text, other.start)))
            elif other.kind == "close":
                opened = _pop_opener(text, stack, other)
                if opened == tag.start:
                    return other, True
                if opened is not None:
                    partners[opened] = other
        if scanner.final:
            self._partners[tag.name] = partners
        return None, scanner.final

    def _needs_next(self, other: Tag, stack: list[tuple[int, bool]]) -> bool:
        # Whether a backtick follows a close matters only where one precedes it or its open.
        text = self.scanner.text
        return other.end >= len(text) and (follows_backtick(text, other.start) or stack[-1][1])

    def _empty_body(self, tag: Tag) -> TagEnd | None:
        """The end of a tag that another tool's tag follows at once; None if none does."""
        text = self.scanner.text
        begin = _BLANKS.match(text, tag.end).end()  # type: ignore[union-attr]
        if not text.startswith("<", begin):
            return _unsettled(tag) if begin >= len(text) and not self.scanner.final else None
        if not self.scanner.final and not WHOLE_TAG.match(text, begin):
            return _unsettled(tag)
        found = self.any_tool.match(text, begin)
        other = lex_tag(text, found) if found else None
        if other is None or (other.touched and not self.scanner.final):
            return _unsettled(tag) if other else None
        follows = other.kind != "close" and other.plausible
        return TagEnd("empty", tag.end, tag.end, tag.end) if follows else None

    def _on_its_line(self, tag: Tag, how: How, stop: int) -> TagEnd:
        # Later lines are prose for the user, not a filter of this command.
        line = (_REST_OF_LINE if "path" in tag.attributes else _FIRST_LINE).match(self.scanner.text, tag.end, stop)
        end = line.end() if line else tag.end
        return TagEnd(how, tag.end, end, end)

    def _recover(self, tag: Tag) -> TagEnd:
        """Error recovery: the end of a body without a balancing close; the whole text is known."""
        thought_end = self.scanner.search(THOUGHT_END, tag.end)
        limit = thought_end.start() if thought_end else len(self.scanner.text)
        if tag.name == "think" and (call := self._next_call(tag.end, limit)) is not None:
            # Reasoning that was never closed holds no vendor's call: the model went on to it.
            limit = call
        ending = self._first_stop(tag, limit)
        if limit < ending.end:
            return TagEnd("sibling", tag.end, limit, limit)
        if tag.name in BODILESS and ending.how in ("sibling", "end"):
            return self._on_its_line(tag, ending.how, ending.body_end)
        return ending

    def _next_call(self, position: int, end: int) -> int | None:
        """The start of the first call in a vendor's notation: on its own line, or whole behind a vendor's token."""
        # Amortized: positions grow, so what was searched for an earlier tag is not searched again.
        if self._call_at < position:
            begin = max(position, self._no_call_before)
            while begin < end and self._call_at < position:
                found = self.scanner.search(_CALL_BEGIN, begin)
                if found is None or found.end() >= end:
                    begin = end
                    continue
                begin = found.end() + 1
                self._call_at = found.end() if self._is_call(found) else self._call_at
            self._no_call_before = begin
        return self._call_at if position <= self._call_at < end else None

    def _is_call(self, found: re.Match[str]) -> bool:
        text, start = self.scanner.text, found.end()
        token = dialects.TOKEN.match(text, start)
        is_announced = token is not None and dialects.announces_call(token[0])
        is_announced = is_announced or dialects.FUNCTION_TAG.match(text, start) is not None
        if found["message"] or ((is_announced or _CALL_SHAPE.match(text, start)) and begins_line(text, start)):
            return True
        if not (is_announced and self.scanner.can_spend(start)):
            return False
        position = start
        while (token := dialects.TOKEN.match(text, position)) and dialects.announces_call(token[0]):
            position = _BLANKS.match(text, token.end()).end()  # type: ignore[union-attr]
        payload = dialects.read_payload(self.scanner, position)
        if payload is not None and payload.calls and not payload.cut:
            return True
        # The next of these tokens is looked at in its turn, with all behind it.
        self.scanner.spend(position - start)
        return False

    def _first_stop(self, tag: Tag, limit: int) -> TagEnd:
        text = self.scanner.text
        inner: Counter[str] = Counter()
        for other in self._tags(tag.end, STOPS_TRIED_MAX if tag.name in BODILESS else None):
            if other is None or other.start >= limit:
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
        """Yield the tool tags from `position` on that are not in backticks; None if more text is needed."""
        scanner, text = self.scanner, self.scanner.text
        count = 0
        while tags_max is None or count < tags_max:
            found = scanner.search(self.any_tool, position)
            if found is None:
                if not scanner.final:
                    yield None
                return
            tag = lex_tag(text, found)
            if tag.touched and not scanner.final:
                yield None
                return
            position = max(tag.end, found.end())
            count += 1
            if not follows_backtick(text, tag.start):
                yield tag

    def _own_pattern(self, name: str) -> re.Pattern[str]:
        pattern = self._own.get(name)
        if pattern is None:
            pattern = self._own[name] = tag_pattern(frozenset({name}))
        return pattern


def _pop_opener(text: str, stack: list[tuple[int, bool]], close: Tag) -> int | None:
    """Pop the open tag that `close` ends; return its start, or None if it ends none."""
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
