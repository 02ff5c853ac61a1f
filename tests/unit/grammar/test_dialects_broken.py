"""Facts about calls in vendors' notations that models write badly, quote, or only talk about."""

import pytest

from .called import calls, kinds
from .streams import check_stream, cut_at

GET, LS = ("get", {"path": "a"}), ("sh", {"command": "ls"})
TOOL_CALL = "<tool_call>{}</tool_call>"


@pytest.mark.parametrize(
    "arguments",
    [
        '{"name": "get", "arguments": {"path": "a"}',
        '{"name": "get", "arguments": {"path": "a"',
        '{"name": "get", "arguments": {"path": "a",}}',
        '{"name": "get", "arguments": {"path": "a"},}',
        "{'name': 'get', 'arguments': {'path': 'a'}}",
        '{name: "get", arguments: {path: "a"}}',
        '{"name": "get" "arguments": {"path": "a"}}',
        '{"name": "get", "arguments": {"path": "a"}}}',
        '{"name": "get", "arguments": "{\\"path\\": \\"a\\"}"}',
        '{"name": "get", "arguments": {"path": "a"}} // read it',
        '{"name": "get", "args": {"path": "a"}}',
        '{"name": "get", "parameters": {"path": "a"}}',
        '{"function": {"name": "get", "arguments": {"path": "a"}}}',
        '{"type": "function", "function": "get", "parameters": {"path": "a"}}',
        '{"function": "get", "path": "a"}',
        '{"get": {"path": "a"}}',
        '```json\n{"name": "get", "arguments": {"path": "a"}}\n```',
        '\n\n  {"name": "get",\n   "arguments": {\n      "path": "a"\n   }\n}\n',
        'get{"path": "a"}',
        'get: {"path": "a"}',
        'get\n{"path": "a"}',
        'get({"path": "a"})',
        'get(path="a")',
        'get("a")',
        "get(path='a',)",
        "get\n<arg_key>path</arg_key>\n<arg_value>a</arg_value>\n",
        "<function=get><parameter=path>a</parameter></function>",
        "<function=get><parameter=path>\na\n</function>",
        "<function=get><parameter=path>a</parameter>",
        '<invoke name="get"><parameter name="path">a</parameter></invoke>',
        "<name>get</name><arguments><path>a</path></arguments>",
        '<name>get</name>\n<arguments>{"path": "a"}</arguments>',
        '<invoke name="get"><path>a</path></invoke>',
        '<invoke name="get">\n<parameters>\n<path>a</path>\n</parameters>\n</invoke>',
        "<function=get>\n<path>a</path>\n</function>",
        '<invoke name="get">{"path": "a"}</invoke>',
        '<function="get"><parameter="path">a</parameter></function>',
    ],
)
def test_a_payload_has_many_spellings(arguments):
    assert calls(TOOL_CALL.format(arguments)) == [GET]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A forgotten end: the next call begins, and both run.
        (
            '<tool_call>{"name": "get", "arguments": {"path": "a"}}\n<tool_call>{"name": "sh", "arguments": {"command": "ls"}}',
            [GET, LS],
        ),
        (
            '<tool_call>{"name": "get", "arguments": {"path": "a"}\n<tool_call>{"name": "sh", "arguments": {"command": "ls"}}</tool_call>',
            [GET, LS],
        ),
        (
            "<function=get><parameter=path>a</parameter>\n<function=sh><parameter=command>ls</parameter></function>",
            [GET, LS],
        ),
        (
            "<tool_call><function=get><parameter=path>a</function></tool_call>\n<tool_call><function=sh><parameter=command>ls</parameter></function></tool_call>",
            [GET, LS],
        ),
        (
            "<tool_call><function=get><parameter=path>a</parameter></tool_call>\nThen:\n<tool_call><function=sh><parameter=command>ls</parameter></function></tool_call>",
            [GET, LS],
        ),
        (
            "<tool_call>get<arg_key>path</arg_key><arg_value>a</arg_value>\n<tool_call>sh<arg_key>command</arg_key><arg_value>ls</arg_value></tool_call>",
            [GET, LS],
        ),
        (
            "<function=get><parameter=path>a\n<function=sh><parameter=command>ls</parameter></function>",
            [GET, LS],
        ),
        (
            "<tool_call><function=get><parameter=path>\na\n<tool_call><function=sh><parameter=command>ls</parameter></function>",
            [GET, LS],
        ),
        (
            "<function=set><parameter=path>\na\n<parameter=content>\nb\n</parameter></function>",
            [("set", {"path": "a"}, "b")],
        ),
        # Said with other words.
        ('<tool_call name="get">{"path": "a"}</tool_call>', [GET]),
        ('<function_call name="get">\n<parameter name="path">a</parameter>\n</function_call>', [GET]),
        ('<|tool_call_begin|>get:0<|tool_call_argument_begin|>{"path": "a"}<|tool_call_end|>', [GET]),
        ("<tool_code>\nprint(default_api.get(path='a'))\n</tool_code>", [GET]),
        ("<start_function_call>call:default_api:get{path:<escape>a<escape>}<end_function_call>", [GET]),
        ('<tools>\n{"name": "get", "arguments": {"path": "a"}}\n</tools>', [GET]),
        ('{"functionCall": {"name": "get", "args": {"path": "a"}}}', [GET]),
        ('{"toolUse": {"toolUseId": "t", "name": "get", "input": {"path": "a"}}}', [GET]),
        ('{"action": "get", "action_input": {"path": "a"}}', [GET]),
        ('```json\n{"action": "get", "action_input": "a"}\n```', [GET]),
        ('```tool_use\n{"name": "get", "arguments": {"path": "a"}}\n```', [GET]),
        ('```\n{"tool": "get", "parameters": {"path": "a"}}\n```', [GET]),
        ('<|python_tag|>{"type": "function", "name": "get", "parameters": {"path": "a"}}', [GET]),
        ('<|tool_call|>get(path="a")<|/tool_call|>', [GET]),
        ('<function_calls>\n[get(path="a")]\n</function_calls>', [GET]),
        # A token too many, a wrong end, an end that was said in the other spelling.
        ('<tool_call><tool_call>{"name": "get", "arguments": {"path": "a"}}</tool_call></tool_call>', [GET]),
        ('<tool_call>{"name": "get", "arguments": {"path": "a"}}<tool_call>', [GET]),
        ('<tool_call>{"name": "get", "arguments": {"path": "a"}}</function_call>', [GET]),
        ('<|tool_call|>{"name": "get", "arguments": {"path": "a"}}</tool_call>', [GET]),
        ('[TOOL_CALLS]get{"path": "a"}[/TOOL_CALLS]', [GET]),
        ('[TOOL_CALLS][TOOL_CALLS]get{"path": "a"}', [GET]),
        ('[TOOL_REQUEST]{"name": "get", "arguments": {"path": "a"}}[END_TOOL_REQUEST]', [GET]),
        ("<tool>get</tool><tool_input>a</tool_input>", [GET]),
        ('<action>get</action>\n<action_input>{"path": "a"}</action_input>', [GET]),
        ("Thought: I read it.\nAction: get\nAction Input: a\n", [GET]),
        ('Action: get\nAction Input: {"path": "a"}\nObservation:', [GET]),
        (
            "<function_calls>\n<invoke>\n<tool_name>get</tool_name>\n<parameters>\n<path>a</path>\n</parameters>\n</invoke>\n</function_calls>",
            [GET],
        ),
        ("<tool_use><name>get</name><input><path>a</path></input></tool_use>", [GET]),
        ('<|python_tag|>get.call(path="a")', [("get.call", {"path": "a"})]),
        ('<tool_code>get(path="a")</tool_code>', [GET]),
        ("<tool_call>refresh</tool_call>", [("refresh",)]),
        ("[TOOL_CALLS]refresh", [("refresh",)]),
        ("[TOOL_CALLS]refresh{}", [("refresh",)]),
        ('<invoke name="refresh"/>', [("refresh",)]),
        ("<function=refresh></function>", [("refresh",)]),
    ],
)
def test_a_badly_ended_call_still_counts(text, expected):
    assert calls(text) == expected


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('content="""one\n"two"\n"""', 'one\n"two"\n'),
        ("content='''it's\n'''", "it's\n"),
        ('content="a\\tb\\n\\u00e9\\x41"', "a\tb\n\u00e9A"),
        ('content=r"\\d+"', "\\d+"),
        ('content="\\d+\\q"', "\\d+\\q"),
        ("content='say \"hi\", then go'", 'say "hi", then go'),
        ('content="a=b, c=d)"', "a=b, c=d)"),
        ('content="one\ntwo"', "one\ntwo"),
    ],
)
def test_strings_in_python_calls_are_pythons(written, meant):
    assert calls(f'<|python_start|>[set(path="a", {written})]<|python_end|>') == [("set", {"path": "a"}, meant)]


