"""Facts about reading broken JSON: what each way of breaking it means."""

import json
import math

import pytest

from turnwright_grammar.values.lenient import read_lenient
from turnwright_grammar.values.repair import repair_json

QUOTES = [
    ("{'path': 'a.py', 'line': 3}", {"path": "a.py", "line": 3}),
    ("{“path”: “a.py”, \u2018line\u2019: \u2018x\u2019}", {"path": "a.py", "line": "x"}),
    ("{„path“: „a.py“, «b»: «c»}", {"path": "a.py", "b": "c"}),
    ("{`path`: `a.py`}", {"path": "a.py"}),
    ('{""path"": ""a.py"", "b": 1}', {"path": "a.py", "b": 1}),
    ('{"path": "a.py"", "b": 1}', {"path": "a.py", "b": 1}),
    ("""{"path': "a.py', "b": 'c"}""", {"path": "a.py", "b": "c"}),
    ("""{"a": 'b", "c": 1}""", {"a": "b", "c": 1}),
    ('{"a": "b”, "c": 1}', {"a": "b", "c": 1}),
    ('{path": "a.py", line: 3"}', {"path": "a.py", "line": 3}),
    ('{"path: "a.py", "b: 1, "c": 2}', {"path": "a.py", "b": 1, "c": 2}),
    ('{"path": "a.py, "line": 3}', {"path": "a.py", "line": 3}),
    ('{\n "path": "a.py,\n "line": 3\n}', {"path": "a.py", "line": 3}),
    ('{\n "path": "a.py\n "line": 3\n}', {"path": "a.py", "line": 3}),
    ('{"path": a.py", "b": 1}', {"path": "a.py", "b": 1}),
    ('["a", b", "c"]', ["a", "b", "c"]),
    ('{"a": """b "c" d""", \'e\': \'\'\'f\'g\'\'\'}', {"a": 'b "c" d', "e": "f'g"}),
    ('{"a": """two\n"lines\\n\n"""}', {"a": 'two\n"lines\n\n'}),
    (r"{\"path\": \"a.py\", \"b\": \"say \\\"so\\\"\"}", {"path": "a.py", "b": 'say "so"'}),
    (r"{\n  \"a\": \"x\\ny\",\n  \"b\": 1\n}", {"a": "x\ny", "b": 1}),
    ('{path:<|"|>a "b" \\n<|"|>,n:2}', {"path": 'a "b" \\n', "n": 2}),
    ("{path:<escape>it's {a}<escape>}", {"path": "it's {a}"}),
]
INNER_QUOTES = [
    ('{"a": "he said "hi" to me", "b": 1}', {"a": 'he said "hi" to me', "b": 1}),
    ('{"a": "he said "hi", then left", "b": 1}', {"a": 'he said "hi", then left', "b": 1}),
    ('{"a": "say "x", "y" and "z"", "b": 1}', {"a": 'say "x", "y" and "z"', "b": 1}),
    ('{"a": "say "x": twice", "b": 1}', {"a": 'say "x": twice', "b": 1}),
    ('{"html": "<a href="x.html" id="y">z</a>", "b": 1}', {"html": '<a href="x.html" id="y">z</a>', "b": 1}),
    (
        '{"cmd": "git commit -m "fix: a, b" && git push", "n": 1}',
        {"cmd": 'git commit -m "fix: a, b" && git push', "n": 1},
    ),
    ('{"cmd": "cat "a b" > "c d"", "n": 1}', {"cmd": 'cat "a b" > "c d"', "n": 1}),
    ('{"code": "if (x) { return "y"; }", "path": "x.js"}', {"code": 'if (x) { return "y"; }', "path": "x.js"}),
    ('{"code": "x = {"k": "v", "l": [1]}", "path": "x"}', {"code": 'x = {"k": "v", "l": [1]}', "path": "x"}),
    (
        '{"code": "a = ["x", "y"]\nb = {"k": "v", "l": "m"}\n", "path": "x.py"}',
        {"code": 'a = ["x", "y"]\nb = {"k": "v", "l": "m"}\n', "path": "x.py"},
    ),
    ('{"arguments": "{"path": "a", "n": 1}", "b": 2}', {"arguments": '{"path": "a", "n": 1}', "b": 2}),
    ('{"a": "["x", "y"]", "b": 2}', {"a": '["x", "y"]', "b": 2}),
    ("{'a': 'it's fine', 'b': 'don't, won't'}", {"a": "it's fine", "b": "don't, won't"}),
    ("{'command': 'echo 'a b' | sed 's/x/y/'', 'n': 1}", {"command": "echo 'a b' | sed 's/x/y/'", "n": 1}),
    ('["x", "y "z" w", "q"]', ["x", 'y "z" w', "q"]),
    ('{"a": "4" x 6" board", "b": 1}', {"a": '4" x 6" board', "b": 1}),
    (r'{"a": "{\\"k\": \"v\"}", "b": 1,}', {"a": '{"k": "v"}', "b": 1}),
    (r'{"dir": "C:\tools\", "b": 1}', {"dir": "C:\tools\\", "b": 1}),
    (r'{"a": "word\", "b": 1}', {"a": "word", "b": 1}),
    ('{"a": ""so" it said", "b": 1}', {"a": '"so" it said', "b": 1}),
    ('{"a": "x"c": "y"}', {"a": "x", "c": "y"}),
    ('{"a": "```" is a fence", "b": 1}', {"a": '```" is a fence', "b": 1}),
    ('{"md": "[text](https://x.y "title")", "b": 1}', {"md": '[text](https://x.y "title")', "b": 1}),
]
WORDS = [
    ("{path: a.py, line: 3, ok: yes}", {"path": "a.py", "line": 3, "ok": "yes"}),
    ("{first name: Ann Lee, 5: five}", {"first name": "Ann Lee", "5": "five"}),
    ("{a: one, two, b: it's three}", {"a": "one, two", "b": "it's three"}),
    ("{url: https://x.y/z?a=1,b=2#c, n: 1}", {"url": "https://x.y/z?a=1,b=2#c", "n": 1}),
    ("{a: f(x, y), b: words{in}braces, c: t[0]}", {"a": "f(x, y)", "b": "words{in}braces", "c": "t[0]"}),
    ("{\n  path: a.py\n  line: 3\n}", {"path": "a.py", "line": 3}),
    ("{text: one\ntwo three\n, n: 1}", {"text": "one\ntwo three", "n": 1}),
    ('{a: say "so" twice, b: 1}', {"a": 'say "so" twice', "b": 1}),
    (
        "{color: #fff, time: 12:30, size: 5px, part: 50%}",
        {"color": "#fff", "time": "12:30", "size": "5px", "part": "50%"},
    ),
    ("[a, b c, 2d]", ["a", "b c", "2d"]),
    ('{"a": x "b": y}', {"a": "x", "b": "y"}),
    ('{"a": 1, NOTE "b": 2}', {"a": 1, "b": 2}),
    ('{"a": ObjectId("5f"), "b": new Date(1, 2)}', {"a": 'ObjectId("5f")', "b": "new Date(1, 2)"}),
]
NUMBERS = [
    ("[1/3, 1.2.3, 10-20, 12:30, 0x1F]", ["1/3", "1.2.3", "10-20", "12:30", "0x1F"]),
    ("[.5, -.5, 5., +5, -0, 1e3, 1E-2]", [0.5, -0.5, 5.0, 5, 0, 1000.0, 0.01]),
    ("[1e, 1e+, 12abc, 2024-01-05]", ["1e", "1e+", "12abc", "2024-01-05"]),
    ("[07, 00, 007, 0123]", [7, 0, "007", "0123"]),
    ("[1_000, 1_000.5, _1, 1__0]", [1000, 1000.5, "_1", "1__0"]),
    ('{"a": 1,234, "b": 1,234,567.8}', {"a": "1,234", "b": "1,234,567.8"}),
    ('{"a": 1, 2: 3}', {"a": 1, "2": 3}),
    ("[1 2 3.5]", [1, 2, 3.5]),
    (f"[{'9' * 5000},]", ["9" * 5000]),
    ("[1e999,]", ["1e999"]),
]
LITERALS = [
    ("[True, FALSE, None, Null, undefined]", [True, False, None, None, None]),
    ("{'a': Infinity, 'b': -Infinity}", {"a": math.inf, "b": -math.inf}),
    ("[yes, nil, truer, nothing]", ["yes", "nil", "truer", "nothing"]),
    ('{True: 1, None: 2, "x": "True"}', {"True": 1, "None": 2, "x": "True"}),
]
COMMAS_AND_COLONS = [
    ("[1,,2,, ,3,]", [1, 2, 3]),
    ('{,"a": 1,, "b": 2,}', {"a": 1, "b": 2}),
    ('{"a": 1 "b": 2 "c": "x" "d": [] "e": {}}', {"a": 1, "b": 2, "c": "x", "d": [], "e": {}}),
    ('["a" "b" 1 2 {"c": 1} [3]]', ["a", "b", 1, 2, {"c": 1}, [3]]),
    ('[{"a": 1}{"b": 2}]', [{"a": 1}, {"b": 2}]),
    ('{"a":: 1, "b" : : 2}', {"a": 1, "b": 2}),
    ("{\"a\" = 1, b = 2, 'c' => 3}", {"a": 1, "b": 2, "c": 3}),
    ('{"a" 1, "b" "x", "c" [2], d "y"}', {"a": 1, "b": "x", "c": [2], "d": "y"}),
    ('{"a", 1.5, "b": 2}', {"a": 1.5, "b": 2}),
    ('{"a": , "b": , "c":}', {"a": "", "b": "", "c": ""}),
    ('{"a": 1, "b", "c": 2}', {"a": 1, "b": "", "c": 2}),
    ('{"a": "x"; "b": 1;}', {"a": "x", "b": 1}),
    (r'{"a": "x"\n, "b": 1}', {"a": "x", "b": 1}),
    ('{: 1, "a": 2}', {"": 1, "a": 2}),
]
COMMENTS = [
    ('{"a": 1, // one\n"b": 2 # two\n}', {"a": 1, "b": 2}),
    ('{"a": /* x, } */ 1, /* "b": 2 */ "c": 3}', {"a": 1, "c": 3}),
    ('// before\n{"a": 1} // after', {"a": 1}),
    ('# before\n{"a": 1}', {"a": 1}),
    ('{"a": "x" // one }', {"a": "x"}),
    ('{"a": word // one\n, "b": "http://x" /* }', {"a": "word", "b": "http://x"}),
    ('{"a": 1, #one\n"b": 2}', {"a": 1, "b": 2}),
    ('{"a": "x", // "b": 1\n"c": 2}', {"a": "x", "c": 2}),
]
BRACKETS = [
    ('{"a": [1, 2}', {"a": [1, 2]}),
    ('{"a": ["x", "y"}, "b": 1}', {"a": ["x", "y"], "b": 1}),
    ('[{"a": 1], 2', [{"a": 1}]),
    ('[{"a": 1, {"a": 2}]', [{"a": 1}, {"a": 2}]),
    ('[{"a": 1, "b": 2, "a": 3, "b": 4}, ]', [{"a": 1, "b": 2}, {"a": 3, "b": 4}]),
    ('[{"a": 1}}, {"b": 2}]]', [{"a": 1}, {"b": 2}]),
    ('{"a": 1}, "b": 2, "c": {"d": 3}}', {"a": 1, "b": 2, "c": {"d": 3}}),
    ('{"a": {"b": 1}}}, "c": 2}', {"a": {"b": 1}, "c": 2}),
    ('{"a": ["x", "b": 1}', {"a": ["x"], "b": 1}),
    ('{"a": ["x" "b": 1]}', {"a": ["x"], "b": 1}),
    ('["a": 1, "b": 2]', [{"a": 1, "b": 2}]),
    ('{"a": [1], [2, 3]}', {"a": [1, 2, 3]}),
    ('{"a": 1, {"b": 2}}', {"a": 1, "b": 2}),
    ('{{"a": 1}}', {"a": 1}),
    (']}{"a": 1}', {"a": 1}),
    ('"a": 1, "b": "x"', {"a": 1, "b": "x"}),
    ('"a": "x"}', {"a": "x"}),
    ('{"a": "x}', {"a": "x"}),
    ('{"a": {"b": "x}}', {"a": {"b": "x"}}),
    ('{"a": ["x]}', {"a": ["x"]}),
]
PYTHON = [
    ("{'a': (1, 2), 'b': {3, 4}, 'c': {'x'}, 'd': ()}", {"a": [1, 2], "b": [3, 4], "c": ["x"], "d": []}),
    ("(1, 'a')", [1, "a"]),
    ("(1,)", [1]),
    ("('a')", "a"),
    ("('a'\n 'b')", "ab"),
    ("{'a': 'x' 'y', 'b': \"x\" + 'y'}", {"a": "xy", "b": "xy"}),
    (r"""{'a': r'\d\n', 'b': b"x", 'c': f'{y}', 'd': rb'\x'}""", {"a": r"\d\n", "b": "x", "c": "{y}", "d": r"\x"}),
    ("{'a': None, # note\n 'b': True,}", {"a": None, "b": True}),
    ('{"a": b"}', {"a": "b"}),
]
ELLIPSES = [
    ("[1, ..., 3]", [1, 3]),
    ("[1, 2, …]", [1, 2]),
    ('{"a": 1, ...}', {"a": 1}),
    ('["...", "…"]', ["...", "…"]),
    ('{"a": ...}', {"a": "..."}),
]
ESCAPES = [
    (r"""{'a': 'it\'s', 'b': "x\'y\"z\/"}""", {"a": "it's", "b": "x'y\"z/"}),
    (r"""{'a': '\x41\u0042\U00000043'}""", {"a": "ABC"}),
    (
        r"""{'a': '\u12', 'b': '\xzz', 'c': '\U99999999', 'd': '\u{41}'}""",
        {"a": r"\u12", "b": r"\xzz", "c": r"\U99999999", "d": r"\u{41}"},
    ),
    (r"""{'a': '\d+\s*', 'b': 'C:\path'}""", {"a": r"\d+\s*", "b": r"C:\path"}),
    (r"""{'a': '\ud83d\ude00', 'b': '\ud83d!'}""", {"a": "😀", "b": "\ud83d!"}),
    ("{'a': 'tab\there', 'b': 'two\nlines', 'c': '\x00'}", {"a": "tab\there", "b": "two\nlines", "c": "\x00"}),
    (
        r"""{'a': 'ls \
-l'}""",
        {"a": "ls \\\n-l"},
    ),
]
CUT = [
    ('{"a": 1, "b', {"a": 1}),
    ('{"a": 1, "b"', {"a": 1}),
    ('{"a": 1, "b":', {"a": 1, "b": ""}),
    ('{"a": tru', {"a": True}),
    ('{"a": [1, {"b": "x', {"a": [1, {"b": "x"}]}),
    ('{"a": "x\\', {"a": "x"}),
    (r'{"a": "x\u00', {"a": "x"}),
    (r'{"a": "x\ud83d', {"a": "x"}),
    ('{"a": 12.', {"a": 12}),
    ('{"a": 1e', {"a": 1}),
    ('{"a": -', {"a": ""}),
    ("[1, -", [1]),
    ("{'a': '''x", {"a": "x"}),
    ("[", []),
    ("{", {}),
]
AROUND = [
    ('Here it is: {"a": 1} as you asked, "really".', {"a": 1}),
    ('[note] see: {"a": 1,}', {"a": 1}),
    ('(1) First:\n```json\n{"a": 1}\n```\nDone (2).', {"a": 1}),
    ("```python\nx = 1\n```\n```json\n[1, 2,]\n```", [1, 2]),
    ('```json\n{"a": "```x```",}\n```', {"a": "```x```"}),
    ('{"a": 1}</tool_call>', {"a": 1}),
    ('<|x|>{"a": "b",}<|call|>', {"a": "b"}),
    ('callback({"a": 1,});', {"a": 1}),
    ('\ufeff{"a": 1}', {"a": 1}),
    ("'{\"a\": 1}'", {"a": 1}),
]
SEVERAL = [
    ('{"a": 1}{"b": 2}', [{"a": 1}, {"b": 2}]),
    ('{"a": 1}\n{"b": 2,}\n', [{"a": 1}, {"b": 2}]),
    ('{"a": 1}, {"b": 2}', [{"a": 1}, {"b": 2}]),
    ("[1] [2]", [[1], [2]]),
    ('{"a": 1} and {"b": 2}', [{"a": 1}, {"b": 2}]),
    ('```json\n{"a": 1}\n```\nand\n```json\n{"b": 2}\n```', [{"a": 1}, {"b": 2}]),
    ('{}{"a": 1} []', {"a": 1}),
    ('{"a": 1} [see above] and {so on}', {"a": 1}),
]
SCALARS = [
    ("'one'", "one"),
    ('"one', "one"),
    ("+.5", 0.5),
    ("1_000", 1000),
    ("'\"'", ""),
    ("one two", ""),
    ("12 apples", ""),
    ("True", ""),
    ("", ""),
    ("}", ""),
]
FAMILIES = {
    "quotes": QUOTES,
    "quotes inside": INNER_QUOTES,
    "words": WORDS,
    "numbers": NUMBERS,
    "literals": LITERALS,
    "commas and colons": COMMAS_AND_COLONS,
    "comments": COMMENTS,
    "brackets": BRACKETS,
    "python": PYTHON,
    "ellipses": ELLIPSES,
    "escapes": ESCAPES,
    "cut": CUT,
    "around": AROUND,
    "several": SEVERAL,
    "scalars": SCALARS,
}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        pytest.param(text, value, id=f"{family}-{number}")
        for family, rows in FAMILIES.items()
        for number, (text, value) in enumerate(rows)
    ],
)
def test_broken_json_means_what_its_author_meant(text, value):
    repaired = repair_json(text)
    assert (repaired, json.dumps(repaired)) == (value, json.dumps(value))


