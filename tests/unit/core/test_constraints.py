"""Which constraint holds for a file, where several fit it."""

import pytest

from turnwright_core.constraints import Constraints, FileConstraint, fixed_folder


def constraints(**said: str) -> Constraints:
    return Constraints(FileConstraint(pattern.replace("__", "/"), kind) for pattern, kind in said.items())


@pytest.mark.parametrize(
    ("said", "is_ignored", "is_readonly"),
    [
        ({}, False, False),
        ({"src/**": "add"}, False, False),
        ({"src/**": "ignore"}, True, False),
        ({"src/**": "readonly"}, False, True),
        ({"src/**": "ignore", "**/*.py": "add"}, True, False),
        ({"src/**": "ignore", "**/*.py": "readonly"}, True, True),
        ({"src/**": "ignore", "src/a.py": "add"}, False, False),
        ({"src/**": "readonly", "src/a.py": "add"}, False, True),
        ({"src/**": "add", "src/a.py": "ignore"}, True, False),
        ({"/^src/": "ignore"}, False, False),
        ({"/^src.+/": "ignore"}, True, False),
        ({"other/**": "ignore"}, False, False),
    ],
)
def test_the_path_by_itself_wins_then_the_strictest(said, is_ignored, is_readonly):
    rules = constraints(**said)
    assert (rules.is_ignored("src/a.py"), rules.is_readonly("src/a.py")) == (is_ignored, is_readonly)
    assert rules.is_ignored("src/a.py") is is_ignored


def test_what_is_added_and_what_is_readonly_is_taken_in():
    rules = constraints(**{"b": "add", "a/**": "readonly", "c": "ignore"})
    assert rules.taken_in == ["a/**", "b"]


def test_constraints_that_say_the_same_are_equal():
    one, same = constraints(a="add", b="ignore"), constraints(b="ignore", a="add")
    assert (one == same, hash(one) == hash(same), one == constraints(a="add"), one == "a") == (True, True, False, False)


@pytest.mark.parametrize(
    ("said", "is_added"),
    [
        ({}, False),
        ({"src/**": "add"}, True),
        ({"src/a.py": "add"}, True),
        ({"src/**": "readonly"}, False),
        ({"src/**": "add", "src/a.py": "readonly"}, False),
        ({"src/**": "add", "**/*.py": "readonly"}, False),
        ({"src/**": "ignore", "**/*.py": "add"}, False),
        ({"src/**": "ignore", "src/a.py": "add"}, True),
        ({"other/**": "add"}, False),
    ],
)
def test_a_file_is_asked_for_by_add_where_nothing_stricter_is_said(said, is_added):
    """RU168, C7."""
    assert constraints(**said).is_added("src/a.py") is is_added


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [("src/lib/*.py", "src/lib"), ("src/a{b,c}/x", "src"), ("*.py", ""), ("/^src/", ""), ("src/**", "src")],
)
def test_the_fixed_folder_of_a_pattern(pattern, folder):
    assert fixed_folder(pattern) == folder
