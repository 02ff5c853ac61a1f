"""Where a service lives and listens when nobody says: home, address, severity. Rows RU296, RU304."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnwright_assembler import config as assembler
from turnwright_cli.stack import LISTEN
from turnwright_executor import config as executor
from turnwright_kit import logs
from turnwright_kit.settings import PeerSettings, Settings, load
from turnwright_provider import config as provider
from turnwright_store import config as store


@pytest.mark.parametrize(
    ("module", "address"),
    [
        (executor, "127.0.0.1:7440"),
        (store, "127.0.0.1:7441"),
        (assembler, "127.0.0.1:7442"),
        (provider, "127.0.0.1:7443"),
    ],
)
def test_a_service_listens_on_loopback_at_its_own_port(module, address) -> None:
    """RU296, under the names of our own."""
    assert address == module.DEFAULT_LISTEN == LISTEN[module.__name__.split(".")[0].removeprefix("turnwright_")]


def test_peers_are_looked_for_where_they_listen(monkeypatch) -> None:
    for name in ("STORE", "ASSEMBLER", "PROVIDER"):
        monkeypatch.delenv(f"TURNWRIGHT_{name}", raising=False)
    found = load(executor.ExecutorSettings)
    assert (found.store, found.assembler, found.provider) == ("127.0.0.1:7441", "127.0.0.1:7442", "127.0.0.1:7443")


@pytest.mark.parametrize(
    ("variables", "home"),
    [
        ({}, "~/.local/share/turnwright"),
        ({"XDG_DATA_HOME": "/data"}, "/data/turnwright"),
        ({"XDG_DATA_HOME": "/data", "TURNWRIGHT_HOME": "/here"}, "/here"),
    ],
)
def test_the_home_is_the_users_own_unless_said(monkeypatch, variables, home) -> None:
    """RU296."""
    for name in ("XDG_DATA_HOME", "TURNWRIGHT_HOME"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    assert load(Settings).home == Path(home).expanduser()


def test_a_service_says_little_unless_it_is_to_debug(monkeypatch, capsys) -> None:
    """RU296."""
    said = []
    for level in ("", "debug"):
        monkeypatch.delenv("TURNWRIGHT_LOG_LEVEL", raising=False)
        if level:
            monkeypatch.setenv("TURNWRIGHT_LOG_LEVEL", level)
        logs.configure_logs(load(Settings).log_level)
        logs.get_logger("x").debug("in_detail")
        said.append("in_detail" in capsys.readouterr().err)
    logs.configure_logs("info")
    assert said == [False, True]


def test_a_call_between_services_has_thirty_seconds(monkeypatch) -> None:
    """RU304; that of a vendor is of the provider."""
    monkeypatch.delenv("TURNWRIGHT_RPC_TIMEOUT_S", raising=False)
    assert load(PeerSettings).rpc_timeout_s == 30.0
