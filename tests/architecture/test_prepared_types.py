"""msgspec prepares types while modules are imported: two threads that do so at once end the process (core.converters)."""

import ast

import pytest

from parsed import services

# What these call, they call before there are threads. The page reader converts HTML, with another library.
EXEMPT = {
    "turnwright_core/converters.py",
    "turnwright_kit/settings.py",
    "turnwright_provider/domain/endpoints.py",
    "turnwright_executor/web/page_reader.py",
}


def prepared_late(tree: ast.Module) -> list[int]:
    """Lines of functions that decode to a type which no constant has prepared; `Raw` and builtins need no preparation."""
    return [
        node.lineno
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
        if isinstance(node, ast.Call) and _prepares(node)
    ]


def _prepares(call: ast.Call) -> bool:
    match call.func:
        case ast.Attribute(attr="decode"):
            return any(keyword.arg == "type" and ast.unparse(keyword.value) != "Raw" for keyword in call.keywords)
        case ast.Name(id="convert") | ast.Attribute(value=ast.Name(id="msgspec"), attr="convert"):
            return len(call.args) + len(call.keywords) > 1
    return False


def test_no_function_decodes_to_a_type_that_is_not_prepared() -> None:
    found = [
        f"{name}:{line}" for name, tree in services().items() if name not in EXEMPT for line in prepared_late(tree)
    ]
    assert not found, "make the decoder a constant of its module, or use turnwright_core.converters: " + ", ".join(
        found
    )


@pytest.mark.parametrize(
    "text", ["json.decode(text, type=Edit)", "msgspec.convert(values, Edit)", "convert(values, type=tuple[Edit, ...])"]
)
def test_a_late_type_is_found(text: str) -> None:
    assert prepared_late(ast.parse(f"def f(): return {text}"))


@pytest.mark.parametrize("text", ["json.decode(text, type=Raw)", "_DECODER.decode(text)", "convert(row[place])"])
def test_what_prepares_nothing_is_left_alone(text: str) -> None:
    assert not prepared_late(ast.parse(f"def f(): return {text}"))
