"""Facts about the marker grammar and about applying edits."""

import subprocess

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_core.patterns.patch import unified_patch
from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit
from turnwright_grammar.edits.markers import parse_body
from turnwright_grammar.edits.operations import EditSyntaxError, Operation

CODE = st.lists(st.sampled_from(["a", "  b", "c()", "x = 1"]), min_size=1, max_size=5).map("\n".join)


def pair(search: str, replacement: str) -> str:
    return f"<<SEARCH\n{search}\nSEARCH\n<<REPLACE\n{replacement}\nREPLACE"


def edited(original: str | None, body: str) -> str:
    result = apply_edit(original, body)
    assert isinstance(result, EditResult), result
    return result.text


@pytest.mark.parametrize(
    ("body", "operations"),
    [
        ("<<APPEND\nx\nAPPEND", [Operation("append", "x", adds_lines=True)]),
        ("<<APPEND x APPEND", [Operation("append", "x")]),
        ("<<APPEND\r\nx\r\nAPPEND", [Operation("append", "x", adds_lines=True)]),
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
        ("<<!!!a\nx\n!!!a", [Operation("replace", "<<!!!a\nx\n!!!a")]),
        ("cat <<EOF > f\nx\nEOF\n", [Operation("replace", "cat <<EOF > f\nx\nEOF\n")]),
        ("vec<<NEW x NEW", [Operation("replace", "vec<<NEW x NEW")]),
        ("\nx\n", [Operation("replace", "x\n")]),
        ("x><<NEW y NEW", [Operation("new", "y")]),
        ("a <<NEW y NEW", [Operation("new", "y")]),
        ("x<<NEW\ny\nNEW", [Operation("replace", "x<<NEW\ny\nNEW")]),
        ("<<NEW\ny NEW.\nNEWS\nNEW", [Operation("new", "y NEW.\nNEWS")]),
        ("<<NEW the NEW thing NEW", [Operation("new", "the NEW thing")]),
        ("<<NEW\nthe NEW thing\nNEW", [Operation("new", "the NEW thing")]),
        ("<<NEW a NEW, then <<NEW b NEW", [Operation("new", "a NEW, then <<NEW b")]),
        ("<<NEW a NEW then <<NEW b NEW", [Operation("new", "a"), Operation("new", "b")]),
        ("<<NEW\na\nNEW\nb\nNEW", [Operation("new", "a\nNEW\nb")]),
        ("<<NEW\na\nNEW\nand no more", [Operation("new", "a")]),
        ("<<NEW1\n<<SEARCH\na\nSEARCH\nNEW\nNEW1", [Operation("new", "<<SEARCH\na\nSEARCH\nNEW")]),
        ("<<NEW\nvec<<IDENT\n<<Foo bar\nNEW", [Operation("new", "vec<<IDENT\n<<Foo bar")]),
        (
            "  <<DELETE\n  a\n  DELETE\n\n\n  <<APPEND b APPEND\n",
            [Operation("delete", "  a"), Operation("append", "b")],
        ),
        ("<<EOF\nls\ncat <<EOF >f\nx\nEOF\nEOF", [Operation("replace", "ls\ncat <<EOF >f\nx\nEOF")]),
        ("<<EOF\nls", [Operation("replace", "<<EOF\nls")]),
        ("<<:::a <<NEW x NEW :::a\n", [Operation("replace", "<<:::a <<NEW x NEW :::a\n")]),
        ("<<!!!a <<NEW x NEW !!!a\n", [Operation("replace", "<<!!!a <<NEW x NEW !!!a\n")]),
        ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", [Operation("search_replace", search="a", replace="b")]),
    ],
)
def test_a_body_holds_these_operations(body, operations):
    edits = parse_body(body)
    assert (None if isinstance(edits, EditSyntaxError) else list(edits.operations)) == operations


@pytest.mark.parametrize(
    ("body", "line"),
    [("x\n<<SEARCH\na\nSEARCH", 2), ("<<NEW\nx", 1), ("<<SEARCH a SEARCH <<APPEND b APPEND", 1), ("<<DELETE", 1)],
)
def test_a_lone_search_and_an_unclosed_marker_are_syntax_errors(body, line):
    error = parse_body(body)
    assert isinstance(error, EditSyntaxError)
    assert error.line == line