CODE = """\
\"\"\"Splits "a, b" and 'c'; see `split`.\"\"\"

import re

EMPTY, PAIR = "", ("a", "b")
TABLE = {"first": "one", "second": ["x", "y"], "third": {"k": "v", "n": 1}}


def split(text: str, separators=(",", ":")) -> list[str]:
    if text == "" or text.startswith(("{", "[")):
        return {"path": text, "line": "1"}["path"].replace(",", " ")
    return [piece.strip("\\n") for piece in re.split("[" + "".join(separators) + "]", text)]
"""


@pytest.mark.parametrize(
    "form",
    [
        '{"content": "%s", "path": "x.py"}',
        '{"path": "x.py", "content": "%s"}',
        '{"name": "set", "arguments": {"content": "%s", "path": "x.py"}}\n',
        "{'path': 'x.py', 'content': '%s', 'n': 1}",
        '```json\n{"path": "x.py", "content": "%s",}\n```',
    ],
)
def test_code_survives_although_its_quotes_were_not_escaped(form):
    value = repair_json(form % json.dumps(CODE)[1:-1].replace('\\"', '"'))
    assert isinstance(value, dict)
    arguments = value.get("arguments", value)
    assert (arguments["path"], arguments["content"]) == ("x.py", CODE)


def test_a_number_that_is_none_stays_one():
    repaired = repair_json("{'a': NaN}")
    assert isinstance(repaired, dict)
    assert isinstance(repaired["a"], float)
    assert math.isnan(repaired["a"])


