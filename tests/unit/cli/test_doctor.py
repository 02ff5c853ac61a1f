"""What `doctor` knows without asking anybody."""

from __future__ import annotations

import pytest

from turnwright_cli.session import unknown_variables
from turnwright_kit.settings_report import shown_value


@pytest.mark.parametrize(
    ("variables", "unknown"),
    [
        (["TURNWRIGHT_STRIKES_MAX", "TURNWRIGHT_HOME", "OPENAI_API_KEY", "PATH"], []),
        (["TURNWRIGHT_MODEL_any", "TURNWRIGHT_CONTEXT_any", "TURNWRIGHT_PRICE_any"], []),
        (["TURNWRIGHT_MAX_STRIKE", "TURNWRIGHT_DATABASE"], ["TURNWRIGHT_DATABASE", "TURNWRIGHT_MAX_STRIKE"]),
    ],
    ids=["settings and others", "models", "slips of the pen"],
)
def test_a_variable_that_is_no_setting_is_named(variables, unknown) -> None:
    assert [sentence.split(" ")[4] for sentence in unknown_variables(variables)] == unknown


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("http://127.0.0.1:8080/v1", "http://127.0.0.1:8080/v1"),
        ("https://me:hunter2@host/v1", "https://***@host/v1"),
        ("https://me:hun/ter@2@host/v1", "https://***@host/v1"),
        ("https://host/v1?api-version=1&key=hunter2", "https://host/v1?***"),
        ("https://hunter2@host/v1?hunter2#hunter2", "https://***@host/v1?***"),
        ("https://host/v1#hunter2", "https://host/v1?***"),
        ("postgresql://me:hunter2@host/db?password=hunter2", "postgresql://***@host/db?***"),
        ("~/.cache:~/.npm", "~/.cache:~/.npm"),
    ],
)
def test_a_setting_is_shown_without_what_a_url_keeps_secret(value, shown) -> None:
    assert shown_value("base_url", value, is_repr=True) == shown
