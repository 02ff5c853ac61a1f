"""docs/settings.md says what the code reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from settings_page import USERS, page, settings_classes
from turnwright_cli.invocation import TABLES
from turnwright_kit.settings import PREFIX
from turnwright_provider.domain.usage import PRICE_PREFIX
from turnwright_store.config import CONTEXT_PREFIX, MODEL_PREFIX

ALL = {name: field for _, kind in settings_classes() for name, field in kind.fields.items()}
UNITS = ("_s", "_mb", "_bytes", "_days", "_tokens", "_max", "_min")
WITHOUT_UNIT = {"temperature", "token_divisor", "budget_ceiling", "db_readers"}
"""A ratio, or a count of what is named."""

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_the_page_of_settings_is_what_the_code_says() -> None:
    written = (DOCS / "settings.md").read_text()

    assert written == page(), "run `python tests/settings_page.py > docs/settings.md`"


def test_every_setting_has_a_meaning_and_no_machine_shows() -> None:
    rows = [line.split(" | ") for line in page().splitlines() if line.startswith("| `")]

    assert rows
    assert all(len(row) == 4 and row[2].endswith(".") for row in rows)
    assert str(Path.home()) not in page()
    assert str(DOCS.parent) not in page()


def test_the_page_begins_with_the_settings_for_users_and_ends_with_those_for_vendors() -> None:
    users, operators, vendors = (part.count("\n| `") for part in page().split("\n## ")[1:])
    listed = [line.split(" | ")[0] for line in page().splitlines() if line.startswith("| `")]

    assert all(f"`{PREFIX}{name}`" in page().split("\n## ")[1] for name in USERS)
    assert users == len(USERS) == 12
    assert users + operators + vendors == len(listed)


def test_a_name_means_the_same_to_every_service_that_reads_it() -> None:
    listed = [line.split(" | ")[0] for line in page().splitlines() if line.startswith("| `")]

    assert len(set(listed)) == len(listed)


@pytest.mark.parametrize(("name", "field"), ALL.items(), ids=list(ALL))
def test_a_name_begins_with_its_subject_and_ends_with_its_unit(name, field) -> None:
    assert not name.startswith(("max_", "min_"))
    if field.kind in (int, float):
        assert name.endswith(UNITS) or name in WITHOUT_UNIT


def test_the_tables_of_a_file_set_the_variables_that_services_read() -> None:
    assert tuple(TABLES.values()) == (MODEL_PREFIX, CONTEXT_PREFIX, PRICE_PREFIX)
