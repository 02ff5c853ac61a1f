"""Settings of the store: models of the environment, and errors that name their variables."""

import pytest

from turnwright_kit.settings import SettingsError, load
from turnwright_store.config import StoreSettings, read_seeds


@pytest.mark.parametrize(
    ("name", "default"),
    [("db", ""), ("db_mmap_mb", 0), ("retention_days", 31)],
    ids=["RU296-db", "RU296-mmap", "RU302"],
)
def test_a_setting_has_its_default_and_its_variable(monkeypatch, name, default):
    monkeypatch.delenv(f"TURNWRIGHT_{name.upper()}", raising=False)
    assert getattr(load(StoreSettings), name) == default
    monkeypatch.setenv(f"TURNWRIGHT_{name.upper()}", "7")
    assert getattr(load(StoreSettings), name) == type(default)(7)


def test_without_a_word_the_database_is_a_file_in_the_home(monkeypatch, tmp_path):
    """RU296."""
    monkeypatch.delenv("TURNWRIGHT_DB", raising=False)
    monkeypatch.setenv("TURNWRIGHT_HOME", str(tmp_path))
    assert load(StoreSettings).database_file == tmp_path / "turnwright.db"
    monkeypatch.setenv("TURNWRIGHT_DB", str(tmp_path / "other.db"))
    assert load(StoreSettings).database_file == tmp_path / "other.db"


def test_models_and_context_lengths_are_read_by_alias():
    seeds = read_seeds(
        {
            "TURNWRIGHT_MODEL_Fast-1": "openai/gpt",
            "TURNWRIGHT_CONTEXT_Fast-1": "8192",
            "TURNWRIGHT_CONTEXT_b": "1",
            "X": "y",
        }
    )
    assert seeds.vendor_models == {"Fast-1": "openai/gpt"}
    assert seeds.context_lengths == {"Fast-1": 8192, "b": 1}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("TURNWRIGHT_MODEL_a", "no-slash"),
        ("TURNWRIGHT_MODEL_a", "/m"),
        ("TURNWRIGHT_MODEL_", "openai/m"),
        ("TURNWRIGHT_MODEL_a b", "openai/m"),
        ("TURNWRIGHT_CONTEXT_a", "0"),
        ("TURNWRIGHT_CONTEXT_a", "-1"),
        ("TURNWRIGHT_CONTEXT_a", "8k"),
        ("TURNWRIGHT_CONTEXT_a", "\u0663"),
        ("TURNWRIGHT_CONTEXT_a", str(2**32)),
        ("TURNWRIGHT_CONTEXT_", "1"),
    ],
)
def test_a_wrong_variable_is_named(variable, value):
    with pytest.raises(SettingsError) as caught:
        read_seeds({variable: value, "TURNWRIGHT_MODEL_good": "openai/m"})
    assert str(caught.value).startswith(f"{variable}: ")
    assert "\n" not in str(caught.value)


def test_every_wrong_variable_has_its_line():
    with pytest.raises(SettingsError) as caught:
        read_seeds({"TURNWRIGHT_MODEL_a": "x", "TURNWRIGHT_CONTEXT_b": "y"})
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        "TURNWRIGHT_CONTEXT_b",
        "TURNWRIGHT_MODEL_a",
    ]


def test_loading_settings_checks_the_models(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_a", "no-slash")
    with pytest.raises(SettingsError, match="TURNWRIGHT_MODEL_a: "):
        load(StoreSettings, home=tmp_path)
    monkeypatch.setenv("TURNWRIGHT_MODEL_a", "openai/m")
    assert load(StoreSettings, home=tmp_path).seeds.vendor_models == {"a": "openai/m"}


def test_the_database_is_in_the_home_unless_it_is_said_otherwise(tmp_path, monkeypatch):
    assert load(StoreSettings, home=tmp_path).database_file == tmp_path / "turnwright.db"
    monkeypatch.setenv("TURNWRIGHT_DB", str(tmp_path / "other.db"))
    assert load(StoreSettings, home=tmp_path).database_file == tmp_path / "other.db"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://user:pw@host:5432/name",
        "postgresql+psycopg://user:p%40w@host/name?sslmode=require",
        "postgresql+asyncpg://user:p%40w@host/name",
        "postgres://host/name",
        "postgresql://user:pw@[::1]:5432,other:5433/name",
    ],
)
def test_a_url_is_a_database_on_postgresql(tmp_path, url):
    settings = load(StoreSettings, home=tmp_path, db=url)
    assert (settings.is_on_postgresql, settings.db) == (True, url)


@pytest.mark.parametrize(
    "url", ["mysql://u:s3cret@host/x", "postgresql://u:s3cret@host:none/x", "postgresql://u:s3cret@x@host/x",
            "postgresql://u:s3cret/@host/x", "postgresql://u:s3cret:more@host/x"],
)  # fmt: skip
def test_a_wrong_url_is_refused_without_its_password(tmp_path, url):
    with pytest.raises(SettingsError, match="TURNWRIGHT_DB: ") as caught:
        load(StoreSettings, home=tmp_path, db=url)
    assert "s3cret" not in str(caught.value)
    assert "s3cret" not in repr(load(StoreSettings, home=tmp_path, db="postgresql://u:s3cret@host/x"))
