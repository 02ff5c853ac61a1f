"""Events out of bytes."""

import json
from collections import deque

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cases import expect, load_cases, params
from turnwright_provider.domain.failures import FailureClass, VendorError
from turnwright_provider.domain.sse import LineReader, SseEvent, SseReader

MALFORMED = {
    "malformed_json_skipped": "a vendor's event that is not JSON is a fault, never skipped: text would be lost"
}


def read(*chunks: bytes, limit: int = 1 << 20) -> list[SseEvent]:
    reader = SseReader(limit)
    return [event for chunk in chunks for event in reader.feed(chunk)] + reader.end()


@pytest.mark.parametrize("case", params("refact/sse_parse.jsonl"))
def test_a_case_of_the_chat_stream_parses(case):
    data = [event.data for event in read(*(chunk.encode() for chunk in case["input"]["chunks"]))]
    wanted = case["expected"]["events"]
    try:
        parsed = [json.loads(text) for text in data if text != "[DONE]"]
    except ValueError:
        parsed = None
    expect(case["id"], passed=parsed == wanted, exceptions=MALFORMED)


def test_there_are_cases():
    assert len(load_cases("refact/sse_parse.jsonl")) >= 7


@pytest.mark.parametrize(
    ("body", "events"),
    [
        (b"data: a\ndata: b\n\n", [SseEvent("", "a\nb")]),
        (b"data:a\n\ndata:  b\n\n", [SseEvent("", "a"), SseEvent("", " b")]),
        (b"event: error\ndata: x\n\ndata: y\n\n", [SseEvent("error", "x"), SseEvent("", "y")]),
        (b": comment\n\nid: 3\nretry: 5\n\n", []),
        (b"\xef\xbb\xbfdata: a\r\n\r\n", [SseEvent("", "a")]),
        (b"data: a\r\ndata: b\r\n\r\n", [SseEvent("", "a\nb")]),
        (b"data: a\r\rdata: b\r\r", [SseEvent("", "a"), SseEvent("", "b")]),
        (b"data: a", [SseEvent("", "a")]),
        (b"data\n\n", [SseEvent("", "")]),
        (b"error: {}\n\n", [SseEvent("error", "{}")]),
        (b"event: lost\n\ndata: a\n\n", [SseEvent("", "a")]),
        ("data: é\u2028\u0085x\n\n".encode(), [SseEvent("", "é\u2028\u0085x")]),
        (b"data: \xff\n\n", [SseEvent("", "\ufffd")]),
    ],
)
def test_events_follow_the_standard(body, events):
    assert read(body) == events
    assert read(*(body[i : i + 1] for i in range(len(body)))) == events


@given(
    lines=st.lists(
        st.sampled_from(["data: é", "data:", ": c", "event: e", "", "id: 1", "\ufeffdata: z", "x"]), max_size=12
    ),
    ends=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=12, max_size=12),
    cuts=st.lists(st.integers(0, 200), max_size=8),
)
def test_any_split_gives_the_same_events(lines, ends, cuts):
    body = "".join(line + end for line, end in zip(lines, ends, strict=False)).encode()
    places = sorted({min(cut, len(body)) for cut in cuts})
    pieces = [body[a:b] for a, b in zip([0, *places], [*places, len(body)], strict=True)]
    assert read(*pieces) == read(body)


@pytest.mark.parametrize(
    "chunk", [b"data: " + b"x" * 200, b"data: xxxxxxxxxxxxxxxxxxxxxxxx\n", b"x" * 40], ids=["line", "event", "junk"]
)
def test_what_never_ends_is_refused(chunk):
    reader = SseReader(100)
    with pytest.raises(VendorError) as refused:
        deque((reader.feed(chunk) for _ in range(1000)), maxlen=0)
    assert refused.value.failure.kind is FailureClass.PROTOCOL


def read_lines(*chunks: bytes, limit: int = 1 << 20) -> list[str]:
    reader = LineReader(limit)
    return [event.data for event in [*(e for chunk in chunks for e in reader.feed(chunk)), *reader.end()]]


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (b'{"a":1}\n{"b":2}\n', ['{"a":1}', '{"b":2}']),
        (b'\xef\xbb\xbf{"a":1}\r\n\r\n \n{"b":2}', ['{"a":1}', '{"b":2}']),
        ('"é\u2028\u0085x"\n'.encode(), ['"é\u2028\u0085x"']),
        (b"\xff\n", ["\ufffd"]),
        (b"", []),
    ],
)
def test_a_line_is_an_event_where_the_wire_has_lines(body, lines):
    assert read_lines(body) == lines
    assert read_lines(*(body[i : i + 1] for i in range(len(body)))) == lines


@pytest.mark.parametrize("chunks", [[b"x" * 11], [b"x" * 6] * 2, [b"x" * 11 + b"\n"]])
def test_a_line_over_the_limit_is_refused(chunks):
    with pytest.raises(VendorError) as refused:
        read_lines(*chunks, limit=10)
    assert refused.value.failure.kind is FailureClass.PROTOCOL
