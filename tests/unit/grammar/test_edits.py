"""Facts about the marker grammar and about applying edits."""

import subprocess

import pytest

from turnwright_grammar import (
    EditConflict,
    EditResult,
    EditSyntaxError,
    Operation,
    apply_edit,
    parse_body,
    unified_patch,
)


def pair(search: str, replacement: str) -> str:
    return f"<<SEARCH\n{search}\nSEARCH\n<<REPLACE\n{replacement}\nREPLACE"


def edited(original: str | None, body: str) -> str:
    result = apply_edit(original, body)
    assert isinstance(result, EditResult), result
    return result.text


@pytest.mark.parametrize(
    ("body", "operations"),
    [
        ("<<APPEND\nx\nAPPEND", [Operation("append", "x")]),
        ("<<APPEND x APPEND", [Operation("append", "x")]),
        ("<<APPEND\r\nx\r\nAPPEND", [Operation("append", "x")]),
        ("<<DELETE\n  x\n    DELETE", [Operation("delete", "  x")]),
        ("<<NEW\n\nx\n\nNEW", [Operation("new", "\nx\n")]),
        ("<<NEW\nNEW", [Operation("new", "")]),
        ("<<SEARCH a SEARCH <<REPLACE b REPLACE", [Operation("search_replace", search="a", replace="b")]),
        (
            "<<SEARCH_x\nSEARCH a\nSEARCH_x\n<<REPLACE2\nb\nREPLACE2",
            [Operation("search_replace", search="SEARCH a", replace="b")],
        ),
        (
            "<<SEARCH\nthe SEARCH tool\nSEARCH\n<<REPLACE\nb\nREPLACE",
            [Operation("search_replace", search="the SEARCH tool", replace="b")],
        ),
        ("<<DOC1\n<<SEARCH a SEARCH\nDOC1", [Operation("replace", "<<SEARCH a SEARCH")]),
        ("<<APPENDIX x APPENDIX", [Operation("replace", "x")]),
        ("<<:::a\nx\n:::a", [Operation("replace", "<<:::a\nx\n:::a")]),
        ("cat <<EOF > f\nx\nEOF\n", [Operation("replace", "cat <<EOF > f\nx\nEOF\n")]),
        ("vec<<NEW x NEW", [Operation("replace", "vec<<NEW x NEW")]),
        ("\nx\n", [Operation("replace", "x\n")]),
        ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", [Operation("search_replace", search="a", replace="b")]),
    ],
)
def test_a_body_holds_these_operations(body, operations):
    edits = parse_body(body)
    assert list(edits.operations) == operations


@pytest.mark.parametrize(
    ("body", "line"),
    [("x\n<<SEARCH\na\nSEARCH", 2), ("<<NEW\nx", 1), ("<<SEARCH a SEARCH <<APPEND b APPEND", 1), ("<<DELETE", 1)],
)
def test_a_lone_search_and_an_unclosed_marker_are_syntax_errors(body, line):
    error = parse_body(body)
    assert isinstance(error, EditSyntaxError)
    assert error.line == line


def test_text_between_markers_is_ignored_with_a_note():
    result = apply_edit("a", "Here: <<APPEND x APPEND done")
    assert result == EditResult("ax", notes=("Text outside the edit markers was ignored.",))


@pytest.mark.parametrize(
    ("body", "pairs"),
    [
        ("s/a/b/", [("a", "b", False)]),
        ("s|a|b|g", [("a", "b", True)]),
        ("s/a\\/b/c/; s#d##\ns,e,f,", [("a/b", "c", False), ("d", "", False), ("e", "f", False)]),
    ],
)
def test_a_body_of_sed_edits_an_entry_that_exists(body, pairs):
    assert [(one.search, one.replace, one.every) for one in parse_body(body).operations] == pairs
    assert parse_body(body, exists=False).operations == (Operation("replace", body),)


@pytest.mark.parametrize("body", ["s/a/b", "s/a/b/ and more", "s//b/", "sed s/a/b/", "s/a/b/x"])
def test_a_body_that_is_not_wholly_sed_is_plain(body):
    assert parse_body(body).operations == (Operation("replace", body),)