@pytest.mark.parametrize(
    "closer",
    ["SEARCH>>", "SEARCH>", "SEARCH;", "<</SEARCH", "<</SEARCH>>", "</SEARCH>", "/SEARCH", ">>SEARCH", "<<SEARCH",
     "<<END", "<<END SEARCH", "</END SEARCH>"],
)  # fmt: skip
def test_what_models_write_for_a_closer_ends_a_marker(closer):
    pairs = f"<<SEARCH\na\n{closer}\n<<REPLACE\nb\nREPLACE\n{pair('b', 'c')}"
    assert apply_edit("a", pairs) == EditResult(
        "c", notes=(f"{closer} was read as the end of <<SEARCH; write SEARCH alone on a line.",)
    )


@pytest.mark.parametrize("closer", ["SEARCH>>", "<<SEARCH", "<<END", "</SEARCH>"])
def test_an_odd_closer_within_the_content_is_content(closer):
    edits = parse_body(pair(f"a\n{closer}\nb", "c"))
    assert edits.operations == (Operation("search_replace", search=f"a\n{closer}\nb", replace="c"),)


@pytest.mark.parametrize(
    ("body", "line", "part"),
    [
        ("<<SEARCH\na\n<<REPLACE\nb\nREPLACE", 1, "end it with SEARCH alone on a line"),
        ("<<SEARCH1\na\nSEARCH\n<<REPLACE\nb\nREPLACE", 1, "end it with SEARCH1 alone on a line"),
        ("\n\n<<SEARCH\na\nSEARCH", 3, "followed at once by <<REPLACE"),
        ("<<<<<<< SEARCH\na\n=======\nb", 1, "conflict block is not complete"),
        ("a.py\n<<<<<<< SEARCH\na\n>>>>>>> REPLACE", 2, "conflict block is not complete"),
        ("<<<<<<< HEAD\na\n||||||| base\n=======\nb\n>>>>>>> x", 1, "conflict block is not complete"),
        ("<< REPLACE\n<<SEARCH\na\nSEARCH", 2, "followed at once by <<REPLACE"),
    ],
)
def test_a_syntax_error_says_where_and_what_to_do(body, line, part):
    error = parse_body(body)
    assert isinstance(error, EditSyntaxError)
    assert (error.line, part in error.message) == (line, True)


@pytest.mark.parametrize(
    "body",
    [
        "<< SEARCH\na\nSEARCH\n<< REPLACE\nb\nREPLACE",
        "<<search\na\nsearch\n\n<<replace\nb\nreplace\n",
        "<<SEARCH>>\na\n<</SEARCH>>\n<<REPLACE>>\nb\n<</REPLACE>>",
        "<<SEARCH\na\nSEARCH\n<< REPLACE\nb\nREPLACE",
        "<SEARCH>a</SEARCH><REPLACE>b</REPLACE>",
        "\n<search>\na\n</search>\n<replace>\nb\n</replace>\n",
        "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE",
        "```\nsrc/a.py\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n```",
        "<<<<<<< HEAD\na\n=======\nb\n>>>>>>> mine",
        "<<<<<<< SEARCH\r\na\r\n=======\r\nb\r\n>>>>>>> REPLACE\r\n",
    ],
)
def test_a_pair_in_another_form_edits_what_exists(body):
    assert edited("x\na\n", body) == "x\nb\n"


@pytest.mark.parametrize(
    "body",
    ["<<new x new", "<< NEW\nx\nNEW", "<search>a</search>", "<<search\na\nsearch", "<SEARCH>a</SEARCH> and\n", "<<<<<<<\n",
     "Blocks look so:\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n", "<a>\n<<<<<<< HEAD\n"],
)  # fmt: skip
def test_what_only_resembles_edits_is_the_new_text(body):
    assert edited("x", body) == body


def test_a_merge_conflict_and_near_misses_are_text_of_a_new_entry():
    for body in ("<<<<<<< HEAD\na\n=======\nb\n>>>>>>> mine\n", "<search>a</search><replace>b</replace>"):
        assert apply_edit(None, body) == EditResult(body, created=True)


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


@pytest.mark.parametrize(
    "body",
    ["s, t = 1, 2\n", "s,t,u = f()\nprint(s, t, u)\n", "s: str\nt: int\n", "s_1 = 0\n", "s;\n", "s^2\n", "%s: %d\n", "sed is a tool",
     "so s/a/b/"],
)  # fmt: skip
def test_what_only_resembles_sed_is_the_new_text(body):
    assert parse_body(body).operations == (Operation("replace", body),)


