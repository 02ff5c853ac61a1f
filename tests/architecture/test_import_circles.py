"""No module imports itself by way of others, not for its types nor when it is called either."""

import ast
from graphlib import CycleError, TopologicalSorter

import pytest

from parsed import services


def imports_of(sources: dict[str, ast.Module]) -> dict[str, set[str]]:
    """The modules that each one names in an import, wherever that stands."""
    found: dict[str, set[str]] = {name: set() for name in sources}
    for name, tree in sources.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.Import):
                found[name] |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                inner = {f"{node.module}.{alias.name}" for alias in node.names}
                found[name] |= inner & sources.keys() or {node.module}
    return {name: (others & sources.keys()) - {name} for name, others in found.items()}


def circle_in(sources: dict[str, ast.Module]) -> list[str]:
    try:
        TopologicalSorter(imports_of(sources)).prepare()
    except CycleError as error:
        circle: list[str] = error.args[1]
        return circle
    return []


def test_no_module_imports_itself_by_way_of_others():
    modules = {
        path.removesuffix(".py").replace("/", ".").removesuffix(".__init__"): tree for path, tree in services().items()
    }
    assert circle_in(modules) == []


@pytest.mark.parametrize(
    "back",
    ["import p.a", "from p import a", "from p.a import b", "def f():\n    from p.a import b", "if T:\n    import p.a"],
)
def test_a_circle_is_found_however_it_is_closed(back):
    texts = {"p": "", "p.a": "from p.b import x", "p.b": "from p.c import y", "p.c": back}
    sources = {name: ast.parse(text) for name, text in texts.items()}
    assert set(circle_in(sources)) == {"p.a", "p.b", "p.c"}
    assert circle_in({**sources, "p.c": ast.parse("import p")}) == []
