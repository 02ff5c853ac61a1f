"""Approval rules: what becomes of an effect that nobody has decided on, by the rules that hold in its run.

Pure functions over values: the executor asks them before it proposes an effect, and the store once more in the
transaction of the mark that precedes it, so both say the same. Everything errs to one side: what is not certain is not
allowed, and is denied or asked about if it looks like what a rule denies or asks about. Source: docs/adr/0067.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct, field
from turnwright_values.types import DecidingRule, Mode, Rule, RuleLevel, RuleVerdict

from turnwright_core.constraints import leaves_the_project
from turnwright_core.patterns.typography import composed
from turnwright_core.shell_words import SimpleCommand, Word, loose_words, read_line, runner_words

RULES_MAX: Final = 500
"""Most rules of one level."""

TARGET_CHARS_MAX: Final = 512
"""Longest pattern, in code points."""

TARGETS_MAX: Final = 10
"""Most patterns that one decision on an effect says; nobody reads more."""

LOOSE_WORDS_MAX: Final = 1000
"""Words of a line that is not read; of a line with more, every ASK and DENY of its commands is taken to match."""


class IntendedEffect(Struct, frozen=True):
    """What a command wants to do, as rules are held against it."""

    tool: str
    line: str | None = None
    """The command line; None: it runs none."""
    places: tuple[str, ...] = ()
    """Project files that it changes, or the address that it calls."""
    principal: str = ""
    mode: Mode = Mode.UNSPECIFIED


class RuleDecision(Struct, frozen=True):
    """What the rules say, and the rule that decided; None: no rule matched, so somebody is asked."""

    verdict: RuleVerdict = RuleVerdict.ASK
    rule: Rule | None = None


class TargetError(ValueError):
    """A pattern cannot be used; the message says why."""


# The parts of an effect, each of which is decided by itself.


class _CommandPattern(Struct, frozen=True):
    words: tuple[tuple[str, ...], ...]
    """Each in the pieces between its stars. The first word has none: it is a name."""
    has_rest: bool
    """Whether anything may follow."""


class _Part(Struct, frozen=True):
    """One of a kind that no pattern matches."""

    def fits(self, target: str, *, is_exact: bool) -> bool:  # noqa: ARG002
        return False


class _Command(_Part, frozen=True):
    """A simple command that was read."""

    words: SimpleCommand

    def fits(self, target: str, *, is_exact: bool) -> bool:
        pattern = _command_pattern(target if is_exact else target.casefold())
        if pattern is None:
            return False
        if not is_exact:
            words = [word.text.casefold() for word in self.words]
            return _begins(pattern, words, 0, lambda: _behind(pattern, words, is_whole=True))
        length = len(pattern.words)
        if len(self.words) < length or (len(self.words) > length and not pattern.has_rest):
            return False
        pairs = zip(pattern.words, self.words[:length], strict=True)
        is_fitting = all(not word.globs and _fits_pieces(pieces, word.text) for pieces, word in pairs)
        return is_fitting and runner_words(self.words) <= {pieces[0] for pieces in pattern.words if len(pieces) == 1}


class _LooseLine(Struct, frozen=True):
    """A line that is not read. What is found at all of its words is found once for each pattern: there may be many."""

    words: Sequence[str]
    """In lower case."""
    known: dict[_CommandPattern, Sequence[bool]] = field(default_factory=dict)

    def behind(self, pattern: _CommandPattern) -> Sequence[bool]:
        if pattern not in self.known:
            self.known[pattern] = _behind(pattern, self.words, is_whole=False)
        return self.known[pattern]


class _Loose(_Part, frozen=True):
    """A place in a line that is not read, at which a command may begin."""

    line: _LooseLine
    place: int

    def fits(self, target: str, *, is_exact: bool) -> bool:
        pattern = None if is_exact else _command_pattern(target.casefold())
        if pattern is None:
            return False
        return _begins(pattern, self.line.words, self.place, lambda: self.line.behind(pattern))


class _TooLong(_Part, frozen=True):
    """A line with more words than are looked at."""

    def fits(self, target: str, *, is_exact: bool) -> bool:
        return not is_exact and _command_pattern(target) is not None


class _Place(_Part, frozen=True):
    """A path of a project file, or an address."""

    text: str

    def fits(self, target: str, *, is_exact: bool) -> bool:
        if is_exact:
            return _is_plain_place(self.text) and _fits_place(target, self.text, is_exact=True)
        return _fits_place(target.casefold(), self.text.casefold(), is_exact=False)


def decide(rules: Iterable[Rule], intended: IntendedEffect) -> RuleDecision:
    """What the rules say about an effect: the strictest of what they say about its parts."""
    applying = [rule for rule in rules if _applies(rule, intended)]
    if all(not rule.target for rule in applying):
        return _decide(applying, _Part())
    decisions = [_decide(applying, part) for part in _parts(intended)]
    # A command that may be hidden in a line can only make it stricter.
    decisions += [one for part in _hidden(intended, applying) if (one := _decide(applying, part)).rule and _limits(one)]
    found = max(decisions, key=lambda one: one.verdict)
    if found.verdict is RuleVerdict.ALLOW and intended.line is not None and _MAY_HIDE.search(intended.line):
        # The shell may make of the line what one of these rules is about.
        held = [rule for rule in applying if rule.verdict is not RuleVerdict.ALLOW and _command_pattern(rule.target)]
        if held and read_line(intended.line) is None:
            return RuleDecision(RuleVerdict.ASK, held[0])
    return found


_MAY_HIDE: Final = re.compile(r"[$`{*?\[]")
"""What a shell replaces: names of commands may come of it."""


def allows_network(rules: Iterable[Rule], intended: IntendedEffect) -> bool:
    """Whether rules of the project, or of the deployment, let a command use the network."""
    fixed = [rule for rule in rules if rule.level < RuleLevel.RUN and _applies(rule, intended)]
    decided = [_decide(fixed, part) for part in _parts(intended)] if any(rule.network for rule in fixed) else []
    return bool(decided) and all(
        one.verdict is RuleVerdict.ALLOW and one.rule is not None and one.rule.network for one in decided
    )


def _limits(decision: RuleDecision) -> bool:
    return decision.verdict is not RuleVerdict.ALLOW


def _applies(rule: Rule, intended: IntendedEffect) -> bool:
    return (
        rule.tool in ("", intended.tool)
        and rule.principal in ("", intended.principal)
        and rule.mode in (Mode.UNSPECIFIED, intended.mode)
    )


def _decide(rules: Sequence[Rule], part: _Part) -> RuleDecision:
    found: Rule | None = None
    for level in (RuleLevel.DEPLOYMENT, RuleLevel.PROJECT, RuleLevel.RUN):
        rule = next((rule for rule in reversed(rules) if rule.level is level and _matches(rule, part)), None)
        if rule is None:
            continue
        if rule.verdict is RuleVerdict.DENY:
            return RuleDecision(RuleVerdict.DENY, rule)
        is_held = found is not None and found.verdict is RuleVerdict.ASK and not _lifts(rule, found.level)
        found = found if is_held else rule
    return RuleDecision(found.verdict, found) if found else RuleDecision()


def _matches(rule: Rule, part: _Part) -> bool:
    return not rule.target or part.fits(rule.target, is_exact=rule.verdict is RuleVerdict.ALLOW)


def _lifts(rule: Rule, level: RuleLevel) -> bool:
    """Whether a rule lifts an ASK of a level."""
    return rule.verdict is RuleVerdict.ASK or RuleLevel.UNSPECIFIED < rule.lifts <= level


def _parts(intended: IntendedEffect) -> list[_Part]:
    if intended.line is not None:
        return [_Command(words) for words in read_line(intended.line) or ()] or [_Part()]
    return [_Place(composed(place)) for place in intended.places] or [_Part()]


def _hidden(intended: IntendedEffect, rules: Sequence[Rule]) -> list[_Part]:
    """Places at which the line of an effect may run a command that was not read, as far as the rules look for one."""
    if intended.line is None:
        return []
    commands = read_line(intended.line)
    if commands is not None and not any(map(runner_words, commands)):
        return []
    words = [word.casefold() for word in loose_words(intended.line)]
    if len(words) > LOOSE_WORDS_MAX:
        return [_TooLong()]
    patterns = [_command_pattern(rule.target.casefold()) for rule in rules if rule.verdict is not RuleVerdict.ALLOW]
    firsts = {pattern.words[0][0] if pattern.words else "" for pattern in patterns if pattern}
    line = _LooseLine(words)
    return [_Loose(line, place) for place, word in enumerate(words) if firsts & {"", word, word.rpartition("/")[2]}]


# Patterns.


@lru_cache(maxsize=4096)
def _command_pattern(target: str) -> _CommandPattern | None:
    """A target as a pattern of commands; None if it is none."""
    if target.strip() == "*":
        return _CommandPattern((), has_rest=True)
    commands = read_line(target)
    if commands is None or len(commands) != 1 or any(word.text[at] != "*" for word in commands[0] for at in word.globs):
        return None
    words = commands[0]
    has_rest = words[-1] == Word("*", (0,))
    return _CommandPattern(tuple(map(_pieces_of, words[:-1] if has_rest else words)), has_rest)


def _pieces_of(word: Word) -> tuple[str, ...]:
    begins = (0, *(at + 1 for at in word.globs))
    return tuple([word.text[begin:end] for begin, end in zip(begins, (*word.globs, None), strict=True)])


def _begins(pattern: _CommandPattern, words: Sequence[str], place: int, behind: Callable[[], Sequence[bool]]) -> bool:
    """Whether words begin at a place as a pattern does; both are in lower case. `behind` as `_behind` says."""
    if not pattern.words:
        return True
    return pattern.words[0][0] in (words[place], words[place].rpartition("/")[2]) and behind()[place + 1]


def _behind(pattern: _CommandPattern, words: Sequence[str], *, is_whole: bool) -> Sequence[bool]:
    """At which words a command can go on as a pattern does behind its name: there, or behind options that take words.

    `is_whole`: they are all words of a command.
    """
    rest, count = pattern.words[1:], len(words)
    found = [False] * (count + 3)
    for at in range(count, -1, -1):
        left = count - at
        has_length = left >= len(rest) if pattern.has_rest or not is_whole else left == len(rest)
        found[at] = (has_length and all(_fits_pieces(pieces, words[at + nth]) for nth, pieces in enumerate(rest))) or (
            at < count and words[at].startswith("-") and (found[at + 1] or found[at + 2])
        )
    return found


def _fits_pieces(pieces: Sequence[str], text: str) -> bool:
    """Whether a text consists of these pieces with anything between them; linear."""
    first, *middle = pieces
    if not middle:
        return first == text
    last = middle.pop()
    if len(text) < len(first) + len(last) or not (text.startswith(first) and text.endswith(last)):
        return False
    at, end = len(first), len(text) - len(last)
    for piece in middle:
        at = text.find(piece, at, end)
        if at < 0:
            return False
        at += len(piece)
    return True


_ADDRESS: Final = re.compile(r"https?://[a-z0-9.-]+(?::[0-9]+)?(?:/[^\s\\?#]*)?(?:[?#]\S*)?")


def _is_plain_place(text: str) -> bool:
    """Whether a place is a path in the project, or an address, without anything that may lead elsewhere."""
    if "://" in text and not _ADDRESS.fullmatch(text):
        return False
    return not text.startswith("/") and ".." not in re.split(r"[/?#]", text)


def _fits_place(target: str, text: str, *, is_exact: bool) -> bool:
    """Whether a path or an address fits a pattern, name by name."""
    if "://" in text:
        text = re.split(r"[?#]", text, maxsplit=1)[0]
    wanted, names = composed(target).removeprefix("./").split("/"), text.split("/")
    at = place = 0
    again: tuple[int, int] | None = None
    while place < len(names):
        name = names[place]
        is_hidden = is_exact and name.startswith(".")
        if at < len(wanted) and wanted[at] == "**":
            again, at = (at + 1, place), at + 1
        elif at < len(wanted) and _fits_name(wanted[at], name, is_hidden=is_hidden):
            at, place = at + 1, place + 1
        elif again is None or (is_exact and names[again[1]].startswith(".")):
            return False
        else:
            at, place = again[0], again[1] + 1
            again = again[0], place
    return all(rest == "**" for rest in wanted[at:])


def _fits_name(wanted: str, name: str, *, is_hidden: bool) -> bool:
    return (not is_hidden or wanted.startswith(".")) and _fits_pieces(wanted.split("*"), name)


def check_target(tool: str, target: str) -> None:
    """Check the pattern of a rule. Raises TargetError."""
    if len(target) > TARGET_CHARS_MAX:
        raise TargetError(f"it has {len(target)} characters; at most {TARGET_CHARS_MAX} are allowed")
    if not target:
        return
    if not target.isprintable() or not target.strip():
        raise TargetError("it must be printable and not blank; leave it out to match whatever the tool does")
    is_command = _command_pattern(target) is not None
    if tool in COMMAND_TOOLS and not is_command:
        raise TargetError(
            "it is not one command: write a name and its words, `*` for any, and quotes around what a shell changes"
        )
    if tool not in COMMAND_TOOLS and (tool or not is_command) and "://" not in target and leaves_the_project(target):
        raise TargetError("it leads out of the project: a path begins at the root of the project")


COMMAND_TOOLS: Final = ("sh", "env")
"""The built-in tools that run command lines."""


# What a decision on one effect says about others of its kind.

_WITH_SUBCOMMANDS: Final = (
    "git hg svn npm pnpm yarn cargo go docker podman kubectl helm pip pip3 uv poetry pdm dotnet mvn terraform gh glab "
    "brew apt systemctl"
)
_SUBCOMMAND: Final = re.compile(r"[a-z][a-z0-9-]*")


def targets_like(intended: IntendedEffect) -> tuple[str, ...] | None:
    """Patterns of the effects that are like an effect's; None if none would be certain to match them.

    Of a command its name and its subcommand, or else exactly the command; of a file its folder, and of an address its
    host. An empty pattern: the tool says nothing of what it does.
    """
    if intended.line is not None:
        commands = read_line(intended.line)
        if not commands or any(word.globs for command in commands for word in command):
            return None
        return _checked(dict.fromkeys(_command_like(command) for command in commands))
    if not intended.places:
        return ("",)
    if not all(_is_plain_place(place) and "*" not in place for place in intended.places):
        return None
    return _checked(dict.fromkeys(map(_place_like, intended.places)))


def _checked(targets: Iterable[str]) -> tuple[str, ...] | None:
    found = tuple(targets)
    return (
        found
        if len(found) <= TARGETS_MAX and all(len(one) <= TARGET_CHARS_MAX and one.isprintable() for one in found)
        else None
    )


def _command_like(command: SimpleCommand) -> str:
    words = [word.text for word in command]
    has_subcommand = len(words) > 1 and words[0] in _WITH_SUBCOMMANDS.split() and _SUBCOMMAND.fullmatch(words[1])
    if has_subcommand and not runner_words(command):
        return f"{words[0]} {words[1]} *"
    return " ".join(map(_quoted, words))


def _quoted(word: str) -> str:
    return word if re.fullmatch(r"[\w./:@%+,-]+", word, re.ASCII) else "'" + word.replace("'", "'\\''") + "'"


def _place_like(place: str) -> str:
    if "://" in place:
        scheme, _, rest = place.partition("://")
        return f"{scheme}://{re.split('[/?#]', rest, maxsplit=1)[0]}/**"
    folder = place.rpartition("/")[0]
    return f"{folder}/**" if folder and not folder.rpartition("/")[2].startswith(".") else place


# Words.


def deciding(rule: Rule) -> DecidingRule:
    return DecidingRule(rule.id, rule.level, rule.verdict, rule.tool, rule.target, rule.by)


def rule_words(rule: Rule | DecidingRule) -> str:
    """A rule in words: `deny sh: git push *`."""
    what = f": {rule.target}" if rule.target else ""
    return f"{rule.verdict.name.lower()} {rule.tool or 'every tool'}{what}"
