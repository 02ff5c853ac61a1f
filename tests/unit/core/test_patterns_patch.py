"""Facts about unified diffs."""

import re
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwright_core.patterns.patch import hunks_of, unified_patch, without_hunks

HUNK = re.compile(r"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@\n")


def lines_of(text):
    return re.findall(r"[^\n]*\n|[^\n]+\Z", text)


def applied(patch, old):
    """Apply a patch strictly: every line and every count of it must fit `old`."""
    before, after, at = lines_of(old), [], 0
    rest = deque(lines_of(patch)[2:])
    while rest:
        old_from, old_count, new_from, new_count = (
            1 if part is None else int(part) for part in HUNK.fullmatch(rest.popleft()).groups()
        )
        start = old_from - (old_count > 0)
        after += before[at:start]
        assert len(after) == new_from - (new_count > 0)
        at, hunk = start, []
        while rest and not rest[0].startswith("@@"):
            line = rest.popleft()
            if line.startswith("\\"):
                hunk[-1] = hunk[-1].removesuffix("\n")
            else:
                hunk.append(line)
        removed = [line[1:] for line in hunk if line[0] in " -"]
        added = [line[1:] for line in hunk if line[0] in " +"]
        assert (len(removed), len(added), before[at : at + old_count]) == (old_count, new_count, removed)
        after += added
        at += old_count
    return "".join(after + before[at:])


TEXTS = st.lists(st.sampled_from("abc}"), max_size=25).map("\n".join) | st.text(
    alphabet="ab\n\r\x0b\u2028-+@\\ ", max_size=30
)


@settings(deadline=None)
@given(TEXTS, TEXTS, st.integers(0, 4))
def test_a_patch_makes_the_new_text_of_the_old(old, new, context_lines):
    patch = unified_patch("f", old, new, context_lines=context_lines)
    assert (patch == "", applied(patch, old)) == (old == new, new)


@settings(deadline=None)
@given(st.lists(st.sampled_from("ab"), min_size=10, max_size=60), st.integers(0, 9), st.integers(0, 9))
def test_a_small_edit_is_a_small_patch_however_often_lines_repeat(lines, first, second):
    edited = list(lines)
    edited[first] = "x"
    edited.insert(-second, "y")
    patch = unified_patch("f", "\n".join(lines) + "\n", "\n".join(edited) + "\n", context_lines=0)
    assert sum(line[0] in "+-" for line in patch.splitlines()[2:]) <= 3


def test_a_line_ends_at_a_newline_only():
    assert unified_patch("f", "a\x0bb\n", "a\x0bc\n") == "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\x0bb\n+a\x0bc\n"


def test_changes_that_are_far_apart_are_hunks_of_their_own():
    old = "".join(f"{number}\n" for number in range(40))
    patch = unified_patch("f", old, old.replace("\n5\n", "\nx\n").replace("\n30\n", "\n"), context_lines=1)
    assert [line for line in patch.splitlines() if line.startswith("@@")] == ["@@ -5,3 +5,3 @@", "@@ -30,3 +30,2 @@"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("".join(f"{n % 50}\nu{n}\n" for n in range(10_000)), "".join(f"{n % 50}\nv{n}\n" for n in range(10_000))),
        ("a\n" * 50_000, "b\na\n" * 25_000),
        ("".join(f"{n}\n" for n in range(10_000)), "".join(f"{n * 7919 % 10_000}\n" for n in range(10_000))),
        ("a" * 1_000_000, "b" * 1_000_000),
    ],
)
def test_large_texts_that_differ_everywhere_end(old, new):
    assert applied(unified_patch("f", old, new), old) == new


TEXTS = st.lists(st.sampled_from(["a", "b", "@@ -1 +1 @@", "-x", "\\ y", "", "--- a/f", "z\r"]), max_size=30).flatmap(
    lambda lines: st.sampled_from(["\n".join(lines), "\n".join([*lines, ""])])
)


@given(TEXTS, TEXTS, st.integers(0, 3))
def test_hunks_that_are_taken_back_give_the_old_text(old, new, context) -> None:
    hunks = hunks_of(unified_patch("f", old, new, context_lines=context))
    assert without_hunks(new, hunks) == old
    assert without_hunks(new, []) == new


def test_some_hunks_can_be_taken_back_and_others_stay() -> None:
    old = "".join(f"{number}\n" for number in range(30))
    new = old.replace("2\n", "two\n", 1).replace("15\n", "").replace("28\n", "28\nmore\n")
    hunks = hunks_of(unified_patch("f", old, new))
    assert len(hunks) == 3
    assert without_hunks(new, hunks[1:]) == old.replace("2\n", "two\n", 1)
    assert without_hunks(new, [hunks[0], hunks[2]]) == old.replace("15\n", "")
    assert without_hunks(old, hunks[:1]) is None
