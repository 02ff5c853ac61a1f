"""What `doctor` knows without asking anybody."""

from __future__ import annotations

import pytest

from turnwright_cli.doctor import unknown_variables


@pytest.mark.parametrize(
    ("variables", "unknown"),
    [
        (["TURNWRIGHT_MAX_STRIKES", "TURNWRIGHT_HOME", "OPENAI_API_KEY", "PATH"], []),
        (["TURNWRIGHT_MODEL_any", "TURNWRIGHT_CONTEXT_any"], []),
        (["TURNWRIGHT_MAX_STRIKE", "TURNWRIGHT_DATABASE"], ["TURNWRIGHT_DATABASE", "TURNWRIGHT_MAX_STRIKE"]),
    ],
    ids=["settings and others", "models", "slips of the pen"],
)
def test_a_variable_that_is_no_setting_is_named(variables, unknown) -> None:
    assert unknown_variables(variables) == unknown
