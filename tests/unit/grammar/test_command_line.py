"""Facts about `python -m turnwright_grammar` (architecture, section 15)."""

import io
import json
import subprocess
import sys

import pytest

from turnwright_grammar.__main__ import run


def answers(verb: str, text: str, *, lines: bool = False) -> tuple[list[dict], int]:
    target = io.StringIO()
    status = run(verb, io.StringIO(text), target, lines=lines)
    return [json.loads(line) for line in target.getvalue().splitlines()], status


GET = {
    "commands": [{"name": "get", "attributes": {"path": "a"}, "body": "", "span": [0, 15], "known": True}],
    "warnings": [],
    "narration": "",
}


def test_a_reply_is_printed_as_one_object():
    assert answers("read", '<get path="a"/>') == ([GET], 0)


def test_with_lines_each_line_is_answered():
    text = json.dumps({"text": '<get path="a"/>'}) + "\n\n" + json.dumps({"text": "<update>x"}) + "\n"
    (first, second), status = answers("read", text, lines=True)
    assert (first, second["warnings"], status) == (GET, [{"kind": "unclosed", "span": [0, 9]}], 0)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ({"original": "a b", "body": "s/a/c/"}, {"result": "c b"}),
        ({"original": None, "body": "x"}, {"result": "x"}),
        ({"body": "x"}, {"result": "x"}),
    ],
)
def test_an_edit_prints_its_result(request_, answer):
    assert answers("edit", json.dumps(request_)) == ([answer], 0)


@pytest.mark.parametrize("body", ["<<DELETE z DELETE", "<<SEARCH a SEARCH"])
def test_an_edit_that_does_not_fit_prints_a_conflict(body):
    (answer,), status = answers("edit", json.dumps({"original": "a", "body": body}))
    assert (list(answer), status) == (["conflict"], 0)


@pytest.mark.parametrize(
    ("request_", "answer"),
    [
        ({"mode": "match", "pattern": "*.py", "string": "a.py"}, {"result": True}),
        ({"mode": "search", "pattern": "/b/", "string": "abc"}, {"result": True}),
        ({"mode": "match", "pattern": "*", "string": None}, {"result": False}),
        ({"mode": "replace", "pattern": "b", "string": "abc", "replacement": "x"}, {"result": "axc"}),
    ],
)
def test_a_match_prints_its_result(request_, answer):
    assert answers("match", json.dumps(request_)) == ([answer], 0)


def test_a_bad_pattern_is_an_answer():
    (answer,), status = answers("match", json.dumps({"mode": "match", "pattern": "/(/", "string": "a"}))
    assert (list(answer), status) == (["error"], 0)


@pytest.mark.parametrize(
    ("verb", "text"),
    [("edit", "{"), ("edit", "[]"), ("edit", "{}"), ("match", '{"mode": "x", "pattern": "", "string": ""}')],
)
def test_bad_input_is_an_error_and_a_failing_status(verb, text):
    (answer,), status = answers(verb, text)
    assert (list(answer), status) == (["error"], 1)


def test_a_bad_line_does_not_stop_the_others():
    found, status = answers("edit", '{\n{"original": "a", "body": "b"}\n', lines=True)
    assert ([list(one) for one in found], status) == ([["error"], ["result"]], 1)


def test_the_module_runs_and_survives_bytes_that_are_no_text():
    done = subprocess.run(
        [sys.executable, "-m", "turnwright_grammar"],
        input=b"\xff<get path='\xc3\xa9'/>",
        check=False,
        capture_output=True,
        timeout=60,
    )
    answer = json.loads(done.stdout)
    assert (done.returncode, done.stderr, answer["commands"][0]["attributes"]) == (0, b"", {"path": "é"})
