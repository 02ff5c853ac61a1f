"""One public class name or type alias stands for one thing, in all services: a search for it finds that thing only."""

import ast
from collections import defaultdict
from collections.abc import Iterator

import pytest

from parsed import services


def is_class_like(name: str) -> bool:
    """Whether it is written like a public class."""
    return name[:1].isupper() and not name.isupper()


def definitions(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The public classes of a module, nested ones included, and the aliases and type variables at its top."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef) and is_class_like(node.name):
            yield node.lineno, node.name
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        for target in targets:
            if isinstance(target, ast.Name) and len(target.id) > 1 and is_class_like(target.id):
                yield node.lineno, target.id


def defined_twice(modules: dict[str, ast.Module]) -> list[str]:
    """Each name that has several definitions, with their places."""
    places = defaultdict(list)
    for path, tree in modules.items():
        for line, name in definitions(tree):
            places[name].append(f"{path}:{line}")
    return [f"{name}: {', '.join(found)}" for name, found in sorted(places.items()) if len(found) > 1]


def test_no_public_class_name_is_defined_twice() -> None:
    assert defined_twice(services()) == []


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("class Packet: ...", "class Packet: ..."),
        ("class Packet: ...", "Packet = tuple[str, str]"),
        ("Packet = list[str]", "Packet: TypeAlias = list[bytes]"),
        ("class Packet: ...", "class Outer:\n    class Packet: ..."),
        ("if True:\n    class Packet: ...", 'Packet = TypeVar("Packet")'),
    ],
)
def test_a_name_that_is_defined_twice_is_found(one: str, other: str) -> None:
    assert len(defined_twice({"a.py": ast.parse(one), "b.py": ast.parse(other)})) == 1


@pytest.mark.parametrize(
    "other", ["class _Packet: ...", "PACKET = 1", "from a import Packet", "T = Packet", "packet = Packet"]
)
def test_what_is_private_or_no_definition_is_ignored(other: str) -> None:
    assert defined_twice({"a.py": ast.parse("class Packet: ...\nT = 1"), "b.py": ast.parse(other)}) == []
