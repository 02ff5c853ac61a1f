"""Facts about patterns over strings: shapes, globs, regexes, literals; and that hostile ones end."""

import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.matching import find, match, replace, search
from turnwright_core.patterns.shapes import Shape, shape_of


def answered(run, *arguments):
    try:
        return run(*arguments)
    except PatternError as error:
        return error.reason


@pytest.mark.parametrize(
    ("pattern", "shape"),
    [
        ("src/*.py", Shape.GLOB),
        ("a?.txt", Shape.GLOB),
        ("{a,b}.py", Shape.GLOB),
        ("{1..3}.py", Shape.GLOB),
        ("!(a).py", Shape.GLOB),
        ("known://*", Shape.GLOB),
        ("app/[id]/page.tsx", Shape.GLOB),
        ("$[0-9]", Shape.GLOB),
        ("//**/x", Shape.GLOB),
        ("/\\d+/", Shape.REGEX),
        ("/a|b/i", Shape.REGEX),
        ("/^src\\/.*\\.js$/", Shape.REGEX),
        ("/srv/app/", Shape.LITERAL),
        ("/srv/app/i", Shape.LITERAL),
        ("a.py", Shape.LITERAL),
        (":x[]", Shape.LITERAL),
        ("{a}", Shape.LITERAL),
        ("", Shape.LITERAL),
        ("//item", Shape.XPATH),
        ("//item[@id='a*']/child::name", Shape.XPATH),
        ("(//a)[1] | //b/@c", Shape.XPATH),
        ("/root/item[@id=3]", Shape.XPATH),
        ("/root/text()", Shape.XPATH),
        ("/root/item[1]", Shape.XPATH),
        ("/root//*[ 12 ]/name", Shape.XPATH),
        ("/root/item[1]/sub[2] | /root/other[3]", Shape.XPATH),
        ("/root/item[position()>1]", Shape.XPATH),
        ("/root/item[last()-1]", Shape.XPATH),
        ("/root/item[price < 9.5]", Shape.XPATH),
        ("/root/item[starts-with(., 'a')]/name", Shape.XPATH),
        ("/root/item[name and price]", Shape.XPATH),
        ("(/root/item)[1]", Shape.XPATH),
        (".//item[position() mod 2 = 0]", Shape.XPATH),
        ("/v[12]/i", Shape.REGEX),
        ("/a[!=]/g", Shape.REGEX),
        ("/srv/data[0-9]", Shape.GLOB),
        ("/app/[id]/page.tsx", Shape.GLOB),
        ("/srv/log[1].txt", Shape.GLOB),
        ("log[1]", Shape.GLOB),
        ("/root/item", Shape.LITERAL),
        ("/path/to/std::vector.html", Shape.LITERAL),
        ("// a comment", Shape.LITERAL),
        ("//192.168.0.1/share", Shape.LITERAL),
        ("http://host/a", Shape.LITERAL),
        ("$.a.b", Shape.JSONPATH),
        ("$..a[0,'b c'][1:2][*]", Shape.JSONPATH),
        ("$.a[?(@.b == 'x]' && @.c[0] > 1)].d", Shape.JSONPATH),
        ("$", Shape.LITERAL),
        ("$1.50", Shape.LITERAL),
        ("$.ajax(", Shape.LITERAL),
    ],
)
def test_the_shape_decides_the_kind(pattern, shape):
    assert shape_of(pattern) is shape


