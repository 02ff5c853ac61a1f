"""Facts about unified diffs and `apply_patch`: as the body of a `set`, and in a reply."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.patterns.patch import unified_patch
from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit
from turnwright_grammar.edits.diffs import PatchedFile, new_body, read_apply_patch, read_diff
from turnwright_grammar.edits.markers import parse_body
from turnwright_grammar.edits.operations import EditSyntaxError, Operation

PYTHON = "def one():\n    return 1\n\ndef two():\n    return 1\n\ndef six():\n    return 1\n"
LINES = st.lists(
    st.sampled_from(["a", "b", "  a", "", " ", "x = 1", "+", "-", "--", "-- ", "++ b", "@@ -1 +1 @@", "*** x", "\\ x"]),
    max_size=12,
)


def changed(number: int) -> str:
    lines = PYTHON.split("\n")
    lines[number - 1] = "    return 2"
    return "\n".join(lines)


def edited(original: str | None, body: str, path: str | None = None) -> str:
    result = apply_edit(original, body, path=path)
    assert isinstance(result, EditResult), result
    return result.text


HUNK = "-    return 1\n+    return 2\n"


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("--- a/m.py\n+++ b/m.py\n@@ -4,2 +4,2 @@\n def two():\n" + HUNK, 5),
        ("@@ -4,2 +4,2 @@ def one():\n def two():\n" + HUNK, 5),
        ("@@ -5 +5 @@\n" + HUNK, 5),
        ("@@ -8,99 +8,3 @@\n" + HUNK, 8),
        ("@@ -7 +7 @@\n" + HUNK, 8),
        ("@@ -900,3 +900,3 @@\n" + HUNK, 8),
        ("@@\n def six():\n" + HUNK, 8),
        ("@@ ... @@\n def one():\n" + HUNK, 2),
        ("@@ def two():\n" + HUNK, 5),
        ("@@ def two(): @@\n" + HUNK, 5),
        ("--- m.py\n+++ m.py\n def six():\n" + HUNK, 8),
        ("```diff\n@@ -4,2 +4,2 @@\n def two():\n" + HUNK + "```", 5),
        ("\n\n    @@ -4,2 +4,2 @@\n     def two():\n    -    return 1\n    +    return 2\n", 5),
        ("diff --git a/m.py b/m.py\nindex 12..34 100644\n--- a/m.py\n+++ b/m.py\n@@ -3,3 +3,3 @@\n\n def two():\n" + HUNK, 5),
        ("@@ -4,3 +4,3 @@\n def two():\n" + HUNK + "\n", 5),
        ("@@ -4,4 +4,4 @@\ndef two():\n" + HUNK + "\n def six():\n", 5),
        ("@@ -4,2 +4,2 @@\r\n def two():\r\n-    return 1\r\n+    return 2\r\n", 5),
        ("--- a/m.py\n+++ b/m.py\n@@ -4,2 +4,2 @@\n def two():\n" + HUNK + "-- \n2.43.0\n\n", 5),
        ("@@\n def two():\n-  return 1\n+  return 2\n", 5),
        ("*** Begin Patch\n*** Update File: m.py\n@@ def two():\n" + HUNK + "*** End Patch", 5),
        ("*** Begin Patch\n*** Update File: m.py\n@@ def one():\n@@ def two():\n" + HUNK + "*** End Patch\n", 5),
        ("*** Begin Patch\n*** Update File: m.py\n@@ def two():\n def two():\n" + HUNK + "*** End Patch", 5),
        ("*** Begin Patch\n*** Update File: m.py\n def two():\n" + HUNK, 5),
        ("*** Update File: m.py\n@@\n" + HUNK + "*** End of File\n*** End Patch", 8),
        ("```\n*** Begin Patch\n*** Update File: m.py\n@@ def one():\n" + HUNK + "*** End Patch\n```", 2),
        ("apply_patch <<'EOF'\n*** Begin Patch\n*** Update File: m.py\n@@ def one():\n" + HUNK + "*** End Patch\nEOF", 2),
        ("<<EOF\n*** Begin Patch\n*** Update File: m.py\n@@ def one():\n" + HUNK + "*** End Patch\nEOF", 2),
    ],
)  # fmt: skip
def test_a_patch_changes_this_line(body, line):
    assert edited(PYTHON, body) == changed(line)


@pytest.mark.parametrize(
    ("original", "body", "text"),
    [
        ("a\nb\n", "@@ -1,0 +2 @@\n+x\n", "a\nx\nb\n"),
        ("a\nb\n", "@@ -0,0 +1 @@\n+x\n", "x\na\nb\n"),
        ("a\nb\n", "@@ -2 +1,0 @@\n-b\n", "a\n"),
        ("a\nb", "@@\n a\n-b\n+c\n", "a\nc"),
        ("a\nb", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+b\n", "a\nb\n"),
        ("a\nb\n", "@@ -2 +2 @@\n-b\n+b\n\\ No newline at end of file\n", "a\nb"),
        ("a\nb\n", "@@ -2 +2 @@\n-b\n\\ No newline at end of file\n+c\n\\ No newline at end of file\n", "a\nc\n"),
        ("a\r\nb\r\n", "@@\n a\n-b\n+c\n+d\n", "a\r\nc\r\nd\r\n"),
        ("if x:\n\tone( )  \n\ttwo()\n", "@@\n if x:\n     one( )\n-    two()\n+    six()\n+        ten()\n", "if x:\n\tone( )  \n\tsix()\n\t    ten()\n"),
        ("a\nb\na\nb\n", "@@\n-a\n+x\n b\n@@\n-a\n+y\n", None),
        ("a\nb\na\n", "@@\n-b\n+x\n@@\n-a\n+y\n", "a\nx\ny\n"),
        ("a\nb\nc\na\n", "@@ -11 +11,3 @@\n-b\n+x\n+x\n+x\n@@ -13 +15 @@\n-a\n+y\n", "a\nx\nx\nx\nc\ny\n"),
        ("max = 1\n", "@@\n-x = 1\n+x = 2\n", None),
        ("1 | a\n", "@@\n-1 | b\n+c\n", None),
        ("b\n", "@@\n-1 | b\n+c\n", None),
        ("a\n", "@@\n+x\n", None),
        ("a\n", "@@ -1,3 +1,4 @@\n+x\n", None),
        ("a\n\nb\n\nc\n", "@@\n-\n+x\n", None),
        ("a\nb\n", "@@ -9 +9 @@\n-z\n+y\n", None),
        ("a\nb\n", "*** Begin Patch\n*** Update File: f\n@@ a\n+x\n*** End Patch", "a\nx\nb\n"),
        ("a\nb\n", "*** Begin Patch\n*** Update File: f\n@@\n+x\n*** End Patch", "a\nb\nx\n"),
        ("a\nb\n", "*** Begin Patch\n*** Update File: f\n@@ zzz\n-b\n+x\n*** End Patch", None),
        ("a\nb\n", "*** Begin Patch\n*** Add File: f\n+x\n+\n+y\n*** End Patch", "x\n\ny\n"),
        ("a\nb\n", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+x\n--- a/f\n+++ b/f\n@@ -2 +2 @@\n-b\n+y\n", "x\ny\n"),
        (None, "--- /dev/null\n+++ b/f\n@@ -0,0 +1,2 @@\n+a\n+b\n", "a\nb\n"),
        (None, "*** Begin Patch\n*** Add File: f\n+a\n*** End Patch", "a\n"),
        ("", "@@ -0,0 +1 @@\n+a\n", "a\n"),
    ],
)  # fmt: skip
def test_a_patch_gives_this_text(original, body, text):
    result = apply_edit(original, body)
    assert (result.text if isinstance(result, EditResult) else None) == text
    assert not isinstance(result, EditSyntaxError)


def test_a_hunk_that_fits_nowhere_or_twice_names_lines_and_applies_nothing():
    body = "@@\n def one():\n" + HUNK + "@@\n-def ten():\n+def nine():\n"
    assert apply_edit(PYTHON, body) == EditConflict(
        "Hunk 2 was not found in the current text. The most similar lines are 1-1:\n1: def one():\n"
        "Copy the text exactly from there.",
        2,
        (1,),
    )
    result = apply_edit(PYTHON, "@@\n" + HUNK)
    assert isinstance(result, EditConflict)
    assert (result.lines, "Show more of the lines" in result.message) == ((2, 5, 8), True)


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("--- a/f\n+++ b/f\nand so on\n", 3),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\nand so on\n", 6),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", 1),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", 1),
        ("diff --git a/f b/g\nrename from f\nrename to g\n", 1),
        ("*** Begin Patch\n*** Update File: f\n@@\n a\n*** End Patch", 1),
        ("*** Begin Patch\nhello\n*** End Patch", 2),
        ("*** Begin Patch\n*** Delete File: f\n*** End Patch", 1),
        ("*** Begin Patch\n*** Update File: f\n*** Move to: g\n@@\n-a\n+b\n*** End Patch", 1),
        ("```diff\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n\n\nand so on\n```", 9),
    ],
)
def test_a_patch_that_is_broken_or_changes_more_than_one_entry_is_an_error(body, line):
    error = parse_body(body)
    assert isinstance(error, EditSyntaxError)
    assert error.line == line


@pytest.mark.parametrize(
    ("original", "path", "body"),
    [
        ("a\n", "fix.patch", "@@ -1 +1 @@\n-a\n+b\n"),
        ("a\n", "fix.diff", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"),
        (None, "known://review", "--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n"),
        (None, None, "@@ -1 +1 @@\n-a\n+b\n"),
        (None, "a.py", "--- a/f\n+++ b/f\nno hunk\n"),
        ("a\n", None, "@@ what\nis this\n"),
        ("a\n", None, "-a\n+b\n"),
        ("a\n", None, "---\ntitle: x\n---\n@@ -1 +1 @@\n-a\n+b\n"),
        ("a\n", None, "A diff:\n@@ -1 +1 @@\n-a\n+b\n"),
        ("a\n", None, "*** a list ***\n"),
        ("a\n", None, "<<NEW\n@@ -1 +1 @@\n-a\n+b\n\nNEW"),
        ("a\n", None, "<<EOF\n@@ -1 +1 @@\n-a\n+b\n\nEOF"),
    ],
)
def test_what_only_resembles_a_patch_is_the_new_text(original, path, body):
    content = body.removeprefix("<<NEW\n").removeprefix("<<EOF\n").removesuffix("\nNEW").removesuffix("\nEOF")
    assert edited(original, body, path) == content


def test_a_diff_for_a_file_that_is_not_there_is_a_conflict():
    result = apply_edit(None, "@@ -1 +1 @@\n-a\n+b\n", path="src/a.py")
    assert isinstance(result, EditConflict)
    assert "does not exist" in result.message


def test_a_hunk_is_a_search_and_its_replacement():
    (operation,) = parse_body("@@ -3,2 +3,2 @@\n a\n-b\n+c\n").operations
    assert (operation.kind, operation.search, operation.replace, operation.line) == (
        "search_replace",
        "a\nb",
        "a\nc",
        3,
    )


@pytest.mark.parametrize(
    ("text", "edits"),
    [
        ("", []),
        ("no diff\n--- only\n", []),
        ("@@ -1 +1 @@\n-a\n+b\n", []),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n a\n", []),
        ("--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", [("f", "b\n", None)]),
        ("--- f\t2024-01-01 00:00:00\n+++ f 2024-01-02 00:00:00\n@@ -1 +1 @@\n-a\n+b\n", [("f", "b\n", None)]),
        ("--- i/f\n+++ w/f\n@@ -1 +1 @@\n-a\n+b\n", [("f", "b\n", None)]),
        ("--- a/f.orig\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\n", [("f", "b\n", None)]),
        ("--- src/f\n+++ src/f\n@@ -1 +1 @@\n-a\n+b\n", [("src/f", "b\n", None)]),
        ('--- "a/a b"\n+++ "b/a b"\n@@ -1 +1 @@\n-a\n+b\n', [("a b", "b\n", None)]),
        ("First:\n--- a/f\n+++ b/f\n@@ -1 +1 @@\n-a\n+b\nThen:\n--- a/g\n+++ b/g\n@@ -1 +1 @@\n-a\n+c\n", [("f", "b\n", None), ("g", "c\n", None)]),
        ("--- /dev/null\n+++ b/n\n@@ -0,0 +1,2 @@\n+NEW\n+x\n", [("n", "NEW\nx\n", None)]),
        ("diff --git a/n b/n\nnew file mode 100644\nindex 0..1\n--- /dev/null\n+++ b/n\n@@ -0,0 +1 @@\n+x\n\\ No newline at end of file\n", [("n", "x", None)]),
        ("diff --git a/n b/n\nnew file mode 100644\nindex 0..0\n", [("n", "", None)]),
        ("--- a/f\n+++ /dev/null\n@@ -1 +0,0 @@\n-a\n", [("f", None, None)]),
        ("diff --git a/d/f b/d/f\ndeleted file mode 100644\n", [("d/f", None, None)]),
        ("diff --git a/f b/g\nsimilarity index 100%\nrename from f\nrename to g\n", [("f", "a\n", "g")]),
        ("diff --git a/f b/g\nrename from f\nrename to g\n--- a/f\n+++ b/g\n@@ -1 +1 @@\n-a\n+b\n", [("f", "b\n", "g")]),
        ("diff --git a/f b/f\nold mode 100644\nnew mode 100755\n", []),
        ("--- a/f.patch\n+++ b/f.patch\n@@ -1 +1 @@\n-a\n+b\n", [("f.patch", "b\n", None)]),
        ("Index: f\n===================================================================\n--- f\t(revision 1)\n+++ f\t(working copy)\n@@ -1 +1 @@\n-a\n+b\n", [("f", "b\n", None)]),
    ],
)  # fmt: skip
def test_a_diff_edits_these_files(text, edits):
    assert [applied(one) for one in read_diff(text)] == edits


def applied(edit: PatchedFile) -> tuple[str, str | None, str | None]:
    """The path, what becomes of a file that holds `a` or is new, and where it goes."""
    original = None if (edit.body or "").startswith("<<NEW") else "a\n"
    text = edited(original, edit.body, edit.path) if edit.body else original if edit.moved_to else None
    return edit.path, text, edit.moved_to


SECTIONS = """\
*** Begin Patch
*** Add File: new.py
+one