@pytest.mark.parametrize(
    "body",
    [
        "<tool_call>\n{}\n</tool_call>",
        "</parameter>\n",
        "a</parameter> b",
        "</function> is the end",
        "<![CDATA[x]]>y",
        "<parameter=path>b</parameter>\nmore",
        '<get path="x"/>',
        "\n  indented\n\n",
        "a &lt; b &amp; c",
        "<parameter=x>1</parameter>\n<parameter=y>2</parameter>",
        "<tool_call>\n<function=rm>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>",
        '<invoke name="rm"><parameter name="path">b</parameter></invoke>',
        "write <parameter=path> here",
    ],
)
def test_a_value_in_tags_is_opaque(body):
    text = f"<tool_call>\n<function=set>\n<parameter=path>\na\n</parameter>\n<parameter=content>\n{body}\n</parameter>\n</function>\n</tool_call>"
    assert calls(text) == [("set", {"path": "a"}, body)]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "rm", "arguments": {"path": "a',
        '<tool_call>{"name": "rm", "arguments": {"path": "a"}',
        '[TOOL_CALLS]rm{"path": "a',
        '[TOOL_CALLS][{"name": "rm", "arguments": {"path": "a"}}',
        "<function=rm><parameter=path>a",
        "<tool_call><function=rm><parameter=path>src/ma",
        '<invoke name="rm"><parameter name="path">a',
        "<tool_call>rm<arg_key>path</arg_key><arg_value>a",
        "<tool_call>rm<arg_key>path</arg_key><arg_value>a</arg_value>",
        '<|python_tag|>rm(path="a',
        '<|python_tag|>rm(path="a"',
        "<|tool_call_start|>[rm(path='a'",
        '<|channel|>commentary to=functions.rm <|constrain|>json<|message|>{"path": "a',
        '<|tool_call_begin|>functions.rm:0<|tool_call_argument_begin|>{"path"',
        "<tool_use><name>rm</name><input><path>a",
    ],
)
def test_a_call_that_the_end_cuts_off_is_reported_and_not_run(text):
    assert calls(text) == []
    assert set(kinds(text)) <= {"cut_call", "unreadable_call"}
    assert kinds(text)


