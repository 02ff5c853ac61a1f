"""The defaults that the tables name, and where they are set. Row RU297."""

import pytest

from turnwright_assembler.config import AssemblerSettings
from turnwright_kit.settings import load


@pytest.mark.parametrize(("name", "default", "other"), [("token_divisor", 2, "4"), ("budget_ceiling", 0.9, "0.5")])
def test_a_setting_has_its_default_and_its_variable(monkeypatch, name, default, other):
    monkeypatch.delenv(f"TURNWRIGHT_{name.upper()}", raising=False)
    assert getattr(load(AssemblerSettings), name) == default
    monkeypatch.setenv(f"TURNWRIGHT_{name.upper()}", other)
    assert getattr(load(AssemblerSettings), name) == float(other)