@pytest.mark.parametrize(
    ("pattern", "string", "fits"),
    [
        ("*.py", "a/b.py", False),
        ("**/*.py", "a/b/c.py", True),
        ("**/*.py", "c.py", True),
        ("src/**", "src/a/b", True),
        ("src/**", "src", True),
        ("src/*/**", "src/a", False),
        ("src/**", "src2/a", False),
        ("a/**/b", "a/b", True),
        ("./*.py", "a.py", True),
        ("known://*", "known://a/b", True),
        ("known://*", "known://.a", True),
        ("{known,unknown}://*", "unknown://a/b", True),
        ("*", ".env", False),
        ("**", "a/.env", False),
        (".*", ".env", True),
        ("**/.env", "a/.env", True),
        ("?.py", "a.py", True),
        ("?.py", "ab.py", False),
        ("a?b", "a/b", False),
        ("[a-c]*.py", "bx.py", True),
        ("[!a-c]*.py", "bx.py", False),
        ("[^a-c]*.py", "dx.py", True),
        ("[[:digit:]]*", "1a", True),
        ("[abc].py", "b.py", True),
        ("src/[id].tsx", "src/[id].tsx", True),
        ("**/[id]/*.ts", "x/[id]/a.ts", True),
        ("[...slug].ts*", "[...slug].tsx", True),
        ("{a,{b,c}}.py", "c.py", True),
        ("{1..3}.py", "2.py", True),
        ("*.{ts,}", "a.", True),
        ("!(a).py", "b.py", True),
        ("!(a).py", "a.py", False),
        ("!(*.test).js", "a.test.js", False),
        ("src/!(a|b)/*.py", "src/c/x.py", True),
        ("src/!(a|b)/*.py", "src/b/x.py", False),
        ("!(node_modules)/**", "node_modules/x", False),
        ("@(a|b).py", "b.py", True),
        ("@(a|b).py", "ab.py", False),
        ("+(a|b).py", "abab.py", True),
        ("+(a|b).py", "c.py", False),
        ("?(a)*.py", "b.py", True),
        ("*(a|b).py", ".py", True),
        ("!*.py", "a.ts", True),
        ("!*.py", "a.py", False),
        ("!**/*.test.js", "a/b.test.js", False),
        ("a\\*b*", "a*b", True),
        ("a\\*b*", "axb", False),
        ("src/utils (copy)/*", "src/utils (copy)/a", True),
        ("*.PY", "a.py", False),
        ("C:\\Users\\*", "C:\\Users\\a", False),
        ("*", "a\nb", True),
        ("*", "", False),
        ("*", "a" * 100_000, True),
        ("/a.c/", "abc", True),
        ("/a.c/", "xabcx", False),
        ("/a.c/", "a\nc", False),
        ("/a.c/s", "a\nc", True),
        ("/ABC/i", "abc", True),
        ("/(a|^b)+/m", "ab", False),
        ("/^a\\nb$/m", "a\nb", True),
        ("/\\u{1F600}/u", "😀", True),
        ("/[\\p{L}--[a-z]]/v", "B", True),
        ("/[\\p{L}--[a-z]]/v", "b", False),
        ("/(?<x>a)\\k<x>/", "aa", True),
        ("/a\\/b/", "a/b", True),
        ("/.*/", "", True),
        ("A.py", "a.py", False),
        ("a.py", "a.py", True),
        ("a.py", "axpy", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_match_takes_the_whole_string(pattern, string, fits):
    assert match(pattern, string) is fits


def test_nothing_fits_an_absent_string():
    assert (match("*", None), search("*", None)) == (False, False)


@pytest.mark.parametrize(
    ("pattern", "string", "part"),
    [
        ("/b+/", "abbc", "bb"),
        ("/b/y", "ab", None),
        ("/^b/m", "a\nb", "b"),
        ("bb", "abbc", "bb"),
        ("x", "abbc", None),
        ("*.js", "see app.js", "see app.js"),
        ("a[0]*", "x a[0]*", "a[0]*"),
        ("", "a", None),
    ],
)
def test_search_finds_a_part(pattern, string, part):
    assert (find(pattern, string), search(pattern, string)) == (part, part is not None)


@pytest.mark.parametrize(
    ("pattern", "replacement", "string", "text"),
    [
        ("a", "b", "aa", "bb"),
        ("/a/", "b", "aa", "ba"),
        ("/a/g", "b", "aa", "bb"),
        ("/a/gy", "b", "aaca", "bbca"),
        ("/(\\w) (?<last>\\w)/", "$<last> $1 $& $$ $9 $<x> $0", "a b", "b a a b $ $9 $<x> a b"),
        ("a.b", "$1$&\\1\\n", "a.b", "$1$&\\1\\n"),
        ("{a,b}", "$&", "b", "$&"),
        ("", "x", "a", "a"),
        ("if a:\n  b", "if c:\n  d", "    if a:\n      b\n", "    if c:\n      d\n"),
        ("a  =  1", "a = 2", "x\na = 1\n", "x\na = 2\n"),
        ("a  =  1", "a = 2", "a = 1\na = 1\n", "a = 1\na = 1\n"),
        ("nothing", "x", "a", "a"),
    ],
)
def test_replace_takes_what_fits(pattern, replacement, string, text):
    assert replace(pattern, replacement, string) == text


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("/(/", "invalid_regex"),
        ("/*/", "invalid_regex"),
        ("/((a{1000}){1000}){1000}/", "too_large"),
        ("/a{1,500}{1,20}/", "invalid_regex"),
        ("{a,b}" * 20 + "*", "invalid_glob"),
        ("{1..1000000000}*", "invalid_glob"),
        ("*" * 501, "too_long"),
    ],
)
def test_a_bad_pattern_gives_a_reason(pattern, reason):
    assert answered(match, pattern, "x") == reason


def test_counted_repeats_beside_each_other_do_not_multiply():
    assert match("/[0-9a-f]{64}:[0-9a-f]{64}:[0-9a-f]{64}/", ":".join(["0" * 64] * 3))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("run", "pattern"),
    [
        (match, "/(a+)+$/"),
        (search, "/(a+)+$/"),
        (lambda pattern, string: replace(pattern, "x", string), "/(a|aa)+$/"),
        (search, "/(.*){20}x/"),
        (search, "/(?b)(?:abcabc){e}x/"),
        (search, "/(a(?R)?b)c/"),
        (search, "/" + "a" * 490 + "/"),
        (match, "*a" * 100),
        (match, "!(" * 160 + ")" * 160),
        (match, "**/" * 160 + "x"),
        (match, "[" * 100_000),
        (match, "//a" + "[[" * 50_000),
        (match, "$" + "['" * 50_000),
    ],
)
def test_a_hostile_pattern_ends(run, pattern):
    answer = answered(run, pattern, "a" * 20_000 + "cb")
    assert isinstance(answer, bool | str)