@pytest.mark.parametrize(
    "text",
    [
        "<tool_call>I would like to read the file.</tool_call>",
        "<tool_call>{}</tool_call>",
        "<tool_call>[]</tool_call>",
        '<tool_call>{"path": "a"}</tool_call>',
        "<tool_call><function=get>path a</function></tool_call>",
        "[TOOL_CALLS] nothing",
        "<function_calls>\nget a\n</function_calls>",
    ],
)
def test_what_cannot_be_read_is_reported_and_not_run(text):
    assert calls(text) == []
    assert "unreadable_call" in kinds(text)


TOKENS = [
    "<tool_call>", "</tool_call>", "[TOOL_CALLS]", "<|python_tag|>", "<function_calls>", "<invoke>", "<tool_use>",
    "<|tool_call_begin|>", "<seed:tool_call>", "<TOOLCALL>", "<|channel|>", "functools[", "<|START_ACTION|>",
    "<function=name>", "<|tool_calls_section_begin|>", "<minimax:tool_call>", "<start_function_call>", ">>>get",
    "Action: get", "[ARGS]", "<arg_key>", "<parameter=path>", "[TOOL_REQUEST]",
]  # fmt: skip


@pytest.mark.parametrize("token", TOKENS)
@pytest.mark.parametrize(
    "sentence",
    [
        "The model writes `{}` before each call.",
        "Wrap the object in {} and it works.",
        "Between {} and {} stands JSON such as a name.",
        "- {}\n- {}: what follows is read\n",
        "It ended with {}",
        "| token | {} |\n|---|---|\n| {} | begins |",
        "```text\n{}\n```",
    ],
)
def test_a_token_that_is_only_talked_about_calls_nothing(sentence, token):
    assert calls(sentence.replace("{}", token)) == []


