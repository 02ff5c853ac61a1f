"""The defaults that the tables name, and where they are set. Rows RU298-RU301, RU303, RU304."""

import pytest

from turnwright_executor.config import ExecutorSettings
from turnwright_kit.settings import load


@pytest.mark.parametrize(
    ("name", "default"),
    [
        ("loop_turns_max", 99),
        ("turn_commands_max", 99),
        ("strikes_max", 3),
        ("cycles_min", 3),
        ("cycle_period_max", 4),
        ("known_tokens_max", 512),
        ("rpc_timeout_s", 30.0),
        ("temperature", 0.1),
        ("token_divisor", 2),
    ],
    ids=[
        "RU298",
        "RU299",
        "RU300",
        "RU301-cycles",
        "RU301-period",
        "RU297-entry",
        "RU304-rpc",
        "RU303",
        "RU297-divisor",
    ],
)
def test_a_setting_has_its_default_and_its_variable(monkeypatch, name, default):
    monkeypatch.delenv(f"TURNWRIGHT_{name.upper()}", raising=False)
    assert getattr(load(ExecutorSettings), name) == default
    monkeypatch.setenv(f"TURNWRIGHT_{name.upper()}", "2")
    assert getattr(load(ExecutorSettings), name) == 2
