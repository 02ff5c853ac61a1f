"""Facts about bodies that are sed commands."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit
from turnwright_grammar.edits.markers import parse_body
from turnwright_grammar.edits.operations import EditSyntaxError, Operation


@pytest.mark.parametrize("mark", list("/|#,@:!~%+;^_"))
def test_a_command_has_any_of_these_delimiters(mark):
    (operation,) = parse_body(f"s{mark}a\\{mark}b{mark}c{mark}").operations
    assert operation == Operation("substitute", search=f"a{mark}b", replace="c")


@pytest.mark.parametrize(
    ("flags", "operation"),
    [
        ("", Operation("substitute", search="a", replace="b")),
        ("g", Operation("substitute", search="a", replace="b", every=True)),
        ("gp", Operation("substitute", search="a", replace="b", every=True)),
        ("i", Operation("substitute", search="a", replace="b", ignore_case=True)),
        ("Ig", Operation("substitute", search="a", replace="b", every=True, ignore_case=True)),
    ],
)
def test_flags_say_how_often_and_in_which_case(flags, operation):
    assert parse_body(f"s/a/b/{flags}").operations == (operation,)


@pytest.mark.parametrize(
    ("address", "lines"),
    [("3", (3, 3)), ("3,5", (3, 5)), ("3,$", (3, None)), ("$", (None, None)), ("%", (1, None)), (":%", (1, None))],
)
def test_an_address_names_lines(address, lines):
    assert parse_body(f"{address}s/a/b/").operations == (Operation("substitute", search="a", replace="b", lines=lines),)


@pytest.mark.parametrize(
    "body",
    ["3d", "/x/d", "$d", "1,2p", "a text", "s.o.s.", "s-a-b-", "s(a(b(", "/x/s/a/b/", "S/a/b/"],
)  # fmt: skip
def test_other_commands_are_plain_text(body):
    assert parse_body(body).operations == (Operation("replace", body),)


def test_the_number_flag_is_an_error_and_overwrites_nothing():
    error = parse_body("s/x/y/\ns/a/b/2")
    assert isinstance(error, EditSyntaxError)
    assert error.line == 2


@pytest.mark.parametrize(
    ("original", "body", "text"),
    [
        ("a b\n", "s/a/x/", "x b\n"),
        ("a a\n", "s/a/x/g", "x x\n"),
        ("a\na\n", "s/a/x/", None),
        ("a\n", "s/z/x/", None),
        ("a\n", "s/z/x/g", None),
        ("a b c\n", "s/a/x/;s/b/y/;\ns/c/z/;", "x y z\n"),
        ("/usr/bin\n", "s|/usr|/opt|", "/opt/bin\n"),
        ("debugger;\nx\n", "s/debugger;//", "x\n"),
        ("    a = 1\n", "s/a = 1/a = 2/", "    a = 2\n"),
        ("    a  =  1\n", "s/a = 1/a = 2/", "    a = 2\n"),
        # What stands in the text is text, whatever it means to a regex.
        ("7 - a =$\n", "s/7 - a =$/7 - a = 5/", "7 - a = 5\n"),
        ("a[0].b(c)\n", "s/a[0].b(c)/d/", "d\n"),
        ("a[0].b(c)\n", r"s/a\[0\]\.b(c)/d/", "d\n"),
        ("a.b abb\n", r"s/a\.b/c/", "c abb\n"),
        ("x $1 y\n", "s/x/$1 & \\\\1/", "$1 & \\1 $1 y\n"),
        # Escapes of the replacement, unless the text itself holds such escapes.
        ("import a\n", r"s/import a/import a\nimport b/", "import a\nimport b\n"),
        ("a\n", r"s/a/b\tc\&\./", "b\tc&.\n"),
        ('print("a\\n")\n', r's/"a\n"/"b\n"/', 'print("b\\n")\n'),
        ("a\nb\n", r"s/a\nb/c/", "c\n"),
        # A search that is not in the text is a regex.
        ("7 - a =\nx\n", "s/7 - a =$/7 - a = 5/", "7 - a = 5\nx\n"),
        ("version = 1.2\nx\n", "s/version = .*/version = 2/", "version = 2\nx\n"),
        ("version = 1.2\r\nx\r\n", "s/^version = .*$/version = 2/", "version = 2\r\nx\r\n"),
        ("a b\n", r"s/\(a\) \(b\)/\2 \1/", "b a\n"),
        ("a b\n", r"s/(a) (b)/\2 \1/", "b a\n"),
        ("ab12\n", r"s/[a-z]+/<&>/", "<ab>12\n"),
        ("ab12\n", r"s/[a-z]\+/<&>\&$/", "<ab>&$12\n"),
        ("f(x)\n", "s/f(.*)/g(2)/", "g(2)\n"),
        ("f(x) + 1;\n", "s/f(x) + [0-9];/g;/", "g;\n"),
        ("cost: $5.00\n", "s/cost: $5.*/cost: $6/", "cost: $6\n"),
        ("a/b/c\n", r"s|a/./|x/|", "x/c\n"),
        ("aXbX\n", r"s/X\(b\)X\?/\1\11/", "abb1\n"),
        ("abcabc\n", r"s/(abc)\1/x/", "x\n"),
        ("the end\n", r"s/\<end\>/END/", "the END\n"),
        ("Foo bar\n", "s/foo/x/i", "x bar\n"),
        ("a 1\nb 2\n", "s/[0-9]/x/", None),
        ("a 1\nb 2\n", "s/[0-9]/x/g", "a x\nb x\n"),
        ("x  \ny\t\n\nz \n", r"s/\s+$//g", "x\ny\n\nz\n"),
        ("a;\nb;\n", "s/[^;]*;$/x/g", "x\nx\n"),
        ("a\n\nb\n", r"s/a\W*b/x/", None),
        ("x\ny\n", "s/^/# /g", "# x\n# y\n"),
        ("x\ny", "s/$/;/g", "x;\ny;"),
        ("abc\n", "s/.*//", "\n"),
        ("a\n", "s/(a/b/", None),
        ("a\n", r"s/\(a\)/\U\1/", None),
        # Addresses.
        ("a a\na a\n", "2s/a/b/", "a a\nb a\n"),
        ("a a\na a\n", "2s/a/b/g", "a a\nb b\n"),
        ("a a\na a\n", "%s/a/b/", "b a\nb a\n"),
        ("a a\na a", "$s/a/b/g", "a a\nb b"),
        ("a1 a2\na3 a4\na5\n", r"1,2s/a([0-9])/<\1>&/", "<1>a1 a2\n<3>a3 a4\na5\n"),
        ("x\ny\nz\n", "2,$s/^/# /", "x\n# y\n# z\n"),
        ("a\n", "2s/a/b/", None),
        ("a\n", "0s/a/b/", None),
        ("", "$s/a/b/", None),
    ],
)  # fmt: skip
def test_a_command_gives_this_text(original, body, text):
    result = apply_edit(original, body)
    assert (result.text if isinstance(result, EditResult) else None) == text
    assert isinstance(result, EditResult | EditConflict)


def test_a_regex_is_mentioned():
    result = apply_edit("a1\n", "s/[0-9]/2/")
    assert result == EditResult("a2\n", notes=("Sed command 1 was run as a regex.",))


@pytest.mark.parametrize(
    ("original", "body", "part"),
    [
        ("a\na\n", "s/a/b/", "fits 2 places equally well, on lines 1, 2"),
        ("a1\na2\n", "s/a[0-9]/b/", "fits several places. End it with g"),
        ("b\n", "s/a/b/", "The new text is there already"),
        ("a\n", "7s/a/b/", "names a line that the text does not have"),
        ("ab\n", r"s/\(a\)b/\u\1/", "changes letter case"),
    ],
)
def test_a_conflict_says_what_to_do(original, body, part):
    result = apply_edit(original, body)
    assert isinstance(result, EditConflict)
    assert part in result.message


@given(st.text(alphabet="s/|ab\\.*[](){}+?^$&g1; \n", max_size=30), st.sampled_from(["", "ab\n", "a.b [x] (b)\nb*\n"]))
def test_any_command_is_read(body, original):
    assert isinstance(apply_edit(original, f"s/{body}/x/"), EditResult | EditConflict | EditSyntaxError)
    assert isinstance(apply_edit(original, f"s/a/{body}/"), EditResult | EditConflict | EditSyntaxError)


@given(st.text(alphabet="ab.*[]()\\$^ ", min_size=1, max_size=10), st.text(alphabet="ab.*[]()$^ ", max_size=10))
def test_a_search_that_is_in_the_text_means_itself(search, new):
    escaped = search if search.count("\\") % 2 == 0 and "\\" not in search else "a"
    result = apply_edit(f"<{escaped}>", f"s/{escaped}/{new}/g")
    assert isinstance(result, EditResult)
    assert result.text.replace("\n", "") == f"<{escaped}>".replace(escaped, new)


@pytest.mark.parametrize(
    "piece", ["s/a/b/ ", "s/", "s/\\/", "\\/", "s/[", "s/(", " ", ";", "s/a/b/\n", "1,2s/a/b/;", "[[:x"]
)
@pytest.mark.parametrize("head", ["", "s/", "s/a/b/ "])
def test_a_long_text_of_one_piece_is_read(head, piece):
    body = head + piece * (200_000 // len(piece))
    assert isinstance(apply_edit("a b\n" * 100, body), EditResult | EditConflict | EditSyntaxError)


def test_a_regex_that_would_hang_is_a_conflict():
    result = apply_edit("a" * 5_000 + "\n", r"s/\(a*\)*\1*b$/x/")
    assert isinstance(result, EditConflict)
