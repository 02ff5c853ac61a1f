"""Facts about xpath and jsonpath."""

import json
import signal
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from turnwright_core.patterns import documents
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.matching import find, match, replace, search
from turnwright_core.patterns.shapes import Shape

XML = '<?xml version="1.0" encoding="latin-1"?>\n<r xmlns:s="u"><a i="1">ü &amp; y</a><a i=\'2\'/><s:b>q</s:b><!-- <a/> --><c><d>1</d> 2</c></r>\n'
JSON = '{"a": {"b": [1, "x\\"y", {"c": null}], "d": "ü"}, "e" : 2.50, "f": []}'

FLAT = "<r>" + '<a i="1"><b>x</b></a>\n' * 3_000 + "</r>"
DEEP = "<r>" + ("<a>" * 200 + "x" + "</a>" * 200) * 40 + "</r>"
WIDE = "[" + '{"a": {"b": [1, "aaaaaaaaaaaaaaaaaaaaaaaaaaaaac"]}},' * 10_000 + "1]"


def answered(run, *arguments):
    try:
        return run(*arguments)
    except PatternError as error:
        return error.reason


@pytest.mark.parametrize(
    ("pattern", "text", "first"),
    [
        ("//a", XML, "ü & y"),
        ("//a[@i='2']", XML, ""),
        ("//a/@i", XML, "1"),
        ("/r/c[d=1]", XML, "1 2"),
        ("/r/a[1]", XML, "ü & y"),
        ("/r/a[position()>1]/@i", XML, "2"),
        ("(/r/a)[last()]/@i", XML, "2"),
        ("//c/text()", XML, " 2"),
        ("//comment()", XML, " <a/> "),
        ("//s:b | //d", XML, "q"),
        ("//t:b", XML, None),
        ("//b", XML, None),
        ("//b", '<r xmlns="u"><b>x</b></r>', "x"),
        ("//b", "<r><b>x</r>", None),
        ("//TODO", "a = 1  //TODO later", "//TODO"),
        ("//TODO", "<r>//TODO</r>", None),
        ("$.a.d", JSON, "ü"),
        ("$.a.b[1]", JSON, 'x"y'),
        ("$..c", JSON, "null"),
        ("$.f", JSON, "[]"),
        ("$.a.b[?@ == 1]", JSON, "1"),
        ("$.a.b[?match(@, 'x.*')]", JSON, 'x"y'),
        ("$.a.b[?match(@, '(')]", JSON, None),
        ("$['a']['zz']", JSON, None),
        ("$.a", "[1]", None),
        ("$.get", "$.get(url)", "$.get"),
    ],
)
def test_a_path_finds_the_text_of_what_it_selects_first(pattern, text, first):
    assert (find(pattern, text), search(pattern, text)) == (first, first is not None)


@pytest.mark.parametrize("text", ["just text", "", "//item", "<item", "\ud800", "<a>\x00</a>", '{"item": ', "[1,]"])
def test_a_text_that_is_no_document_fits_only_a_path_equal_to_it(text):
    assert (match("//item", text), match("$.item", text)) == (text == "//item", False)


@pytest.mark.parametrize(
    ("pattern", "text", "before", "after"),
    [
        ("//d", XML, "<d>1</d>", "<d>&lt;N&gt;'\"</d>"),
        ("//d/text()", XML, "<d>1</d>", "<d>&lt;N&gt;'\"</d>"),
        ("//a[1]/@i", XML, 'i="1"', 'i="&lt;N&gt;\'&quot;"'),
        ("//zz", XML, "", ""),
        ("$.a.d", JSON, '"ü"', '"<N>\'\\""'),
        ("$.a.b[0]", JSON, "[1,", '["<N>\'\\"",'),
        ("$.zz", JSON, "", ""),
    ],
)
def test_what_is_selected_is_replaced_and_no_byte_beside_it(pattern, text, before, after):
    assert replace(pattern, "<N>'\"", text) == text.replace(before, after, 1)


def test_a_value_that_is_no_string_becomes_json_where_it_can():
    assert replace("$[*]", "7", '[1, "1", null]') == '[7, "7", 7]'


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("//c", XML),
        ("//a[2]", XML),
        ("//comment()", XML),
        ("//a", "<!DOCTYPE a [<!ENTITY e 'x'>]><a>&e;</a>"),
        ("//@s:x", "<r xmlns:s='u' s:x='1' x='2'/>"),
        ("$..*", JSON),
    ],
)
def test_what_cannot_be_replaced_alone_is_refused(pattern, text):
    assert answered(replace, pattern, "N", text) == "unsupported"


