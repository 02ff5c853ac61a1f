"""Finding and loading plugins of any kind. Rows RU145, RU148, RU308."""

from __future__ import annotations

import sys

import pytest

from turnwright_kit.plugins import HOOKS, SECTIONS, TOOLS, UNVERSIONED, PluginKind, load_all, select_plugins
from turnwright_kit.settings import SettingsError

MODULE = """
__version__ = "7"
MADE = []


class Several:
    def __init__(self, registry):
        MADE.append(registry)


def register(registry):
    MADE.append(registry)
"""


class Registry:
    """Says on whose behalf it is."""

    def of(self, plugin: str) -> str:
        return f"registry of {plugin}"


@pytest.fixture
def site(tmp_path, monkeypatch):
    """A folder of installed distributions; writes one, with its entry points."""
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "several.py").write_text(MODULE)
    monkeypatch.delitem(sys.modules, "several", raising=False)

    def install(name: str, points: str) -> None:
        about = tmp_path / f"{name}-1.5.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.5\n")
        (about / "entry_points.txt").write_text(points)

    return install


def found(kind: PluginKind, enabled: str = "") -> list[tuple[str, str, str]]:
    return [(one.name, one.target, one.version) for one in select_plugins(kind, enabled)]


def test_each_kind_has_its_own_group_in_the_order_of_names(site):
    site(
        "one",
        "[turnwright.tools]\nb = several:register\na = several:Several\n[turnwright.sections]\nc = several:register\n",
    )
    assert found(TOOLS) == [("a", "several:Several", "1.5"), ("b", "several:register", "1.5")]
    assert found(SECTIONS) == [("c", "several:register", "1.5")]
    assert found(HOOKS, "none") == []


def test_those_that_are_named_are_loaded_in_that_order_and_no_others(site):
    site("one", "[turnwright.tools]\nb = several:register\na = several:Several\n")
    assert [name for name, *_ in found(TOOLS, " b ,several:register, b")] == ["b", "several:register"]


def test_a_module_says_its_version_itself_or_has_none(site):
    assert found(TOOLS, "several:register,json.tool:main") == [
        ("several:register", "several:register", "7"), ("json.tool:main", "json.tool:main", UNVERSIONED),
    ]  # fmt: skip


def test_what_two_kinds_name_as_one_plugin_is_made_once(site):
    # RU148
    points = "[turnwright.tools]\na = several:Several\nb = several:register\n[turnwright.hooks]\na = several:Several\n"
    site("one", points)
    _, loaded = load_all(Registry(), ((HOOKS, ""), (TOOLS, "")))
    assert [plugin.name for plugin in loaded] == ["a", "b"]
    assert sys.modules["several"].MADE == ["registry of a", "registry of b"]


@pytest.mark.parametrize("points", ["turnwright = several:register\n", "a = several:register\n"], ids=["ours", "twice"])
def test_a_name_that_is_taken_is_refused(site, points):
    site("one", "[turnwright.tools]\na = several:Several\n")
    site("two", f"[turnwright.tools]\n{points}")
    with pytest.raises(SettingsError, match=r"^TURNWRIGHT_TOOLS: the name '\w+' of the plugin several:\w+ is taken"):
        select_plugins(TOOLS, "")


def test_two_distributions_that_name_the_same_are_one(site):
    site("one", "[turnwright.tools]\na = several:Several\n")
    site("two", "[turnwright.tools]\na = several:Several\n")
    assert found(TOOLS) == [("a", "several:Several", "1.5")]
