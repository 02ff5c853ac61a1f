"""Settings: what variables may say, what wins, and what is told of what is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import pytest

from turnwright_kit.settings import Settings, SettingsError, load, setting


class Some(Settings):
    """One setting of each kind."""

    size: int = setting("A size.", 3, ge=1, le=9)
    wait_s: float = setting("A wait.", 1.5, gt=0)
    is_on: bool = setting("A switch.", False)
    folder: Path = setting("A place.", Path("/x"))
    kind: Literal["one", "two"] = setting("A choice.", "one")
    name: str = setting("A name.", "", variables=("TURNWRIGHT_NAME", "NAME_ELSEWHERE"), check=str.strip)
    key: str = setting("Secret.", "", repr=False)

    beat_s: float = 0.5
    """What nobody tunes."""


@pytest.fixture(autouse=True)
def _nothing_is_said(monkeypatch):
    for variable in [name for field in Some.fields.values() for name in field.variables]:
        monkeypatch.delenv(variable, raising=False)


def test_what_nobody_says_is_at_its_default():
    some = load(Some)
    assert (some.size, some.wait_s, some.is_on, some.folder, some.kind, some.name) == (
        3,
        1.5,
        False,
        Path("/x"),
        "one",
        "",
    )


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("size", "7", 7),
        ("wait_s", "2", 2.0),
        ("wait_s", "1e-3", 0.001),
        ("is_on", "True", True),
        ("is_on", "0", False),
        ("folder", "/y/z", Path("/y/z")),
        ("kind", "two", "two"),
        ("name", " a ", "a"),
    ],
)
def test_a_variable_is_read_as_the_settings_kind(monkeypatch, name, text, value):
    monkeypatch.setenv(f"TURNWRIGHT_{name.upper()}", text)
    assert getattr(load(Some), name) == value


@pytest.mark.parametrize(
    ("name", "text", "told"),
    [
        ("size", "0", "must be a whole number of at least 1 and of at most 9 (it is '0')"),
        ("size", "10", "must be a whole number of at least 1 and of at most 9 (it is '10')"),
        ("size", "3.5", "must be a whole number of at least 1 and of at most 9 (it is '3.5')"),
        ("size", "1_0", "must be a whole number of at least 1 and of at most 9 (it is '1_0')"),
        ("size", "", "must be a whole number of at least 1 and of at most 9 (it is '')"),
        ("wait_s", "0", "must be a number of more than 0 (it is '0')"),
        ("wait_s", "nan", "must be a number of more than 0 (it is 'nan')"),
        ("wait_s", "soon", "must be a number of more than 0 (it is 'soon')"),
        ("is_on", "maybe", "must be true or false (it is 'maybe')"),
        ("kind", "three", "must be one or two (it is 'three')"),
    ],
)
def test_a_wrong_variable_is_named_with_what_it_may_be(monkeypatch, name, text, told):
    monkeypatch.setenv(f"TURNWRIGHT_{name.upper()}", text)
    with pytest.raises(SettingsError) as caught:
        load(Some)
    assert str(caught.value) == f"TURNWRIGHT_{name.upper()}: {told}"


def test_every_wrong_setting_has_its_line():
    with pytest.raises(SettingsError) as caught:
        load(Some, size=0, is_on="maybe")
    assert [line.partition(":")[0] for line in str(caught.value).splitlines()] == [
        "TURNWRIGHT_SIZE",
        "TURNWRIGHT_IS_ON",
    ]


def test_a_given_value_wins_over_a_variable_and_the_first_variable_over_the_second(monkeypatch):
    monkeypatch.setenv("NAME_ELSEWHERE", "second")
    assert load(Some).name == "second"
    monkeypatch.setenv("TURNWRIGHT_NAME", "first")
    assert load(Some).name == "first"
    assert load(Some, name="given", size=None).name == "given"


def test_settings_are_frozen_and_copied_with_changes():
    some = load(Some)
    with pytest.raises(AttributeError, match="frozen"):
        some.size = 4
    assert (some.copied(size=5).size, some.size) == (5, 3)
    with pytest.raises(TypeError, match="has no setting colour"):
        Some(colour="red")


def test_what_may_not_be_shown_is_in_no_representation():
    assert "hush" not in repr(load(Some, key="hush"))
    assert "size=3" in repr(load(Some))


def test_a_plain_value_is_said_by_code_alone(monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_BEAT_S", "9")

    assert (load(Some).beat_s, load(Some, beat_s=2.0).beat_s) == (0.5, 2.0)
    assert "beat_s" not in Some.fields
    with pytest.raises(TypeError, match="beats"):
        load(Some, beats=1)