@pytest.mark.parametrize(
    ("pattern", "text", "reason"),
    [
        ("//a[@id==3]", "x", "invalid_xpath"),
        ("//a[foo()]", "<a/>", "invalid_xpath"),
        ("//a[" + "b" * 500 + "]", "x", "too_long"),
        ("//a", "<r>" + "<a/>" * 250_000 + "</r>", "too_large"),
        ("$.a[?@.b ==]", "x", "invalid_jsonpath"),
        ("$.a[?@.b =~ 1]", "x", "invalid_jsonpath"),
        ("$.a", "[" + "1," * 500_000 + "1]", "too_large"),
        ("$..a", "[" * 200 + "]" * 200, "too_large"),
        ("$..a", "[" * 100_000 + "]" * 100_000, "too_large"),
        ("//*[count(//*[count(//*) > 1]) > 1]", FLAT, "timeout"),
        ("$..[?count($..[?count($..*) > 0]) > 0]", WIDE, "timeout"),
    ],
)
def test_a_path_or_document_beyond_the_limits_gives_a_reason(pattern, text, reason):
    assert answered(search, pattern, text) == reason


def test_the_next_question_is_answered_when_the_process_has_died():
    assert find("//a", "<a>1</a>") == "1"
    documents._worker._process.kill()
    documents._worker._process.wait()

    assert find("//a", "<a>2</a>") == "2"


def test_a_process_that_is_stopped_is_given_up_and_the_next_question_is_answered():
    worker = documents._Worker(timeout_s=0.0)
    worker._process = documents._started("//a")
    worker._process.send_signal(signal.SIGSTOP)
    with pytest.raises(PatternError) as refused:
        worker.answer(Shape.XPATH, "//a", f"<r>{'x' * 100_000}</r>")
    worker._timeout_s = documents.ANSWER_TIMEOUT_S

    assert refused.value.reason == "timeout"
    assert worker.answer(Shape.XPATH, "//a", "<r><a>x</a></r>") == ["x"]
    worker.end()


def test_where_no_process_can_be_started_the_pattern_says_so(monkeypatch):
    documents._worker.end()
    monkeypatch.setattr(sys, "executable", "/nowhere/python")

    assert answered(find, "//a", "<a>1</a>") == "unsupported"


def test_the_process_is_given_no_secrets(monkeypatch):
    documents._worker.end()
    monkeypatch.setenv("OPENAI_API_KEY", "secret")
    assert find("//a", "<a>1</a>") == "1"

    assert b"secret" not in Path(f"/proc/{documents._worker._process.pid}/environ").read_bytes()


def test_entities_are_neither_expanded_nor_fetched():
    document = "<!DOCTYPE a [<!ENTITY e 'x'><!ENTITY f SYSTEM 'file:///etc/passwd'>]><a>&e;&f;</a>"
    assert find("//a", document) == "&e;&f;"


def test_entities_that_multiply_make_no_document():
    rules = "".join(f"<!ENTITY e{n} '{f'&e{n - 1};' * 10}'>" for n in range(1, 12))
    assert find("//a", f"<!DOCTYPE a [<!ENTITY e0 'x'>{rules}]><a b='&e11;'>&e11;</a>") is None


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("//*[count(//*[count(//*) > 1]) > 1]", FLAT),
        ("//*/following::node()/preceding::node()", FLAT),
        ("//*[normalize-space(/) = translate(/, 'a', 'b')]", FLAT),
        ("//* | //* | //*/..", FLAT),
        ("//node()/ancestor::node()/descendant::node()", DEEP),
        ("//a[" + "(" * 200 + "1" + ")" * 200 + "]", FLAT),
        ("$..*..*..*..*", WIDE),
        ("$..[?count($..[?count($..*) > 0]) > 0]", WIDE),
        ("$..[?match(@, '(a+)+b')]", WIDE),
        ("$" + ".a" * 240, WIDE),
        ("$[?" + "(" * 200 + "@.a" + ")" * 200 + "]", WIDE),
    ],
)
def test_a_hostile_path_ends(pattern, text):
    assert answered(search, pattern, text) in (True, False, "timeout", "too_large", "invalid_xpath", "invalid_jsonpath")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
    max_leaves=8,
)


@settings(deadline=None, max_examples=50)
@given(st.lists(JSON_VALUES, min_size=1, max_size=3), st.text(max_size=5), st.sampled_from([None, 2]), st.booleans())
def test_a_replaced_value_is_the_only_one_that_changes(document, replacement, indent, ascii_only):
    changed = json.loads(
        replace("$[0]", json.dumps(replacement), json.dumps(document, indent=indent, ensure_ascii=ascii_only))
    )
    expected = json.dumps(replacement) if isinstance(document[0], str) else replacement
    assert changed == [expected, *document[1:]]