@pytest.mark.parametrize(
    "body",
    ["s/a/b", "s/a", "s/a/b/ and more", "s//b/", "sed s/a/b/", "s/a/b/x", "s|a|b", "\n  s#a#b\n", "%s/a/b", "3s/a/b", "1,$s,a,b",
     "s/a/b/\nx = 1\n", "s/a/b/; s/c/d", "s/a/b/g; 3d", "s/a/b/s/c/d/", "s/a/b/;x", "s,a,b,\nx\n", "s,a,b", "s:a:b\ns:c:d\n", "sed -i 's/a/b/g' f.py", "s/a/b\\/", "s/a/b/g.",
     "$s/a/b"],
)  # fmt: skip
def test_a_body_that_begins_as_sed_and_is_not_complete_is_a_conflict(body):
    result = apply_edit("a\nb\nc\n", body)
    assert isinstance(result, EditConflict)
    assert "is not complete" in result.message
    assert apply_edit(None, body).text == body.removeprefix("\n")


@pytest.mark.parametrize(
    ("original", "body", "text"),
    [
        (None, "<<NEW\nx\nNEW", "x"),
        ("a\n", "<<NEW\nb\nNEW", "b\n"),
        (None, "<<APPEND\nx\nAPPEND", "x"),
        (None, "<<PREPEND x PREPEND", "x"),
        ("a\n", "<<DELETE\nzz\nDELETE", None),
        (None, "plain", "plain"),
        (None, "\nplain\n", "plain\n"),
        ("a\n", "<<REPLACE\nb\nREPLACE", "b\n"),
        ("a", "<<REPLACE\nb\nREPLACE", "b"),
        ("a\r\nb\r\n", "c\nd\n", "c\r\nd\r\n"),
        ("a\n", "<<APPEND\nb\nAPPEND", "a\nb\n"),
        ("a", "<<APPEND\nb\nAPPEND", "a\nb"),
        ("a\n", "<<APPEND b APPEND", "a\nb"),
        ("a\n", "<<APPEND\n\nb\nAPPEND", "a\n\nb\n"),
        ("a\r\n", "<<APPEND\nb\nAPPEND", "a\r\nb\r\n"),
        ("", "<<APPEND\nb\nAPPEND", "b"),
        ("a\n", "<<PREPEND\nb\nPREPEND", "b\na\n"),
        ("a\n", "<<PREPEND b PREPEND", "ba\n"),
        ("\ufeff\n", "@@\n-\n+\ufeff\n", "\ufeff\ufeff\n"),
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
        ("", pair("", "y"), "y"),
        (None, pair("", "y"), "y"),
        ("x\n", pair("", "y"), "x\ny\n"),
        ("a\n\n\nb\n", pair("\n", ""), "a\n\nb\n"),
        ("a\n\nb\n\nc\n", pair("\n", "x"), None),
        ("a\n \nb", pair(" ", ""), "a\n\nb"),
        ("a\n", "<<DELETE\n\nDELETE", None),
        ("a b\n", "<<PREPEND x PREPEND <<APPEND y APPEND", "xa b\ny"),
        ("a\r\nb\r\n", "<<APPEND\nc\nd\n\nAPPEND", "a\r\nb\r\nc\r\nd\r\n"),
        ("a\nb\n", "<<SEARCH\r\na\r\nSEARCH\r\n<<REPLACE\r\nx\r\ny\r\nREPLACE\r\n", "x\ny\nb\n"),
        ("a\nb\n", "c\r\nd\r\n", "c\nd\n"),
        ("a\nx\n", "s/a/b/ s/x/y/", "b\ny\n"),
        (
            "def f(a):\n    one()\n    two()\n    return a\n",
            pair("def f(a):\n    ...\n    return a", "def f(a, b):\n    ...\n    return b"),
            "def f(a, b):\n    one()\n    two()\n    return b\n",
        ),
        ("a\nb\nc\n", pair("a\n...\nc", "x"), None),
        ("a\nb\na\nc\n", pair("a\n...\nc", "x\n...\nc"), None),
        ("...\n", pair("...", "x"), "x\n"),
    ],
)
def test_an_edit_gives_this_text(original, body, text):
    result = apply_edit(original, body)
    assert (result.text if isinstance(result, EditResult) else None) == text


@pytest.mark.parametrize(("hint", "line"), [("1", 1), ("4", 3), ("40", 5)])
def test_a_line_hint_decides_between_places_that_fit_equally_well(hint, line):
    lines = ["a", "", "a", "", "a"]
    block = f"<<<<<<< SEARCH\n:start_line:{hint}\n-------\na\n=======\nb\n>>>>>>> REPLACE"
    lines[line - 1] = "b"
    result = apply_edit("a\n\na\n\na\n", block)
    assert isinstance(result, EditConflict if hint == "4" else EditResult)
    if hint != "4":
        assert result.text == "\n".join(lines) + "\n"