@pytest.mark.parametrize("pattern", ["a", "/a/g", "/(a)/g", "?"])
def test_a_replacement_that_would_fill_the_memory_is_refused(pattern):
    assert answered(replace, pattern, "x" * 1_000_000, "a" * 50) == "too_large"


def test_the_engines_for_documents_are_loaded_when_needed():
    script = "import sys, turnwright_core.patterns.matching as p; p.match('*', 'a'); print('lxml' in sys.modules, 'jsonpath' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]


PIECES = st.text(alphabet="*?[]{}!()/\\ab.,:^$+|@='0", max_size=30)
STRINGS = st.text(alphabet='ab/.:<>="{}[]1, ', max_size=20) | st.sampled_from(
    ['<a b="1"><b>a</b><b/></a>', '{"a": [1, {"b": "a"}]}', "a\r\nb\n"]
)


@settings(deadline=None)
@given(
    st.sampled_from(["", "", "//", "$", "$.a[?", "/", "//a["]),
    PIECES,
    st.sampled_from(["", "]", "/g"]),
    STRINGS,
    PIECES,
)
def test_any_pattern_answers_or_says_why(start, middle, end, string, replacement):
    pattern = start + middle + end
    for answer in (answered(match, pattern, string), answered(search, pattern, string)):
        assert isinstance(answer, bool | str)
    assert isinstance(answered(replace, pattern, replacement, string), str)


@given(st.text(alphabet="ab/.-_ +()\\", max_size=20), st.text(alphabet="ab/.-_ +()\\", max_size=20))
def test_a_pattern_without_magic_fits_only_itself(pattern, string):
    if shape_of(pattern) is Shape.LITERAL:
        assert (match(pattern, string), match(pattern, pattern)) == (pattern == string, True)