+two
*** Update File: f.py
@@
-a
+b
*** Update File: g.py
*** Move to: h.py
@@
-a
+c
*** Update File: i.py
*** Move to: j.py
*** Delete File: k.py
*** End Patch"""


def test_an_apply_patch_text_edits_these_files_and_ends_behind_its_last_line():
    text = f"Here:\n{SECTIONS}\nDone."
    edits, end = read_apply_patch(text, 6)
    assert text[end:] == "\nDone."
    assert [applied(one) for one in edits] == [
        ("new.py", "one\n\ntwo\n", None),
        ("f.py", "b\n", None),
        ("g.py", "c\n", "h.py"),
        ("i.py", "a\n", "j.py"),
        ("k.py", None, None),
    ]


@pytest.mark.parametrize("rest", ["", "```\nDone.", "Done.", "*** Begin Patch\n*** Delete File: x\n"])
def test_an_apply_patch_text_without_its_last_line_ends_where_it_can_hold_no_more(rest):
    text = f"*** Begin Patch\n*** Update File: f.py\n@@\n-a\n+b\n{rest}"
    edits, end = read_apply_patch(text, 0)
    assert [applied(one) for one in edits] == [("f.py", "b\n", None)]
    assert text[end:] == rest


@pytest.mark.parametrize("text", ["", "*** Begin Patch", "*** Begin Patch\nhello\n*** End Patch", "*** End Patch", "x\n*** Begin Patch\n"])  # fmt: skip
def test_what_is_no_apply_patch_text_is_none(text):
    assert read_apply_patch(text, 0) is None


@given(st.text(alphabet="NEW12<>\n a", max_size=40))
def test_a_new_body_writes_its_content_as_it_is(content):
    assert parse_body(new_body(content)).operations == (Operation("new", content),)


@given(LINES, LINES, st.sampled_from(["", "\n"]), st.sampled_from(["", "\n"]))
def test_a_patch_of_two_texts_makes_the_second_of_the_first(old, new, old_end, new_end):
    before, after = "\n".join(old) + old_end, "\n".join(new) + new_end
    patch = unified_patch("f", before, after)
    if patch:
        assert edited(before, patch) == after
        (edit,) = read_diff(patch)
        assert (edit.path, edited(before, edit.body)) == ("f", after)


@given(LINES, LINES, LINES)
def test_a_patch_follows_its_lines_when_others_come_before(before, old, new):
    old_text, new_text = (f"first line\n{''.join(line + chr(10) for line in lines)}last line\n" for lines in (old, new))
    patch = unified_patch("f", old_text, new_text, context_lines=20)
    moved = "".join(f"# {line}\n" for line in before)
    if patch and not any(line in ("", " ") for line in (*old, *new)):
        assert edited(moved + old_text, patch) == moved + new_text


PATCH_PIECES = ["@@\n", "@@ -1,2 +1 @@\n", "@@ x\n", "--- a/x\n", "+++ b/x\n", " a\n", "-a\n", "+b\n", "\n", "\\ No newline\n",
                "*** Begin Patch\n", "*** Update File: x\n", "*** Add File: y\n", "*** End of File\n", "*** End Patch\n", "```diff\n",
                "```\n", "diff --git a/x b/x\n", "rename from x\n", "rename to y\n", "x\n", "-- \n", "2.1\n"]  # fmt: skip


@given(st.lists(st.sampled_from(PATCH_PIECES), max_size=25).map("".join), st.none() | st.just("a\nb\na\n"))
def test_any_mixture_of_patch_lines_is_read(text, original):
    assert isinstance(apply_edit(original, text), EditResult | EditConflict | EditSyntaxError)
    for edit in read_diff(text):
        assert isinstance(apply_edit(original, edit.body or ""), EditResult | EditConflict | EditSyntaxError)
    found = read_apply_patch(text, 0)
    assert found is None or 0 < found[1] <= len(text)


@pytest.mark.slow
@pytest.mark.parametrize(
    "head", ["", "--- a/x\n+++ b/x\n@@ -1,2 +1,2 @@\n", "*** Begin Patch\n*** Update File: x\n@@\n", "```diff\n"]
)
@pytest.mark.parametrize("piece", [*PATCH_PIECES, "@@\n-a\n+b\n", "--- a\n+++ b\n", "*** Begin Patch\n*** Add File: x\n", " @", "@", "*"])  # fmt: skip
def test_a_long_text_of_one_patch_line_is_read(head, piece):
    text = head + piece * (100_000 // len(piece))
    apply_edit("a\n", text)
    read_diff(text)
    assert isinstance(read_apply_patch(text, 0), tuple | None)
