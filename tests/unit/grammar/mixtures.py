"""Replies that no one would write, and replies that someone would: strategies for the tests of properties."""

from __future__ import annotations

from types import MappingProxyType

from hypothesis import strategies as st

from turnwright_grammar.reply import Command
from turnwright_grammar.tools import DEFAULT_TOOLS, resolve

from .hostile import PIECES

# One call in the words of each dialect, whole: mixtures of openers alone would hardly ever close anything.
WHOLE = (
    '<get path="a"/>',
    '\n<set path="b">x = 1\n</set>\n',
    "<sh>ls</sh>",
    '<update status="200">done</update>',
    "\n<get>a</get>\n",
    '<tool_call>{"name": "get", "arguments": {"path": "a"}}</tool_call>',
    "<tool_call>\n<function=get>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
    "<tool_call>get<arg_key>path</arg_key><arg_value>a</arg_value></tool_call>",
    '<invoke name="get"><parameter name="path">a</parameter></invoke>',
    '<tool_use><name>get</name><input>{"path": "a"}</input></tool_use>',
    '{"name": "get", "arguments": {"path": "a"}}',
    '{"tool_calls": [{"function": {"name": "get", "arguments": "{\\"path\\": \\"a\\"}"}}]}',
    '{"type": "tool_use", "name": "get", "input": {"path": "a"}}',
    '[TOOL_CALLS] [{"name": "get", "arguments": {"path": "a"}}, {"name": "sh", "arguments": {"command": "ls"}}]',
    '[TOOL_CALLS]get[ARGS]{"path": "a"}',
    "\n[get(path='a'), sh(command=\"ls\")]\n",
    '<|tool_call>call:get{path:<|"|>a<|"|>}<tool_call|>',
    '<|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"path":"a"}<|call|>',
    "<|channel|>analysis<|message|>I see<|end|>",
    '<|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{"path":"a"}<|tool_call_end|>',
    "<read_file><path>a</path></read_file>",
    '<open path="a"/>',
    "<thinking>or <get path='a'/></thinking>",
    "\n```xml\n<get path='a'/>\n```\n",
    "\n```tool_code\nprint(get(path='a'))\n```\n",
    '\n```json\n{"name": "get", "arguments": {"path": "a"}}\n```\n',
    "\na.py\n<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n",
    "\n```diff\n--- a/x\n+++ b/x\n@@ -1 +1 @@\n-a\n+b\n```\n",
    "\n*** Begin Patch\n*** Update File: x\n@@\n-a\n+b\n*** End Patch\n",
    "<<SEARCH\na\nSEARCH\n<<REPLACE\nb\nREPLACE",
    "`<get path='a'/>`",
)  # fmt: skip
FRAGMENTS = (
    "/>",
    ">",
    " status='200'",
    "x = 1",
    "SEARCH",
    "REPLACE",
    "<<REPLACE",
    "<<EOF",
    "EOF",
    '"arguments": {"path": "a"}}',
    "get{",
    "get(path='a')",
    '"path"',
    ", ",
    "...",
    " and then ",
    "I will.\n",
)
MIXTURES = st.lists(
    st.one_of(st.sampled_from(WHOLE), st.sampled_from(PIECES), st.sampled_from(FRAGMENTS)), max_size=16
).map("".join)

# Words and stops that open nothing, on lines of their own.
PROSE = st.lists(st.sampled_from(("I", "read", "the file", "5", "it's", "2 > 1", "so", "a/b.py", "é")), min_size=1).map(
    lambda words: " ".join(words) + ".\n"
)
BODY_TEXT = st.one_of(
    st.text(max_size=40),
    st.text(alphabet="ab <>/=\"'\n{}[]`\\&;", max_size=40),
    MIXTURES,
)
ATTRIBUTES = st.dictionaries(
    st.sampled_from(("path", "to", "command", "status", "results", "question", "options", "n", "line")),
    st.one_of(st.text(alphabet="ab/. ", min_size=1, max_size=12), st.text(max_size=12), BODY_TEXT),
    max_size=3,
)
COMMANDS = st.builds(
    lambda name, attributes, body: resolve(Command(name, MappingProxyType(attributes), body)),
    st.sampled_from(sorted(DEFAULT_TOOLS)),
    ATTRIBUTES,
    BODY_TEXT,
)
UNKNOWN = st.builds(
    lambda name, attributes, body: Command(name, MappingProxyType(attributes), body, known=False),
    st.sampled_from(("Read", "lint", "read_file", "x-y")),
    ATTRIBUTES,
    BODY_TEXT,
)
REPLIES = st.lists(COMMANDS | UNKNOWN, max_size=5)
EDIT_LINES = st.lists(st.sampled_from(["a\n", "  b\n", "\tc\n", "\n", "a b", "x", "\r\n", "}"]), max_size=12).map(
    "".join
)