@pytest.mark.parametrize(
    ("original", "body", "text"),
    [
        (None, "<<NEW\nx\nNEW", "x"),
        (None, "plain", "plain"),
        (None, "\nplain\n", "plain\n"),
        ("a\n", "<<REPLACE\nb\nREPLACE", "b\n"),
        ("a", "<<REPLACE\nb\nREPLACE", "b"),
        ("a\r\nb\r\n", "c\nd\n", "c\r\nd\r\n"),
        ("a\n", "<<APPEND\nb\nAPPEND", "a\nb"),
        ("a\n", "<<PREPEND\nb\nPREPEND", "ba\n"),
        ("a\nb\nc\n", "<<DELETE\nb\nDELETE", "a\nc\n"),
        ("a b c", "<<DELETE b DELETE", "a  c"),
        ("a\r\nb\r\nc\r\n", pair("a\nb", "x\ny\nz"), "x\r\ny\r\nz\r\nc\r\n"),
        ("    if a:\n        b\n", pair("if a:\n    b", "if a:\n    b\n    c"), "    if a:\n        b\n        c\n"),
        ("    x = 1\n", pair("x = 1", "x = 1\ny = 2"), "    x = 1\n    y = 2\n"),
        ("\tx  =  1\n", pair("x = 1", "x = 2"), "\tx = 2\n"),
        ("say(“hi”)\n", pair('say("hi")', 'say("ho")'), 'say("ho")\n'),
        ("a = 1\naa = 1\n", pair("a = 1", "b"), "b\naa = 1\n"),
        ("ax\n  a\n", pair("a", "b"), None),
        ("a\nb", pair("12 | a\n13 | b", "12 | a\n13 | c"), "a\nc"),
        ("one two", pair("one", "two") + "\n" + pair("two two", "3"), "3"),
        ("a a", "s/a/b/g", "b b"),
        ("x", pair("  ", "y"), "x\ny\n"),
    ],
)
def test_an_edit_gives_this_text(original, body, text):
    result = apply_edit(original, body)
    assert (result.text if isinstance(result, EditResult) else None) == text


def test_a_search_that_fits_two_places_names_their_lines():
    result = apply_edit("a\nb\na\n", pair("a", "c"))
    assert isinstance(result, EditConflict)
    assert (result.lines, "lines 1, 3" in result.message) == ((1, 3), True)


def test_a_unique_exact_match_wins_over_fuzzy_ones():
    assert edited("  a\na\n    a\n", pair("a", "b")) == "  a\nb\n    a\n"


def test_a_search_that_is_not_there_shows_the_most_similar_lines():
    result = apply_edit("def a():\n    return 1\n\ndef b():\n    return 2\n", pair("def b():\n    return 3", "x"))
    assert isinstance(result, EditConflict)
    assert (result.lines, "4: def b():\n5:     return 2" in result.message) == ((4,), True)


def test_a_conflict_discards_the_operations_before_it():
    result = apply_edit("a\n", pair("a", "b") + "\n" + pair("z", "y"))
    assert isinstance(result, EditConflict)
    assert result.operation == 2


@pytest.mark.parametrize("body", [pair("x", "y"), "<<DELETE x DELETE"])
def test_searching_what_does_not_exist_advises_to_write_it(body):
    result = apply_edit(None, body)
    assert isinstance(result, EditConflict)
    assert "<<NEW" in result.message


def test_a_patch_shows_the_change_and_missing_newlines():
    assert unified_patch("f", "a\nb", "a\nc\n") == (
        "--- a/f\n+++ b/f\n@@ -1,2 +1,2 @@\n a\n-b\n\\ No newline at end of file\n+c\n"
    )
    assert unified_patch("f", "a", "a") == ""


def test_a_patch_of_large_texts_is_one_hunk():
    old = "".join(f"{n}\n" for n in range(6000))
    patch = unified_patch("f", old, old.replace("3000\n", "x\n"))
    assert patch == "--- a/f\n+++ b/f\n@@ -2998,7 +2998,7 @@\n 2997\n 2998\n 2999\n-3000\n+x\n 3001\n 3002\n 3003\n"


def test_a_small_edit_of_a_long_text_of_equal_lines_is_a_small_patch():
    old = "# one\n" + "value = 1\n" * 300
    patch = unified_patch("m.py", old, old.replace("# one", "# two"))
    assert patch.splitlines()[2:5] == ["@@ -1,4 +1,4 @@", "-# one", "+# two"]
    middle = old.replace("value = 1\n" * 300, "value = 1\n" * 150 + "other\n" + "value = 1\n" * 150)
    changed = [line for line in unified_patch("m.py", old, middle).splitlines()[2:] if line[0] in "+-"]
    assert changed == ["+other"]


def test_a_patch_applies_with_the_standard_tool(tmp_path):
    old = "".join(f"line {number % 7}\n" for number in range(400))
    new = old.replace("line 3\n", "line three\n", 5) + "last"
    (tmp_path / "f").write_text(old)
    patch = unified_patch("f", old, new)
    subprocess.run(["git", "apply", "-p1"], cwd=tmp_path, input=patch, text=True, check=True)
    assert (tmp_path / "f").read_text() == new
