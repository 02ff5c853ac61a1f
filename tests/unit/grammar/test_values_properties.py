"""Facts about reading values that hold for any text: sound ones come back, nothing raises, every text ends."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnwright_grammar.values.lenient import DEPTH_MAX, read_lenient, read_value
from turnwright_grammar.values.repair import VALUES_MAX, read_all, repair_json
from turnwright_grammar.values.strict import NotStrict, ReadValue, compact_json, read_strict


@pytest.mark.parametrize("text", ["", "  ", "}", "]", ")", ",", ":", "/* x */ }"])
def test_where_no_value_begins_there_is_none(text):
    assert read_lenient(text) is None


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ('{"a": 1} x', ReadValue({"a": 1}, 8)),
        ('/* x */ {"a": "two\nlines"}', ReadValue({"a": "two\nlines"}, 26)),
        ("12, 3", ReadValue(12, 2)),
        ("{'a': 1}", NotStrict.BROKEN),
        ('{"a": 1,} x', NotStrict.BROKEN),
        ("07", NotStrict.BROKEN),
        ("1/3", NotStrict.BROKEN),
        ("9" * 5000, NotStrict.BROKEN),
        ("[" * 100_000, NotStrict.BROKEN),
        ('{"a": "b', NotStrict.CUT),
        ('{"a":', NotStrict.CUT),
    ],
    ids=str,
)
def test_strict_json_is_distinguished_from_what_is_broken_or_cut(text, read):
    assert read_strict(text) == read


@pytest.mark.parametrize(
    ("text", "limit", "read"),
    [
        ('x={"a": 1}y', None, ReadValue({"a": 1}, 10)),
        ("x={'a': 1}y", None, ReadValue({"a": 1}, 10, repaired=True)),
        ("x={'a': 'b", None, ReadValue({"a": "b"}, 10, repaired=True, cut=True, looked_chars=1)),
        ("x={'a': 'bcd'}", 10, ReadValue({"a": "b"}, 10, repaired=True, looked_chars=1)),
        ("x=}", None, None),
    ],
    ids=str,
)
def test_a_value_is_read_where_it_begins_and_up_to_its_limit(text, limit, read):
    assert read_value(text, 2, limit) == read


def test_the_values_of_a_text_are_counted_up_to_a_limit():
    assert len(read_all("{} " * (2 * VALUES_MAX))) == VALUES_MAX


def test_nesting_is_kept_to_a_depth_and_read_beyond():
    value, depth = repair_json("[" * 5000 + "1," + "]" * 5000), 0
    while isinstance(value, list):
        depth, value = depth + 1, value[0]
    assert (depth, value) == (DEPTH_MAX, 1)


def test_compact_json_is_written_however_deep_a_value_is():
    value = json.loads('{"a":[{},[],"é",' * 200 + "1" + ',null],"b":1.5}' * 200)
    deep = value
    for _ in range(5):
        deep = json.loads('{"k":' * 900 + "0" + "}" * 900) if deep is value else {"k": [deep], "n": value}
    written = compact_json(deep)
    assert written.startswith('{"k":[{"k":[')
    assert repair_json(compact_json(value)) == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 12345678901234567890123, "b": 1e-7, "c": -0.0, "d": 1e400}',
        '{"a": "\\ud83d", "b": "\\ud83d\\ude00", "\\u0000": "\\/"}',
        '{"a": NaN, "b": -Infinity}',
        '[{"a": 1, "a": 2}, {"a": {}}]',
        '{\n": a": 1,\n"b": 2}',
        '"{\\"a\\": 1}"',
        " true ",
        "null",
        "-0",
    ],
)
def test_strict_json_is_left_to_the_json_module(text):
    assert json.dumps(repair_json(text)) == json.dumps(json.loads(text))


SOUND = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=12)
    | st.text(alphabet="a\"'{}[],: \n\\`/#=(e<", max_size=12),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=5) | st.sampled_from(["a", "path"]), inner, max_size=4)
    ),
    max_leaves=12,
)
HOLDERS = st.dictionaries(st.text(max_size=5) | st.sampled_from(["a", "path"]), SOUND, max_size=4) | st.lists(
    SOUND, max_size=4
)
PIECES = [
    "{", "}", "[", "]", "(", ")", '"', "'", ":", ",", '"a"', "'b'", "c", "1", "1.5", "true", "None", "\\", '\\"',
    "\\u00", "\\ud83d", "\n", " ", "//", "/*", "*/", "#", "```", "```json\n", "...", '"""', "'''", "`", "“", "”",
    '<|"|>', "<escape>", "=", "=>", "+", "-", '{"a":', '"b": 1', ', "c": ', "it's", 'r"', "; ", "&", "é", "\x00",
    "\ud83d", "Infinity", "1_0", "007", "[x]", "{}", "[]", '""',
]  # fmt: skip
BROKEN = st.lists(st.sampled_from(PIECES), max_size=30).map("".join)


def same(one: object, other: object) -> bool:
    return json.dumps(one) == json.dumps(other)


def begins(part: object, whole: object) -> bool:
    """Whether `part` may be what is left of `whole` after the end of the text was cut off."""
    if part == "" or same(part, whole):
        return True
    if isinstance(whole, str):
        return isinstance(part, str) and whole.startswith(part)
    if isinstance(whole, dict):
        keys = list(part) if isinstance(part, dict) else [None]
        before = all(same(part[key], whole[key]) for key in keys[:-1]) if keys == list(whole)[: len(keys)] else False
        return not keys or (before and begins(part[keys[-1]], whole[keys[-1]]))
    if isinstance(whole, list):
        if not isinstance(part, list) or len(part) > len(whole):
            return False
        return not part or (same(part[:-1], whole[: len(part) - 1]) and begins(part[-1], whole[len(part) - 1]))
    return part is None or isinstance(part, int | float)


@given(HOLDERS, st.sampled_from([None, 1]), st.booleans())
def test_sound_json_is_read_as_the_json_module_reads_it(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    read = read_lenient(text)
    assert read is not None
    assert same(repair_json(text), value)
    assert same(read.value, value)
    assert (read.end, read.cut) == (len(text), False)


@given(HOLDERS, st.data(), st.sampled_from([None, 1]), st.booleans())
def test_json_cut_anywhere_keeps_what_was_there(value, data, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    end = data.draw(st.integers(1, len(text)))
    assert begins(repair_json(text[:end]), json.loads(text))


WRITTEN = [
    '{"a": "\\u00e9\\ud83d\\ude00 \\" \\\\ \\/ \\n y", "b": [true, false, null, NaN, Infinity, -Infinity, {}, []]}',
    "/* a */ // b\n# c\n[-1.5e+10, 1E-5, 0, -0, 12, 0.25, 1e400]",
    "-1.5e+10",
    "-Infinity",
]


@pytest.mark.parametrize("text", WRITTEN)
def test_sound_json_whose_rest_is_missing_is_never_broken(text):
    assert isinstance(read_strict(text), ReadValue)
    assert [end for end in range(len(text)) if read_strict(text[:end]) is NotStrict.BROKEN] == []


@given(HOLDERS, st.sampled_from([None, 1]), st.booleans())
def test_any_sound_json_whose_rest_is_missing_is_cut(value, indent, ascii_only):
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert {read_strict(text[:end]) for end in range(len(text))} == {NotStrict.CUT}


@pytest.mark.parametrize(
    "text", ['{"a": tru', '{"a": nulll', '{"a": -x', '{"a": "\\u12x', '{"a": 1.5e+x', '{"a": Infx', '["\\q"']
)
def test_what_no_more_text_can_mend_is_broken(text):
    assert read_strict(text + ",,") is NotStrict.BROKEN


@given(HOLDERS)
def test_python_literals_are_read_as_python_reads_them(value):
    assert same(repair_json(repr(value) + ","), value)


@given(BROKEN | st.text())
def test_repairing_twice_changes_nothing(text):
    once = json.dumps(repair_json(text))
    assert json.dumps(repair_json(once)) == once


@given(BROKEN | st.text(), st.integers(0, 40))
def test_any_text_is_read_within_its_bounds(text, start):
    for read in (read_lenient(text, start), read_value(text, start), *read_all(text)):
        assert read is None or 0 <= read.end <= max(len(text), start)


LONG_CHARS = 20_000
LONGEST_CHARS = 200_000
HOSTILE = [
    "{", "[", "(", '{"a":', '"', "'", "[1,", '{"a":"b" ', "\\", '"//', '"/*', '{"a":"', '"a":"b, ', '\\"', '{"a":1}', "```{", "“", '"""',
    "'''", '<|"|>', "1 ", "a(", "{a:b ", "# ", "// } ", " \n", "])", '",', "',", '": ', '"+"', "{'a':'b'c' ", '{"a":"b","c', '["a" b", ',
    "{a: b\n", '"\n"a": 1, ', '{"a","b",', '"" ', "\\u00", "\\n", 'r"', "[note] x ", "{} x ",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("prefix", ["", '{"a":"', "['"])
@pytest.mark.parametrize("piece", HOSTILE)
def test_a_long_hostile_text_ends(piece, prefix):
    assert json.dumps(repair_json(prefix + piece * (LONG_CHARS // len(piece))))


@pytest.mark.slow
@pytest.mark.parametrize("piece", ["{", '"/*', "'", '{"a":'])
def test_two_hundred_thousand_hostile_characters_end(piece):
    assert json.dumps(repair_json('{"a":"' + piece * (LONGEST_CHARS // len(piece))))
