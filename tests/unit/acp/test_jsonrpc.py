"""JSON-RPC over lines: every request is answered, whatever comes between (AG02, AG03, AG09)."""

import json

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwright_acp.jsonrpc import LINE_BYTES_MAX, LineSplitter
from unit.acp.lines import echoing, served

PARSE_ERROR, INVALID, NO_METHOD, PARAMS, INTERNAL, CANCELLED = -32700, -32600, -32601, -32602, -32603, -32800

BAD_LINES = [
    (b"{not json", None, PARSE_ERROR),
    (b"\xff\xfe", None, PARSE_ERROR),
    (b'{"jsonrpc":"2.0","id":9,"method":"\xff"}', None, PARSE_ERROR),
    (b"7", None, INVALID),
    (b'"x"', None, INVALID),
    (b"null", None, INVALID),
    (b"[1,2]", None, INVALID),
    (b'[{"jsonrpc":"2.0","id":9,"method":"echo"}]', None, INVALID),
    (b"{}", None, INVALID),
    (b'{"jsonrpc":"2.0","id":9}', 9, INVALID),
    (b'{"jsonrpc":"2.0","id":9,"method":5}', 9, INVALID),
    (b'{"jsonrpc":"1.0","id":9,"method":"echo"}', 9, INVALID),
    (b'{"id":9,"method":"echo"}', 9, INVALID),
    (b'{"jsonrpc":"2.0","id":true,"method":"echo"}', None, INVALID),
    (b'{"jsonrpc":"2.0","id":1.5,"method":"echo"}', None, INVALID),
    (b'{"jsonrpc":"2.0","id":{},"method":"echo"}', None, INVALID),
    (b'{"jsonrpc":"2.0","id":9,"method":"echo","params":[1]}', 9, PARAMS),
    (b'{"jsonrpc":"2.0","id":9,"method":"echo","params":"x"}', 9, PARAMS),
    (b'{"jsonrpc":"2.0","id":9,"method":"nothing"}', 9, NO_METHOD),
    (b'{"jsonrpc":"2.0","id":9,"method":"break"}', 9, INTERNAL),
    (b"[" * 100_000, None, PARSE_ERROR),
    (b"x" * (LINE_BYTES_MAX + 1), None, INVALID),
]


@pytest.mark.parametrize(("line", "number", "code"), BAD_LINES, ids=[str(line[:40]) for line, _, _ in BAD_LINES])
@pytest.mark.asyncio
async def test_a_bad_line_is_answered_and_the_next_one_too(line, number, code):
    async with served(echoing([])) as peer:
        await peer.send(line)
        refused = await peer.next()
        assert (refused["id"], refused["error"]["code"]) == (number, code)
        assert (await peer.call(1, "echo", {"a": 1}))["result"] == {"a": 1}


@pytest.mark.parametrize("number", ["abc", 0, -1, "", None])
@pytest.mark.asyncio
async def test_an_id_comes_back_as_it_was(number):
    async with served(echoing([])) as peer:
        assert (await peer.call(number, "echo", {}))["id"] == number


@pytest.mark.asyncio
async def test_a_notification_is_never_answered():
    heard = []
    async with served(echoing(heard)) as peer:
        await peer.send(
            {"method": "told", "params": {"a": 1}}, b'{"method":"told"}', {"method": "told", "params": [1]}, b"", b"  "
        )
        await peer.send({"id": 3, "result": 1}, {"id": "x", "error": {"code": 1, "message": "m"}})
        assert await peer.call(1, "echo", {}) == {"jsonrpc": "2.0", "id": 1, "result": {}}
        assert peer.read == [{"jsonrpc": "2.0", "id": 1, "result": {}}]
    assert heard == [("told", {"a": 1})]


@pytest.mark.asyncio
async def test_a_request_is_cancelled_by_its_id_and_its_id_may_come_again():
    async with served(echoing([])) as peer:
        await peer.send({"id": 5, "method": "wait"}, {"id": 5, "method": "echo"})
        assert (await peer.answer(5))["error"]["code"] == INVALID
        await peer.send({"method": "$/cancel_request", "params": {"requestId": 4}})
        await peer.send({"method": "$/cancel_request", "params": {"requestId": 5}})
        assert (await peer.answer(5))["error"]["code"] == CANCELLED
        assert (await peer.call(5, "echo", {"b": 2}))["result"] == {"b": 2}
        await peer.send({"id": 6, "method": "wait"}, {"method": "$/cancel_request", "params": {"requestId": 6}})
        assert (await peer.answer(6))["error"]["code"] == CANCELLED


@pytest.mark.asyncio
async def test_the_end_of_the_input_ends_it_in_the_middle_of_a_request():
    async with served(echoing([])) as peer:
        await peer.send({"id": 5, "method": "wait"}, {"id": 6, "method": "echo"})
        await peer.answer(6)
        peer.end()
        await peer.task
        with pytest.raises(EOFError):
            await peer.next()


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
FIELDS = st.fixed_dictionaries(
    {},
    optional={
        "jsonrpc": st.sampled_from(["2.0", "1.0", 2]),
        "id": VALUES,
        "method": st.sampled_from(["echo", "nothing", "break"]) | VALUES,
        "params": VALUES,
        "result": VALUES,
        "error": VALUES,
    },
)
LINES = st.one_of(
    st.binary(max_size=30).map(lambda data: data.replace(b"\n", b" ")),
    VALUES.map(lambda value: json.dumps(value).encode()),
    FIELDS.map(lambda value: json.dumps(value).encode()),
    FIELDS.map(lambda value: json.dumps(value).encode()[:-2]),
)


def is_owed_an_answer(line):
    """Whether a line is neither blank, a notification nor an answer."""
    if not line.strip():
        return False
    try:
        message = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return True
    if not isinstance(message, dict):
        return True
    if "method" not in message and ("result" in message or "error" in message):
        return False
    return "id" in message or not isinstance(message.get("method"), str)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(LINES, max_size=40))
@pytest.mark.asyncio
async def test_what_is_no_notification_is_answered_once(lines):
    async with served(echoing([])) as peer:
        await peer.send(*lines, {"id": "the last one", "method": "echo"})
        await peer.answer("the last one")
        peer.end()
        try:
            while True:
                await peer.next()
        except EOFError:
            pass
    assert len(peer.read) == 1 + sum(map(is_owed_an_answer, lines))


@given(st.lists(st.binary(max_size=6)), st.lists(st.integers(1, 9)))
def test_lines_are_the_same_whatever_the_pieces(lines, cuts):
    data, splitter, found = b"\n".join(line.replace(b"\n", b"") for line in lines) + b"\n", LineSplitter(), []
    for cut in cuts:
        found += splitter.feed(data[:cut])
        data = data[cut:]
    found += [*splitter.feed(data), *splitter.end()]
    assert found == [line.replace(b"\n", b"") for line in lines if line.replace(b"\n", b"")]
