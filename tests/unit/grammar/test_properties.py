"""Properties of the reader and of edits on arbitrary and on mutated text."""

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from turnwright_grammar import (
    EditConflict,
    EditResult,
    EditSyntaxError,
    Reply,
    apply_edit,
    command_from_call,
    parse_body,
    read_reply,
    resolve,
    unified_patch,
)
from turnwright_grammar.conflicts import marker_body
from turnwright_grammar.values import repair_json

PIECES = [
    '<get path="a"/>', "<get>", "</get>", '<set path="b">', "</set>", "<update", "</update>", " status='200'", "/>", ">", "<",
    '"', "'", "`", "```", "```xml\n", "\n", " ", "x = 1", "&amp;", "<<SEARCH", "SEARCH", "<<REPLACE", "REPLACE", "<<EOF", "EOF",
    "<<<<<<< SEARCH\n", "=======\n", ">>>>>>> REPLACE\n", "a.py\n", "<tool_call>", "</tool_call>", '{"name": "get", ',
    '"arguments": {"path": "a"}}', "[TOOL_CALLS]", "get{", "}", "]", "[get(path='a')]", "<function=get>", "<parameter=path>",
    "</parameter>", "</function>", "<|channel|>final<|message|>", "<|call|>", "<thinking>", "</thinking>", "--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n",
    "s/a/b/", "\\", "\r\n", "\u2028", "\x00", "é", "<arg_key>k</arg_key><arg_value>", "```diff\n", "```tool_code\n",
]  # fmt: skip
REPLIES = st.lists(st.sampled_from(PIECES), max_size=25).map("".join)
BODIES = st.lists(st.sampled_from(["a\n", "  b\n", "\tc\n", "\n", "a b", "x", "\r\n", "}"]), max_size=12).map("".join)


def check(text: str) -> Reply:
    reply = read_reply(text)
    for item in (*reply.commands, *reply.warnings):
        start, end = item.span
        assert 0 <= start <= end <= len(text)
    assert list(reply.commands) == sorted(reply.commands, key=lambda one: one.span)
    for command in reply.commands:
        assert resolve(command) == command
        assert not any("\x00" in key for key in command.attributes)
        parse_body(command.body)
    return reply


@given(st.text())
def test_arbitrary_text_is_read(text):
    check(text)


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(REPLIES)
def test_any_mixture_of_dialects_is_read(text):
    check(text)


@given(st.text(alphabet=st.characters(exclude_characters="<[{`~>"), max_size=200))
def test_text_without_triggers_is_all_narration(text):
    assert read_reply(text) == Reply(narration=text.strip())


@given(
    st.lists(st.tuples(st.sampled_from(["get", "set", "sh"]), st.text(alphabet="ab/.", min_size=1)), max_size=8),
    st.data(),
)
def test_well_formed_commands_come_back_in_order(wanted, data):
    parts = [f'<{name} path="{path}">x</{name}>' for name, path in wanted]
    glue = data.draw(st.sampled_from(["", "\n", " and ", "\n\nThen:\n"]))
    reply = read_reply(glue.join(parts))
    assert [(one.name, one.attributes["path"]) for one in reply.commands] == wanted
    assert reply.warnings == ()


@given(st.text(alphabet="abc <>/=\"'\n{}[]`", max_size=60))
def test_a_body_without_its_own_close_comes_back_as_it_is(body):
    reply = read_reply(f'<set path="p">{body}</set>')
    if "```" not in body and "<path>" not in body:
        assert [one.body for one in reply.commands] == [body]


@given(st.none() | BODIES, REPLIES)
def test_applying_any_body_gives_a_value(original, body):
    assert isinstance(apply_edit(original, body), EditResult | EditConflict | EditSyntaxError)


@given(BODIES, BODIES, BODIES)
def test_a_unique_line_is_replaced_and_nothing_else(before, after, new):
    text = f"{before}\nunique line\n{after}"
    replacement = new.replace("\r", "").strip("\n") or "z"
    result = apply_edit(text, marker_body([("unique line", replacement)]))
    assert isinstance(result, EditResult)
    assert result.text.startswith(f"{before}\n")
    assert result.text.endswith(f"\n{after}")


@given(BODIES, st.text(alphabet="ab \n", min_size=1, max_size=20), BODIES)
def test_searching_text_that_is_there_never_says_not_found(before, middle, after):
    text = before + middle + after
    result = apply_edit(text, marker_body([(middle, "z")]))
    assert not isinstance(result, EditSyntaxError)
    assert not (isinstance(result, EditConflict) and "not found" in result.message)


@given(st.lists(st.tuples(st.text(max_size=30), st.text(max_size=30)), min_size=1, max_size=4))
def test_pairs_survive_the_marker_grammar(pairs):
    pairs = [(search.replace("\r", "").strip("\n"), new.replace("\r", "").strip("\n")) for search, new in pairs]
    edits = parse_body(marker_body(pairs))
    assert not isinstance(edits, EditSyntaxError)
    assert [(one.search, one.replace) for one in edits.operations] == pairs


@given(st.text())
def test_any_text_is_repaired_json(text):
    repair_json(text)
    command, _ = command_from_call("set", text)
    assert command.name == "set"


@given(BODIES, BODIES)
def test_a_patch_is_empty_only_for_equal_texts(old, new):
    assert (unified_patch("f", old, new) == "") is (old == new)
