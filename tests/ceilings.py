"""Counts the lines of each package against its ceiling: `make ceilings`, a part of `make check`.

A line of code is one that is neither blank nor comment, docstring or import. The ceilings are in ceilings.toml.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
import tomllib
from pathlib import Path

REPO = Path(__file__).parents[1]
CEILINGS = REPO / "tests" / "ceilings.toml"
PAPER = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)


def code_lines(source: str) -> int:
    """How many lines of a module are code."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    lines = {line for token in tokens if token.type not in PAPER for line in range(token.start[0], token.end[0] + 1)}
    return len(lines - left_out(ast.parse(source)))


def left_out(tree: ast.Module) -> set[int]:
    """The lines of imports, and of texts that stand alone: docstrings, and what is said of a name below it."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    nodes += [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return {line for node in nodes for line in range(node.lineno, (node.end_lineno or node.lineno) + 1)}


def counted(package: Path) -> tuple[int, int]:
    """Lines of a package, and lines of code among them."""
    sources = [path.read_text(encoding="utf-8") for path in sorted(package.rglob("*.py"))]
    return sum(source.count("\n") for source in sources), sum(map(code_lines, sources))


def main() -> int:
    ceilings = tomllib.loads(CEILINGS.read_text(encoding="utf-8"))
    packages = sorted(path for path in (REPO / "services").iterdir() if (path / "__init__.py").exists())
    if unknown := {path.name for path in packages} ^ ceilings.keys():
        print(f"{CEILINGS.relative_to(REPO)} and services/ do not name the same packages: {', '.join(sorted(unknown))}")
        return 1
    totals, over = [0, 0], []
    print(f"{'package':24}{'lines':>8}{'ceiling':>9}{'code':>8}{'ceiling':>9}")
    for path in packages:
        found, ceiling = counted(path), ceilings[path.name]
        most = (ceiling["lines"], ceiling["code"])
        totals = [total + number for total, number in zip(totals, found, strict=True)]
        over += [path.name] if found[0] > most[0] or found[1] > most[1] else []
        print(f"{path.name:24}{found[0]:>8,}{most[0]:>9,}{found[1]:>8,}{most[1]:>9,}")
    print(f"{'services':24}{totals[0]:>8,}{'':9}{totals[1]:>8,}")
    if over:
        print(
            f"Over its ceiling: {', '.join(over)}. Delete something, or raise it in tests/ceilings.toml and say why there."
        )
    return int(bool(over))


if __name__ == "__main__":
    sys.exit(main())