@pytest.mark.parametrize(
    ("text", "value", "rest"),
    [
        ("'it's fine', x=1)", "it's fine", ", x=1)"),
        ("'echo 'a', b', x=1)", "echo 'a', b", ", x=1)"),
        ("'print('a', 'b')', x=1)", "print('a', 'b')", ", x=1)"),
        ("'x = 'y', z = 3', n=1)", "x = 'y', z = 3", ", n=1)"),
        ("'say (it's 'ok')')", "say (it's 'ok')", ")"),
        ("'cat <<'EOF'\nhi\nEOF', n=1)", "cat <<'EOF'\nhi\nEOF", ", n=1)"),
        ("'ends with (', n=1)", "ends with (", ", n=1)"),
        ("'a'), sh(command='b')", "a", "), sh(command='b')"),
        ("'a', True)", "a", ", True)"),
        ("'a', name)", "a", ", name)"),
        ("'']", "", "]"),
        ('"say "hi" now", x=1)', 'say "hi" now', ", x=1)"),
        ("'''it's \"so\"''', x=1)", 'it\'s "so"', ", x=1)"),
        ('"""a\nb""" , x=1)', "a\nb", " , x=1)"),
        ("'''\\\na'''", "a", ""),
        (r"r'\d', x=1)", r"\d", ", x=1)"),
        ("f'{a}'\n)", "{a}", "\n)"),
        ("'a'\n    'b',\n    x=1)", "ab", ",\n    x=1)"),
        ("'a' # why\n, x=1)", "a", " # why\n, x=1)"),
        ("Path('a', 'b'), x=1)", "Path('a', 'b')", ", x=1)"),
        ("dict(a=1), x=2)", "dict(a=1)", ", x=2)"),
        ("a.b, x=1)", "a.b", ", x=1)"),
        ("None)", None, ")"),
        ("-1.5, x=1)", -1.5, ", x=1)"),
        ("[1, 'a',], x=1)", [1, "a"], ", x=1)"),
        ("{'a': 'it's', 'b': (1,)}, x=1)", {"a": "it's", "b": [1]}, ", x=1)"),
    ],
)
def test_an_argument_of_a_python_call_ends_where_it_was_meant_to(text, value, rest):
    read = read_lenient(text)
    assert read is not None
    assert (read.value, text[read.end :]) == (value, rest)