QUOTED = [
    '<tool_call>{"name": "sh", "arguments": {"command": "echo "}" > f"}}</tool_call>',
    '[TOOL_CALLS]sh{"command": "echo "}" > f"}',
    '[TOOL_CALLS]sh[ARGS]{"command": "echo "} > f"}',
    '[TOOL_CALLS][{"name": "sh", "arguments": {"command": "echo "}" > f"}}]',
    '{"name": "sh", "arguments": {"command": "echo "}" > f"}}',
    '<|python_tag|>{"name": "sh", "parameters": {"command": "echo "}" > f"}}<|eom_id|>',
    '<|python_tag|>sh(command="echo ")" > f")<|eom_id|>',
    '[sh(command="echo ")" > f")]',
    '<|channel|>commentary to=functions.sh <|constrain|>json<|message|>{"command": "echo "}" > f"}<|call|>',
    '<|tool_call_begin|>functions.sh:0<|tool_call_argument_begin|>{"command": "echo "}" > f"}<|tool_call_end|>',
    'Action: sh\nAction Input: {"command": "echo "}" > f"}\n',
    '<function=sh>{"command": "echo "}" > f"}</function>',
    '<tool_use><name>sh</name><input>{"command": "echo "}" > f"}</input></tool_use>',
    '```json\n{"name": "sh", "arguments": {"command": "echo "}" > f"}}\n```',
    '```tool_code\nprint(sh(command="echo ")" > f"))\n```',
    '<|tool_call>call:sh{command:"echo "}" > f"}<tool_call|>',
    '<function_call>{"name": "set", "arguments": {"path": "a", "content": "x = "]" + "}"\ny"}}</function_call>',
    'functools[{"name": "sh", "arguments": {"command": "echo "}" > f"}}]',
    '<sh command="echo "}" > f"/>',
]


@pytest.mark.parametrize("text", QUOTED)
def test_a_risky_call_whose_arguments_leave_text_over_is_reported_and_not_run(text):
    # C56
    assert calls(text) == []
    assert {"arguments_left_over", "unreadable_call"} & set(kinds(text))


def test_a_harmless_call_whose_arguments_leave_text_over_is_run():
    assert calls('<tool_call>{"name": "get", "arguments": {"path": "a "}" b"}}</tool_call>') == [
        ("get", {"path": "a "})
    ]


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name": "sh", "arguments": {"command": "ls"}}}</tool_call>',
        '<tool_call>{"name": "sh", "arguments": {"command": "ls",}}\n</tool_call>',
        "[TOOL_CALLS]sh{'command': 'ls'}\n\nThat lists them.",
        '[TOOL_CALLS]sh{"command": "ls"} Now I wait.',
        "{'name': 'sh', 'arguments': {'command': 'ls'}}\nDone.",
        '<|python_tag|>sh(command="ls")<|eom_id|>',
        '```json\n{"name": "sh", "arguments": {"command": "ls",}}\n```\n',
    ],
)
def test_closers_too_many_and_sentences_behind_a_call_are_not_left_over(text):
    assert calls(text) == [LS]


@pytest.mark.parametrize("text", [*QUOTED, *(f"x\n{one}\nThen\n" for one in QUOTED)])
def test_what_is_left_over_is_so_in_any_pieces(text):
    for cut in range(len(text) + 1):
        check_stream(text, cut_at(text, [cut]))
    check_stream(text, text)


@pytest.mark.parametrize(
    ("body", "command"),
    [
        ("<p>x</p>", "<p>x</p>"),
        ("\n<html>\n</html>\n", "<html>\n</html>"),
        ("<b>echo</b><i>x</i>", "<b>echo</b><i>x</i>"),
        ("<command>ls</command>", "ls"),
        ("<cmd>ls</cmd>", "ls"),
    ],
)
def test_a_body_of_tags_is_parameters_only_where_the_tool_has_one_of_them(body, command):
    assert calls(f"<sh>{body}</sh>") == [("sh", {"command": command})]
    assert calls(f'<set path="a">{body}</set>') == [("set", {"path": "a"}, body)]


@pytest.mark.parametrize(
    "content",
    ["one\n<parameter=path>b\ntwo", "\n<parameter=path>b", "x\n<parameter=content>y", 'x\n<parameter name="path">b\nz'],
)
def test_an_argument_that_was_given_does_not_begin_again_inside_a_value(content):
    text = f"<function=set>\n<parameter=path>a</parameter>\n<parameter=content>\n{content}\n</parameter>\n</function>"
    assert calls(text) == [("set", {"path": "a"}, content)]


def test_of_an_argument_that_comes_twice_nobody_knows_which_is_meant():
    text = "<function=set><parameter=path>a</parameter><parameter=path>b</parameter></function>"
    assert (calls(text), kinds(text)) == ([], ["arguments_left_over"])
    assert calls(text.replace("set", "get")) == [("get", {"path": "a"})]
