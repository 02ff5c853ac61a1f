"""docs/settings.md says what the code reads."""

from __future__ import annotations

from pathlib import Path

from turnwright_cli.settings_doc import OPERATORS, USERS, page
from turnwright_core.kit.settings import PREFIX

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_of_settings_is_what_the_code_says() -> None:
    written = (DOCS / "settings.md").read_text()

    assert written == page(), "run `python -m turnwright_cli.settings_doc > docs/settings.md`"


def test_every_setting_has_a_meaning_and_no_machine_shows() -> None:
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| `")]

    assert rows
    assert all(len(row) == 4 and row[2].endswith(".") for row in rows)
    assert str(Path.home()) not in page()
    assert str(DOCS.parent) not in page()


def test_the_page_begins_with_the_settings_for_users_and_lists_each_setting_once() -> None:
    users, operators, others = page().split("\n## ")[1:]
    listed = [tuple(line.split(" | ")[0::3]) for line in page().splitlines() if line.startswith("| `")]

    assert users.count("\n| `") == len(USERS)
    assert all(f"`{PREFIX}{name}`" in users for name in USERS)
    assert all(f"`{PREFIX}{name}`" in operators for name in OPERATORS)
    assert others.count("\n| `") == len(listed) - users.count("\n| `") - operators.count("\n| `")
    assert len(set(listed)) == len(listed)
