"""Which constraint holds for a file, where several fit it."""

from unicodedata import normalize

import pytest
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_core.constraints import Constraints, Patterns, UndecidedError, fixed_folder
from turnwright_core.limits import FILE_CONSTRAINTS_MAX, FILE_PATTERNS_MAX
from turnwright_core.patterns.matching import match, matcher


def constraints(**said: str) -> Constraints:
    return Constraints(
        FileConstraint(pattern.replace("__", "/"), FileConstraintKind[kind.upper()]) for pattern, kind in said.items()
    )


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
    assert rules.paths_taken_in == ["b"]
    assert {folder: patterns.patterns for folder, patterns in rules.patterns_taken_in.items()} == {"a": ["a/**"]}


@pytest.mark.parametrize("kind", ["ignore", "readonly", "add"])
def test_a_constraint_that_takes_too_long_is_no_answer_and_is_named(kind):
    """Whatever it would have said: to go on without it could show what it is to keep away."""
    rules = constraints(**{"/(a|aa)+$/": kind})
    asked = {"ignore": rules.is_ignored, "readonly": rules.is_readonly, "add": rules.is_added}[kind]
    with pytest.raises(UndecidedError, match=r"/\(a\|aa\)\+\$/"):
        asked("a" * 60 + "b")


def test_constraints_that_take_long_for_every_path_are_given_up_in_the_end():
    """Each by itself is in time."""
    patterns = Patterns(["src/**"], trying_s=0.0, trying_s_a_path=0.0)
    assert patterns.fit("src/a.py")
    assert patterns.fit("src/a.py"), "it is known"
    with pytest.raises(UndecidedError, match="use simpler"):
        patterns.fit("src/b.py")


def test_any_number_of_exact_paths_costs_no_more_than_one():
    rules = constraints(**{f"src/f{number}": "ignore" for number in range(FILE_CONSTRAINTS_MAX)})
    assert (rules.is_ignored("src/f7"), rules.is_ignored("src/g")) == (True, False)
    assert rules._ignoring.patterns == []


def test_more_patterns_than_a_store_takes_are_not_tried():
    rules = constraints(**{f"/x{number}/": "ignore" for number in range(FILE_PATTERNS_MAX + 1)})
    with pytest.raises(UndecidedError, match="remove some"):
        rules.is_ignored("a")


@pytest.mark.parametrize(
    "pattern", ["src/**", "!*.py", "*.py", "/^src.+/", "/A/i", "a[b]c", "app/[id]/*", "a.py", "$.a", "{a,b}.py"]
)
@pytest.mark.parametrize("path", ["", "src", "src/a.py", "a.py", "b.py", "a[b]c", "abc", "app/[id]/x", "a", "$.a"])
def test_a_pattern_for_many_strings_fits_what_it_fits_by_itself(pattern, path):
    assert matcher(pattern)(path) is match(pattern, path)


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


@pytest.mark.parametrize("path_form", ["NFC", "NFD"])
@pytest.mark.parametrize("form", ["NFC", "NFD"])
@pytest.mark.parametrize(
    "pattern",
    [
        "Übung/café.txt",
        "Übung/*",
        "**/caf?.txt",
        "**/caf[éx].txt",
        "{Übung,a}/**",
        "!Ubung/**",
        "/.+café.+/",
        "/.+caf[é].+t/",
    ],
)
@pytest.mark.parametrize("kind", ["ignore", "readonly", "add"])
def test_letters_are_compared_composed(pattern, form, path_form, kind):
    rules = Constraints([FileConstraint(normalize(form, pattern), FileConstraintKind[kind.upper()])])
    path = normalize(path_form, "Übung/café.txt")
    assert (rules.is_ignored(path), rules.is_readonly(path), rules.is_added(path)) == tuple(
        kind == one for one in ("ignore", "readonly", "add")
    )
    assert not Constraints([FileConstraint(normalize(form, "!Übung/**"), kind)]).is_ignored(path)


@pytest.mark.parametrize(("one", "other"), [("NFC", "NFD"), ("NFD", "NFC")])
def test_of_two_spellings_of_a_path_the_strictest_counts(one, other):
    said = [
        FileConstraint(normalize(one, "é"), FileConstraintKind.IGNORE),
        FileConstraint(normalize(other, "é"), FileConstraintKind.ADD),
    ]
    for rules in (Constraints(said), Constraints(reversed(said))):
        assert (rules.is_ignored("é"), rules.is_added("é")) == (True, False)


@pytest.mark.parametrize(
    ("pattern", "folder"),
    [
        ("src/lib/*.py", "src/lib"),
        ("src/a{b,c}/x", "src"),
        ("*.py", ""),
        ("/^src/", ""),
        ("src/**", "src"),
        ("a/ü/b*", "a"),
        ("ü/**", ""),
    ],
)
def test_the_fixed_folder_of_a_pattern(pattern, folder):
    assert fixed_folder(pattern) == folder
