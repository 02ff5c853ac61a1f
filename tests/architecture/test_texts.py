"""Texts that reach people: none of them names an rpc, and none uses a phrase that reads as translated."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from parsed import services

REPO = Path(__file__).resolve().parents[2]
RPC = re.compile(r"^\s*rpc (\w+)\(", re.MULTILINE)
RPCS = frozenset(name for proto in (REPO / "protos").rglob("*.proto") for name in RPC.findall(proto.read_text()))
WORDS = frozenset({"Act", "Ask", "Assemble", "Discover", "Generate", "Notify"})
"""Rpcs whose names are words; they may begin a sentence."""
TRANSLATED = re.compile(
    r"(?<![Tt]here )\b(?:is|are) no (?!longer\b|more\b)|\bin no way a\b|\banew\b|\b[Ww]hoever\b|\bare the limit\b|\ban own\b"
)


def sentences(tree: ast.AST) -> Iterator[ast.Constant]:
    """The strings of a module that are more than one word, without its docstrings."""
    docstrings = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings
        if is_text and " " in node.value.strip():
            yield node


def named_in(text: str) -> set[str]:
    return set(re.findall(r"\w+", text)) & (RPCS - WORDS)


def test_no_text_names_an_rpc() -> None:
    found = [
        f"services/{path}:{text.lineno} names {', '.join(sorted(named))}"
        for path, tree in services().items()
        for text in sentences(tree)
        if (named := named_in(text.value))
    ]
    assert not found, "\n".join(["say it in the words of the command line:", *found])


def test_a_text_that_names_one_is_found() -> None:
    (text,) = sentences(ast.parse('"""GetRun."""\nraise ValueError(f"{path}: ask with GetEntry.")'))
    assert named_in(text.value) == {"GetEntry"}


def test_no_text_reads_as_translated() -> None:
    found = [
        f"services/{path}:{text.lineno} says {odd[0]!r}"
        for path, tree in services().items()
        for text in sentences(tree)
        if (odd := TRANSLATED.search(text.value))
    ]
    assert not found, "\n".join(["say it as a native speaker would:", *found])


def test_a_text_that_reads_as_translated_is_found() -> None:
    (text,) = sentences(ast.parse('raise ValueError(f"{value} is no value of {field}.")'))
    assert TRANSLATED.search(text.value)


def test_each_decision_has_a_number_of_its_own() -> None:
    names = [path.name for path in (REPO / "docs" / "adr").glob("*.md")]
    assert sorted({name[:4]: name for name in names}.values()) == sorted(names)