def test_a_line_hint_finds_its_place_among_many():
    text = "a\n" * 500
    block = "<<<<<<< SEARCH\n:start_line:321\n-------\na\n=======\nb\n>>>>>>> REPLACE"
    assert edited(text, block) == "a\n" * 320 + "b\n" + "a\n" * 179


def test_an_empty_search_with_a_line_hint_inserts_before_the_line():
    block = "<<<<<<< SEARCH\n:start_line:{}\n-------\n=======\n{}\n>>>>>>> REPLACE\n"
    assert edited("a\nb\nc\n", block.format(2, "x\ny") + block.format(3, "z")) == "a\nx\ny\nb\nz\nc\n"


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


def test_a_conflict_says_that_the_new_text_is_there_already():
    result = apply_edit("one\n    done = 1\n", pair("done = 0", "done = 1"))
    assert isinstance(result, EditConflict)
    assert "The new text is there already, on line 2" in result.message


def test_edits_beyond_the_limits_are_refused():
    many = apply_edit("a\n", "s/a/a/ " * 5_001)
    assert isinstance(many, EditConflict)
    assert many.operation == 5_001
    regexes = apply_edit("a\n", "s/[a-z]/b/ s/[b]/a/ " * 11)
    assert isinstance(regexes, EditConflict)
    assert regexes.operation == 21


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


@given(CODE, CODE, CODE)
def test_a_pair_means_the_same_in_every_form(before, search, new):
    text = f"first {before}\n{search}\nlast\n"
    removed = "".join(f"-{line}\n" for line in search.split("\n"))
    added = "".join(f"+{line}\n" for line in new.split("\n"))
    forms = [
        pair(search, new),
        pair(search, new).replace("\n", "\r\n"),
        f"<<SEARCH1\n{search}\nSEARCH1 <<REPLACE_x\n{new}\nREPLACE_x",
        f"<<<<<<< SEARCH\n{search}\n=======\n{new}\n>>>>>>> REPLACE",
        f"<<<<<<< HEAD\n{search}\n=======\n{new}\n>>>>>>> mine\n",
        f"<< SEARCH\n{search}\nSEARCH\n<< REPLACE\n{new}\nREPLACE",
        f"<search>\n{search}\n</search>\n<replace>\n{new}\n</replace>",
    ]
    results = {getattr(apply_edit(text, form), "text", None) for form in forms}
    assert len(results) == 1
    if search != new and results != {None}:
        assert results == {getattr(apply_edit(text, f"@@\n{removed}{added}"), "text", None)}


@pytest.mark.slow
@pytest.mark.parametrize(
    "head", ["", "<<SEARCH\n", "<<SEARCH\na\nSEARCH\n<<REPLACE\n", "<search>\n", "<<<<<<< SEARCH\n"]
)
@pytest.mark.parametrize(
    "piece",
    ["<<A ", "<<SEARCH ", "SEARCH ", "SEARCH>>\n", "<<END ", "<<NEW NEW ", "<<NEW\nNEW x\n", "<<SEARCH\nSEARCH\n<<REPLACE\nREPLACE\n",
     "<< SEARCH\nSEARCH\n", "<search>", "</search><replace>", "<<<<<<< SEARCH\n=======\n", "<<<<<<< HEAD\n", ">>>>>>> x\n", "...\n", "<<", " "],
)  # fmt: skip
def test_a_long_body_of_one_piece_is_read(head, piece):
    body = head + piece * (200_000 // len(piece))
    assert isinstance(apply_edit("a\n", body), EditResult | EditConflict | EditSyntaxError)


@pytest.mark.parametrize(
    ("body", "after"),
    [
        ("new", "\ufeffnew\r\n"),
        ("\ufeffnew", "\ufeffnew\r\n"),
        ("<<PREPEND new  PREPEND", "\ufeffnew one\r\ntwo\r\n"),
        ("@@\n-one\n+new\n two", "\ufeffnew\r\ntwo\r\n"),
        ("<<SEARCH\n\ufeffone\nSEARCH\n<<REPLACE\nnew\nREPLACE", "new\r\ntwo\r\n"),
        ("<<DELETE\none\ntwo\nDELETE", "\ufeff"),
    ],
)
def test_a_byte_order_mark_stays_and_is_no_part_of_the_first_line(body, after) -> None:
    result = apply_edit("\ufeffone\r\ntwo\r\n", body, path="f")
    assert isinstance(result, EditResult), result
    assert result.text == after


def test_a_conflict_in_a_file_with_a_mark_shows_the_lines_without_it() -> None:
    result = apply_edit("\ufeffone\ntwo\n", "@@\n-on\n+new\n two", path="f")
    assert isinstance(result, EditConflict)
    assert "\ufeff" not in result.message
