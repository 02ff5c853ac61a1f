"""docs/settings.md, made from the classes of settings: `python -m turnwright_cli.settings_doc > docs/settings.md`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from turnwright_cli.config import CliSettings
from turnwright_cli.stack import settings_class
from turnwright_core.kit.settings import PREFIX, Setting, Settings
from turnwright_provider.domain.presets import PRESETS, Preset
from turnwright_provider.domain.prices import PRICE_PREFIX
from turnwright_store.config import CONTEXT_PREFIX, MODEL_PREFIX

SERVICES: Final = ("executor", "store", "assembler", "provider")
COMMAND_LINE: Final = "command line"
HEADINGS: Final = ("All services", *(name.capitalize() for name in (*SERVICES, COMMAND_LINE)))
"""Where a setting for operators stands: with the service that reads it."""

HEAD: Final = """\
# Settings

Every setting is an environment variable. A process reads its settings when it starts and checks them at once: a wrong
value ends the process with exit code 2 and names the variable. Command-line options override variables. Set a variable
where the process in the last column runs: a server that is already running does not see what you export in another
terminal. `turnwright doctor` shows the settings in force, without secrets, and names variables that nobody reads.

A name begins with its subject and ends with its unit and `MAX` or `MIN`: `_S` seconds, `_MB` MiB, `_BYTES`, `_DAYS`,
`_TOKENS`. What nobody would tune is a constant of the code.

This page is made from the code by `python -m turnwright_cli.settings_doc > docs/settings.md`; a test keeps it up to
date.
"""

TABLE: Final = """
| variable | default | meaning | read by |
|---|---|---|---|
"""

USERS: Final = (
    "MODEL_<alias>",
    "CONTEXT_<alias>",
    "PRICE_<alias>",
    "OPENAI_BASE_URL",
    "OPENAI_API_KEY",
    "THINK",
    "TEMPERATURE",
    "HOME",
    "PROJECT",
    "SERVER",
    "SH_READABLE",
    "WEB_HOSTS",
)
"""The settings that most people need, in the order of the page."""

VENDORS: Final = "provider"
"""The service whose settings say how vendors of models are called, where they are not for users."""

_FAMILIES: Final = {
    (f"`{MODEL_PREFIX}<alias>`", "", "Adds the model `<alias>`, written as `vendor/model`. The store keeps it."): [
        "store"
    ],
    (f"`{CONTEXT_PREFIX}<alias>`", "", "Context window of the model `<alias>`, in tokens."): ["store"],
    (
        f"`{PRICE_PREFIX}<alias>`",
        "",
        "Price of a million tokens of `<alias>` in US dollars, `input/cached/output`, if the vendor reports no cost.",
    ): ["provider"],
    **{
        (f"`{PREFIX}<VENDOR>_{name}` or `<VENDOR>_{name}`", "", meaning): ["provider"]
        for name, meaning in (
            ("BASE_URL", "Base URL of a vendor of the table below. Empty with a key: that of the table."),
            ("API_KEY", "API key of that vendor. Leave it empty if the server needs none."),
            ("API_KEY_FILE", "File with that key, if the variable with the key is empty."),
        )
    },
}
"""Variables whose names hold an alias or a vendor."""

VENDOR_HEAD: Final = """
| vendor | wire | base URL | key |
|---|---|---|---|
"""


def page() -> str:
    """The whole page: each setting once, grouped by who needs it."""
    rows: dict[tuple[str, str, str], list[str]] = dict(_FAMILIES)
    for reader, kind in settings_classes():
        for field in kind.fields.values():
            if variable_of_preset(field):
                continue
            variables = " or ".join(f"`{variable}`" for variable in field.variables)
            rows.setdefault((variables, _default(field), field.description), []).append(reader)
    for_users: list[tuple[int, str]] = []
    for_vendors: list[str] = []
    for_operators: dict[str, list[str]] = {}
    for row, readers in sorted(rows.items(), key=lambda item: item[0][0].replace("`", "")):
        name = row[0].split("`")[1].removeprefix(PREFIX)
        line = f"| {' | '.join(row)} | {_readers(readers)} |\n"
        if name in USERS:
            for_users.append((USERS.index(name), line))
        elif readers == [VENDORS]:
            for_vendors.append(line)
        else:
            for_operators.setdefault(_heading(readers), []).append(line)
    return "".join(
        (
            HEAD,
            "\n## For users\n",
            TABLE,
            *(line for _, line in sorted(for_users)),
            "\n## For operators\n",
            *_tables(for_operators),
            "\n## Vendors of models\n",
            TABLE,
            *for_vendors,
            VENDOR_HEAD,
            *map(_vendor_row, PRESETS),
        )
    )


def variable_of_preset(field: Setting) -> bool:
    """Whether a setting stands in the table of vendors; those that most people need stand among the others."""
    name = field.variables[0].removeprefix(PREFIX)
    return name not in USERS and name.removesuffix("_FILE") in _PRESET_VARIABLES


_PRESET_VARIABLES: Final = frozenset(
    variable for preset in PRESETS for variable in (preset.url_variable, preset.key_variable)
)


def _vendor_row(preset: Preset) -> str:
    keys = " or ".join(f"`{variable}`" for variable in (preset.key_variable, *preset.more_keys))
    return f"| {preset.name} | {preset.wire} | {preset.hosted_url or f'`{preset.url_variable}`'} | {keys} |\n"


def _tables(groups: dict[str, list[str]]) -> Iterator[str]:
    """A table for each service that has any of these settings."""
    for heading in HEADINGS:
        if lines := groups.get(heading):
            yield f"\n### {heading}\n{TABLE}{''.join(lines)}"


def _heading(readers: list[str]) -> str:
    """Where a setting stands: with the only service that reads it, or the first of several."""
    return HEADINGS[0] if _readers(readers) == "all" else readers[0].capitalize()


def settings_classes() -> Iterator[tuple[str, type[Settings]]]:
    """Every reader of settings, and their class."""
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
