"""Any edit of any text, written in any form: the text that was meant comes out, or a conflict, and never a third thing."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import unified_diff
from itertools import combinations_with_replacement, product

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit

LINE = st.sampled_from(["a", "b", "  a", "  b", "    c", "x = 1", "}", "  }", "\ta", "", "", "", "  "])
LINES = st.lists(LINE, min_size=1, max_size=10)


@dataclass(frozen=True)
class Edit:
    """Lines `start` to `end` (exclusive) of a text become `new`; `before` and `behind` are shown around them."""

    start: int
    end: int
    new: tuple[str, ...]
    before: tuple[str, ...]
    old: tuple[str, ...]
    behind: tuple[str, ...]

    @property
    def sides(self) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """All the lines that are shown, as they were and as they become."""
        return self.before + self.old + self.behind, self.before + self.new + self.behind

    @property
    def first(self) -> int:
        """The index of the first line that is shown."""
        return self.start - len(self.before)


@st.composite
def edits(draw: st.DrawFn, lines: Sequence[str], low: int = 0) -> Edit:
    """One edit of the lines from `low` on that changes something and shows at least one line."""
    start = draw(st.integers(low, len(lines)))
    end = draw(st.integers(start, min(len(lines), start + 3)))
    shown = draw(st.integers(0, 3))
    new = tuple(draw(st.lists(LINE, max_size=3)))
    first = max(low, start - shown)
    old = tuple(lines[start:end])
    assume(new != old)
    assume(lines[first : end + shown])
    return Edit(start, end, new, tuple(lines[first:start]), old, tuple(lines[end : end + shown]))


@st.composite
def tasks(draw: st.DrawFn) -> tuple[str, list[Edit], str]:
    """A text, edits of it that show no line twice, and the text that is meant."""
    lines = draw(LINES)
    made = [draw(edits(lines))]
    low = made[0].end + len(made[0].behind)
    if low < len(lines) and draw(st.booleans()):
        made.append(draw(edits(lines, low)))
    after = list(lines)
    for edit in reversed(made):
        after[edit.start : edit.end] = edit.new
    end_of_line = draw(st.sampled_from(["\n", "\r\n"]))
    has_end = draw(st.booleans()) or len(lines) < 2 or not lines[-1] or not after or not after[-1]
    meant = _text(after, end_of_line, has_end=has_end)
    if not has_end and made[-1].end == len(lines):
        # Without its last line a text may end with the newline before it.
        assume(made[-1].new)
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return mark + _text(lines, end_of_line, has_end=has_end), made, mark + meant


def _text(lines: Sequence[str], end_of_line: str, *, has_end: bool) -> str:
    return end_of_line.join(lines) + (end_of_line if has_end and lines else "")


def forms(made: Sequence[Edit]) -> Iterator[tuple[str, str]]:
    """Yield the edits in every form that can say them."""
    shown = [(_ended(old), _ended(new)) for old, new in (edit.sides for edit in made)]
    if all(edit.sides[0] for edit in made):
        yield "markers", "\n".join(f"<<SEARCH\n{old}SEARCH\n<<REPLACE\n{new}REPLACE" for old, new in shown)
        yield "near misses", "\n".join(f"<<search\n{old}search\n<<replace\n{new}replace" for old, new in shown)
        yield "blocks", "\n".join(f"<<<<<<< SEARCH\n{old}=======\n{new}>>>>>>> REPLACE" for old, new in shown)
        yield "git's blocks", "\n".join(f"<<<<<<< HEAD\n{old}=======\n{new}>>>>>>> mine" for old, new in shown)
        bare = "\n".join("@@\n" + _hunk(edit) for edit in made)
        for name, hunks in (("", bare), (", stripped", _stripped(bare))):
            yield "hunks" + name, hunks + "\n"
            yield "apply_patch" + name, f"*** Begin Patch\n*** Update File: f\n{hunks}\n*** End Patch"
    moved, counted = 0, []
    for edit in made:
        old, new = map(len, edit.sides)
        at = edit.first + (old > 0)
        counted.append(f"@@ -{at},{old} +{at + moved},{new} @@\n" + _hunk(edit))
        moved += new - old
    diff = "\n".join(["--- a/f", "+++ b/f", *counted])
    yield "diff", diff + "\n"
    yield "diff, stripped", _stripped(diff) + "\n"
    yield "diff, contexts without their space", re.sub(r"^ (?=[^\s+\-\\@])", "", diff, flags=re.MULTILINE) + "\n"


def _ended(lines: Sequence[str]) -> str:
    return "".join(line + "\n" for line in lines)


def _hunk(edit: Edit) -> str:
    sides = ((" ", edit.before), ("-", edit.old), ("+", edit.new), (" ", edit.behind))
    return "\n".join(sign + line for sign, lines in sides for line in lines)


def _stripped(hunks: str) -> str:
    """A diff from which an editor has taken the spaces of blank kept lines."""
    return re.sub(r"^ $", "", hunks, flags=re.MULTILINE)


@given(tasks(), st.booleans())
def test_an_edit_is_applied_as_meant_or_is_a_conflict(task, has_returns):
    text, made, meant = task
    for form, body in forms(made):
        result = apply_edit(text, body.replace("\n", "\r\n") if has_returns else body, path="f")
        assert isinstance(result, EditResult | EditConflict), (form, body, result)
        if isinstance(result, EditResult):
            assert result.text == meant, (form, body)


@given(tasks())
def test_an_edit_whose_lines_are_there_once_is_applied(task):
    text, (edit, *others), meant = task
    old, _ = edit.sides
    lines = text.removeprefix("\ufeff").replace("\r\n", "\n").removesuffix("\n").split("\n")
    places = [at for at in range(len(lines)) if tuple(lines[at : at + len(old)]) == old]
    assume(not others and old and len(places) == 1)
    for form, body in forms([edit]):
        result = apply_edit(text, body, path="f")
        doubtful = "hunks" in form or "apply_patch" in form
        assert isinstance(result, EditResult) or (doubtful and not any(map(str.strip, old))), (form, body, result)
        assert isinstance(result, EditConflict) or result.text == meant


@pytest.mark.slow
@pytest.mark.parametrize("end_of_line", ["\n", "\r\n"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
@pytest.mark.parametrize("lines", [one for count in (1, 2) for one in product(["", "a", "  "], repeat=count)])
def test_every_edit_of_a_short_text_is_applied_as_meant_or_is_a_conflict(lines, mark, end_of_line):
    places = combinations_with_replacement(range(len(lines) + 1), 2)
    for (start, end), shown, new in product(places, range(3), [(), ("",), ("b",), ("b", "")]):
        first, after = max(0, start - shown), (*lines[:start], *new, *lines[end:])
        if new == lines[start:end] or not lines[first : end + shown]:
            continue
        edit = Edit(start, end, new, lines[first:start], lines[start:end], lines[end : end + shown])
        text, meant = (mark + _text(each, end_of_line, has_end=True) for each in (lines, after))
        for form, body in forms([edit]):
            result = apply_edit(text, body, path="f")
            assert isinstance(result, EditConflict) or result.text == meant, (form, body)


@given(LINES, LINES, st.booleans(), st.booleans(), st.integers(0, 3), st.sampled_from(["\n", "\r\n"]))
def test_a_diff_of_two_texts_makes_the_second_of_the_first(old, new, old_end, new_end, shown, end_of_line):
    before, after = (_text(lines, end_of_line, has_end=end) for lines, end in ((old, old_end), (new, new_end)))
    sides = ([line + "\n" for line in text.replace("\r\n", "\n").split("\n")] for text in (before, after))
    told = [[*lines[:-1], lines[-1][:-1]] if lines[-1] != "\n" else lines[:-1] for lines in sides]
    pieces = list(unified_diff(*told, "a/f", "b/f", n=shown))
    assume(pieces and before)
    body = "".join(one if one.endswith("\n") else one + "\n\\ No newline at end of file\n" for one in pieces)
    result = apply_edit(before, body, path="f")
    assert isinstance(result, EditResult)
    # A text of one line says by nothing how its lines end.
    assert result.text in ((after,) if end_of_line in before else (after, after.replace("\r\n", "\n")))


WORD = st.text(alphabet="ab/|&.*[](){}+?^$\\#é =", min_size=1, max_size=6).filter(lambda word: word == word.strip())


@given(st.lists(WORD, min_size=1, max_size=6), st.data(), st.sampled_from("/|#,@"), st.sampled_from(["\n", "\r\n"]))
def test_a_sed_command_for_a_line_is_applied_as_meant_or_is_a_conflict(lines, data, mark, end_of_line):
    number = data.draw(st.integers(1, len(lines)))
    old, new = lines[number - 1], data.draw(WORD)
    text = _text(lines, end_of_line, has_end=True)
    search = re.sub(r"([\\/|#,@.*\[\]^$])", r"\\\1", old)
    replacement = re.sub(r"([\\/|#,@&])", r"\\\1", new)
    result = apply_edit(text, f"{number}s{mark}{search}{mark}{replacement}{mark}")
    assert isinstance(result, EditResult | EditConflict)
    if isinstance(result, EditResult):
        assert result.text == _text([*lines[: number - 1], new, *lines[number:]], end_of_line, has_end=True)


@given(LINES, LINES, st.sampled_from(["\n", "\r\n"]))
def test_a_whole_replacement_keeps_the_final_newline_and_a_new_text_is_as_written(old, new, end_of_line):
    assume(new[-1] and new[0].strip())
    text, body = _text(old, end_of_line, has_end=True), "\n".join(new)
    for written in (f"<<NEW\n{body}\nNEW", f"<<REPLACE\n{body}\nREPLACE", f"<<WHOLE\n{body}\nWHOLE", body):
        assert apply_edit(text, written).text == _text(new, end_of_line, has_end=True)
        assert apply_edit(None, written).text == body
