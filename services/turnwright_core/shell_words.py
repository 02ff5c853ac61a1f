"""Reads a command line as far as it is certain what a shell does with it; anything else is not read.

Approval rules are held against simple commands: words, and nothing that the shell would still change. So this reads
less than a shell does, on purpose: substitutions, redirections, background jobs, groups, keywords, assignments,
comments and home directories make a line unreadable, and so does everything that is not known here.
Source: docs/adr/0067.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from msgspec import Struct

LINE_CHARS_MAX: Final = 16_384
"""Longest line that is read, in code points."""

COMMANDS_MAX: Final = 100
"""Most commands in a line that is read: each is held against each rule."""


class Word(Struct, frozen=True):
    """A word of a command, without its quotes."""

    text: str
    globs: tuple[int, ...] = ()
    """Places of the `*`, `?` and `[` in the text that are not quoted: the shell may make several words of it."""


SimpleCommand = tuple[Word, ...]

_TOKEN: Final = re.compile(
    r"""
      (?P<blank>    [ \t]+ )
    | (?P<joined>   \\\n )
    | (?P<operator> && | \|\| | [;|\n] )
    | '(?P<single>  [^']* )'
    | "(?P<double>  (?: [^"\\$`] | \\. )* )"
    | \\(?P<escaped> . )
    | (?P<glob>     [*?\[] )
    | (?P<plain>    [^\s'"\\$`<>&(){}!*?\[;|\#~]+ | [\#~] )
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPED: Final = re.compile(r"\\(?:\n|([$`\"\\]))")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
_JOINING: Final = ("&&", "||", "|")


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


_RESERVED: Final = _words(
    """
    if then elif else fi for while until do done case esac in select function coproc time ]]
    """
)


def read_line(line: str) -> tuple[SimpleCommand, ...] | None:
    """The simple commands of a line, each of which a shell runs at most once; None if that is not certain."""
    tokens = None if len(line) > LINE_CHARS_MAX or _CONTROLS.search(line) else _tokens_of(line)
    if tokens is None:
        return None
    commands: list[SimpleCommand] = []
    words: list[Word] = []
    is_joined = False
    for piece in (*tokens, "\n"):
        if isinstance(piece, Word):
            words.append(piece)
        elif words:
            if not _is_name(words[0]) or len(commands) == COMMANDS_MAX:
                return None
            commands.append(tuple(words))
            words, is_joined = [], piece in _JOINING
        elif piece != "\n":
            return None
    return None if is_joined else tuple(commands)


def _tokens_of(line: str) -> list[Word | str] | None:
    """The words and the operators of a line; None if there is anything else."""
    tokens: list[Word | str] = []
    text, globs, is_open, at = "", list[int](), False, 0
    while at < len(line):
        found = _TOKEN.match(line, at)
        if found is None:
            return None
        kind, at = found.lastgroup or "", found.end()
        piece = found[kind]
        if kind in ("blank", "operator"):
            tokens += [Word(text, tuple(globs))] * is_open + [piece] * (kind == "operator")
            text, globs, is_open = "", [], False
        elif kind == "plain" and not _is_literal(piece, text, is_open=is_open):
            return None
        elif kind != "joined":
            globs += [len(text)] * (kind == "glob")
            text += _ESCAPED.sub(r"\1", piece) if kind == "double" else piece
            is_open = True
    return tokens + [Word(text, tuple(globs))] * is_open


def _is_literal(piece: str, text: str, *, is_open: bool) -> bool:
    """Whether an unquoted piece behind the text of its word so far means itself: no comment, no home directory."""
    if piece == "#":
        return is_open
    return piece != "~" or (is_open and not text.endswith(("=", ":")))


def _is_name(first: Word) -> bool:
    """Whether the first word of a command is a name, which the shell takes as it is."""
    return bool(first.text) and not first.globs and "=" not in first.text and first.text not in _RESERVED


# Commands that run what their words say. None: always; else only with one of these words.

_RUNNERS: Final[Mapping[str, frozenset[str] | None]] = {
    **dict.fromkeys(
        _words(
            """
    . source eval exec command builtin trap env sudo doas su runuser xargs parallel nohup timeout time nice
    ionice chrt taskset setsid stdbuf unbuffer watch entr flock ssh chroot unshare nsenter script strace
    ltrace gdb busybox toybox systemd-run start-stop-daemon fakeroot proot npx pnpx bunx pipx uvx sh bash
    dash zsh ksh mksh ash fish csh tcsh
    """
        )
    ),
    "find": _words("-exec -execdir -ok -okdir -delete -fls -fprint -fprint0 -fprintf"),
    "git": _words(
        """
    -c --exec-path --config-env --upload-pack --receive-pack --exec -x --extcmd -O --open-files-in-pager --output
    config bisect foreach filter-branch difftool mergetool
    """
    ),
    "tar": _words(
        """
    --to-command --checkpoint-action -I --use-compress-program --rsh-command -F --info-script
    --new-volume-script
    """
    ),
    "rsync": frozenset(("-e", "--rsh", "--rsync-path")),
    "sort": frozenset(("--compress-program",)),
    "go": frozenset(("run", "generate", "-exec", "-toolexec", "-vettool")),
    **dict.fromkeys(("npm", "pnpm", "yarn", "bun"), frozenset(("exec", "x", "dlx", "--script-shell"))),
    **dict.fromkeys(
        ("uv", "poetry", "pipenv", "pdm", "hatch", "conda", "bundle", "cargo"),
        _words("run exec tool --config"),
    ),
    "rg": frozenset(("--pre",)),
    "make": frozenset(("--eval", "SHELL")),
    **dict.fromkeys(("docker", "podman", "kubectl"), frozenset(("run", "exec"))),
}


def runner_words(command: SimpleCommand) -> frozenset[str]:
    """The words by which a command runs what its other words say, like `sudo` and the `-exec` of find."""
    first = command[0].text.rpartition("/")[2]
    if first not in _RUNNERS:
        return frozenset()
    runners = _RUNNERS[first]
    if runners is None:
        return frozenset((command[0].text,))
    words = [word.text for word in command[1:]]
    found = {text for text in words if _is_option(text, runners)}
    # The first word of tar needs no dash before its letters.
    return frozenset(found | {text for text in words[:1] if first == "tar" and _is_option(f"-{text}", runners)})


def _is_option(text: str, options: frozenset[str]) -> bool:
    """Whether a word is, or holds, one of these options: a letter may stand among others, a long one may be cut."""
    name = text.partition("=")[0]
    if name in options or not text.startswith("-"):
        return name in options
    if not text.startswith("--") and any(len(option) == 2 and option[1] in text for option in options):
        return True
    bare = name.lstrip("-")
    return len(bare) > 1 and any(len(option) > 2 and option.lstrip("-").startswith(bare) for option in options)


_DROPPED: Final = re.compile(r"\\\n|['\"\\]")
_INNER_FIELD: Final = re.compile(r"\$(?:IFS\b|\{IFS\})")
_SEPARATORS: Final = re.compile(r"[\s$`<>&|;(){}]+")


def loose_words(line: str) -> Sequence[str]:
    """All that may become a word of a command in a line that is not read; quotes are taken away."""
    text = _DROPPED.sub("", _INNER_FIELD.sub(" ", line))
    if "{" in text:
        text = text.replace(",", " ")
    return [word for word in _SEPARATORS.split(text) if word]
