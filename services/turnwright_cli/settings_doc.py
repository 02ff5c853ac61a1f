"""docs/settings.md, made from the classes of settings: `python -m turnwright_cli.settings_doc > docs/settings.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from turnwright_cli.config import CliSettings
from turnwright_cli.stack import settings_class
from turnwright_core.kit.settings import Setting, Settings
from turnwright_provider.config import PRICE_PREFIX
from turnwright_store.config import CONTEXT_PREFIX, MODEL_PREFIX

SERVICES: Final = ("executor", "store", "assembler", "provider")
COMMAND_LINE: Final = "command line"

HEAD: Final = """\
# Settings

Every setting is an environment variable. It is read when a process starts and checked at once: a wrong value ends the
process with exit code 2 and names the variable. Options of the command line win over variables. A setting matters in
the process of the service that the last column names; `turnwright doctor` tells which are in force, without secrets.

This page is made from the code by `python -m turnwright_cli.settings_doc > docs/settings.md`; a test keeps it fresh.

| variable | default | meaning | read by |
|---|---|---|---|
"""

_FAMILIES: Final = {
    (f"`{MODEL_PREFIX}<alias>`", "", "Adds the model `<alias>`, as `vendor/model`; kept by the store."): ["store"],
    (f"`{CONTEXT_PREFIX}<alias>`", "", "Context window of the model `<alias>`, in tokens."): ["store"],
    (
        f"`{PRICE_PREFIX}<alias>`",
        "",
        "What a million tokens of `<alias>` cost in US dollars, `input/cached/output`, where its vendor tells no cost.",
    ): ["provider"],
}
"""Variables whose names hold an alias."""


def page() -> str:
    """The whole page."""
    rows: dict[tuple[str, str, str], list[str]] = dict(_FAMILIES)
    for reader, kind in _kinds():
        for field in kind.fields.values():
            variables = " or ".join(f"`{variable}`" for variable in field.variables)
            rows.setdefault((variables, _default(field), field.description), []).append(reader)
    lines = [f"| {' | '.join(row)} | {_readers(readers)} |\n" for row, readers in sorted(rows.items(), key=_name)]
    return HEAD + "".join(lines)


def _name(item: tuple[tuple[str, str, str], list[str]]) -> str:
    return item[0][0].replace("`", "")


def _kinds() -> Iterator[tuple[str, type[Settings]]]:
    for name in SERVICES:
        yield name, settings_class(name)
    yield COMMAND_LINE, CliSettings


def _readers(readers: list[str]) -> str:
    return "all" if len(readers) == len(SERVICES) + 1 else ", ".join(readers)


def _default(field: Setting) -> str:
    """The default as it is typed; empty for what is empty or secret, a word for what depends on the machine."""
    if field.default_factory is not None:
        return "`~/.local/share/turnwright`" if field.kind is Path else ""
    value: Any = field.default
    if isinstance(value, Path):
        return "packaged"
    if value == "":
        return ""
    if isinstance(value, bool):
        return f"`{str(value).lower()}`"
    return f"`{value:g}`" if isinstance(value, float) else f"`{value}`"


if __name__ == "__main__":
    sys.stdout.write(page())
