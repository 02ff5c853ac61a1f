"""Names carry the terms that an engineer would search for: words of our own that were replaced do not come back."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from parsed import services

INSTEAD = {
    "apart": "isolated, separate",
    "cite": "add_citation",
    "comes": "feed, receive, arrived",
    "crowd": "over_process_limit",
    "desk": "the object's own name, such as RunCommands",
    "elder": "ancestor, older",
    "elders": "ancestors",
    "eldest": "oldest",
    "elsewhere": "address, owner",
    "farewell": "GOAWAY",
    "fires": "runs, contains calls",
    "foresee": "prefetch",
    "forgets": "removes, expires",
    "forgetting": "cleanup, expiry",
    "hardly": "a timeout's name",
    "heals": "repairs",
    "hear": "notify, receive, subscribe",
    "heard": "notified, received",
    "invented": "hallucinated, unknown",
    "keeping": "constraints, cache",
    "kin": "relatives, family",
    "lean": "skip, prefer",
    "learn": "update, load",
    "learned": "updated, loaded",
    "meant": "allowed, suggestion, the object",
    "merging": "merge_patch, the object",
    "neighbour": "local server, in-process",
    "neighbours": "local servers, in-process",
    "overrun": "timeout",
    "packer": "compressor",
    "packing": "compression",
    "patience": "timeout",
    "patient": "full_lookahead, a timeout",
    "purse": "spend meter",
    "said": "the kind of text: answer, output, problem",
    "seeded": "with defaults, the object",
    "spending": "spend",
    "spot": "position",
    "standing": "current, in force",
    "stepped": "skipped",
    "stirred": "woken",
    "tell": "report, send, notify, publish",
    "telling": "what it does",
    "tells": "reports, has",
    "thing": "what it is",
    "things": "what they are",
    "together": "merge, at once",
    "told": "sent, reported, known",
    "unpacked": "decompressed",
    "unpacker": "decompressor",
    "wakes": "should_rescan, notifies",
    "weary": "out_of_budget",
    "whereabouts": "location",
    "wish": "query, request",
}
"""The words, and what says it instead."""

WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def names(path: str, tree: ast.Module) -> Iterator[tuple[int, str]]:
    """What a module names: itself, classes, functions, parameters, attributes, variables."""
    yield 1, Path(path).stem
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield node.lineno, name
            case ast.arg(arg=name) | ast.Attribute(attr=name, ctx=ast.Store()):
                yield node.lineno, name
            case ast.Name(id=name, ctx=ast.Store()):
                yield node.lineno, name


def odd_names(path: str, tree: ast.Module) -> list[str]:
    return [
        f"{path}:{line} {name}: {word!r} -> {INSTEAD[word]}"
        for line, name in names(path, tree)
        for word in map(str.lower, WORDS.findall(name))
        if word in INSTEAD
    ]


def test_no_name_has_a_word_that_was_replaced() -> None:
    found = [line for path, tree in services().items() for line in odd_names(path, tree)]
    assert not found, "\n".join(["a name has a word that nobody would search for:", *found])


@pytest.mark.parametrize(
    "text",
    [
        "class Desk: ...",
        "def _told(): ...",
        "def f(heard): ...",
        "self._is_told = 1",
        "PURSE_MAX = 1",
        "tell_view: bool = True",
        "for _, told in pairs: ...",
    ],
)
def test_an_odd_word_is_found(text: str) -> None:
    assert len(odd_names("a.py", ast.parse(text))) == 1


@pytest.mark.parametrize("text", ["class DesktopApp: ...", "import told", "x = y.told", "intelligible = 1"])
def test_other_words_are_ignored(text: str) -> None:
    assert odd_names("a.py", ast.parse(text)) == []


def test_a_module_is_named_too() -> None:
    assert odd_names("executor/neighbours.py", ast.parse(""))
