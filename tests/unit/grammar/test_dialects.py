"""Facts about calls in the notations that models were trained on: every dialect, every argument.

Each dialect is a function that writes calls as a model of that family would. The same calls go through
all of them, so that a notation cannot lose what another keeps.
"""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from turnwright_grammar.reader.parser import read_reply

Calls = list[tuple[str, dict[str, Any]]]
Writer = Callable[[Calls], str]

BAR, BLOCK = "\uff5c", "\u2581"


def compact(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def objects(calls: Calls, key: str = "arguments", name: str = "name") -> list[str]:
    return [compact({name: tool, key: arguments}) for tool, arguments in calls]


def listed(before: str, after: str, key: str = "arguments", name: str = "name") -> Writer:
    return lambda calls: f"{before}[{', '.join(objects(calls, key, name))}]{after}"


def wrapped(before: str, after: str, key: str = "arguments", between: str = "\n") -> Writer:
    return lambda calls: between.join(f"{before}{one}{after}" for one in objects(calls, key))


def named(before: str, middle: str, after: str, between: str = "") -> Writer:
    return lambda calls: between.join(f"{before}{tool}{middle}{compact(arguments)}{after}" for tool, arguments in calls)


def around(before: str, inner: Writer, after: str) -> Writer:
    return lambda calls: before + inner(calls) + after


def tagged(call: str, parameter: str, end_parameter: str, end_call: str) -> Writer:
    def one(tool: str, arguments: dict[str, Any]) -> str:
        inner = (parameter.format(key) + text_of(value) + end_parameter for key, value in arguments.items())
        return call.format(tool) + "".join(inner) + end_call

    return lambda calls: "\n".join(one(*call) for call in calls)


def python(between: str = ", ", call: str = "{}") -> Writer:
    def one(tool: str, arguments: dict[str, Any]) -> str:
        return f"{tool}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})"

    return lambda calls: between.join(call.format(one(*call_)) for call_ in calls)


def gemma(before: str, quote: str, after: str) -> Writer:
    def value_of(value: Any) -> str:
        if isinstance(value, str):
            return quote + value + quote
        if isinstance(value, list):
            return "[" + ",".join(map(value_of, value)) + "]"
        if isinstance(value, dict):
            return "{" + ",".join(f"{key}:{value_of(item)}" for key, item in value.items()) + "}"
        return compact(value)

    return lambda calls: "".join(f"{before}call:{tool}{value_of(arguments)}{after}" for tool, arguments in calls)


def kimi(calls: Calls) -> str:
    one = "<|tool_call_begin|>functions.{}:{}<|tool_call_argument_begin|>{}<|tool_call_end|>"
    inner = "".join(one.format(tool, index, compact(arguments)) for index, (tool, arguments) in enumerate(calls))
    return f"<|tool_calls_section_begin|>{inner}<|tool_calls_section_end|>"


def openai(calls: Calls) -> str:
    functions = [{"name": tool, "arguments": compact(arguments)} for tool, arguments in calls]
    return compact({"tool_calls": [{"id": "call_1", "type": "function", "function": one} for one in functions]})


def tool_uses(calls: Calls) -> list[dict[str, Any]]:
    return [{"recipient_name": f"functions.{tool}", "parameters": arguments} for tool, arguments in calls]


def deepseek(bar: str, block: str) -> dict[str, Writer]:
    token = f"<{bar}tool{block}{{}}{bar}>".format
    before, after = token(f"calls{block}begin"), token(f"calls{block}end")
    begin, separator, end = token(f"call{block}begin"), token("sep"), token(f"call{block}end")
    return {
        "v3": around(before, named(f"{begin}function{separator}", "\n```json\n", f"\n```{end}", "\n"), after),
        "v3.1": around(before, named(begin, separator, end), after),
    }


def dsml(bar: str, word: str) -> Writer:
    tag = f"{bar}DSML{bar}"
    parameter = f'<{tag}parameter name="{{}}" string="true">'
    inner = tagged(f'<{tag}invoke name="{{}}">\n', parameter, f"</{tag}parameter>\n", f"</{tag}invoke>")
    return around(f"<{tag}{word}>\n", inner, f"\n</{tag}{word}>")


def invokes(prefix: str = "") -> Writer:
    opening = f'<{prefix}invoke name="{{}}">\n', f'<{prefix}parameter name="{{}}">'
    return tagged(*opening, f"</{prefix}parameter>\n", f"</{prefix}invoke>")


def keys(before: str, prefix: str, after: str) -> Writer:
    key = f"<{prefix}arg_key>{{}}</{prefix}arg_key>\n<{prefix}arg_value>"
    return tagged(before, key, f"</{prefix}arg_value>\n", after)


def harmony(head: str, end: str = "<|call|>") -> Writer:
    return lambda calls: "".join(head.format(tool) + compact(arguments) + end for tool, arguments in calls)


PARAMETERS = tagged("<function={}>\n", "<parameter={}>\n", "\n</parameter>\n", "</function>")
STEP_TOKENS = [f"<{BAR}tool_{word}{BAR}>" for word in ("call_begin", "sep", "call_end", "calls_begin", "calls_end")]
STEP3 = tagged(
    f'{STEP_TOKENS[0]}function{STEP_TOKENS[1]}<steptml:invoke name="{{}}">',
    '<steptml:parameter name="{}">',
    "</steptml:parameter>",
    f"</steptml:invoke>{STEP_TOKENS[2]}",
)

# Every writer ends its calls itself, so that several of them can stand in one reply.
DIALECTS: dict[str, Writer] = {
    "hermes": wrapped("<tool_call>\n", "\n</tool_call>"),
    "hermes, a list": listed("<tool_call>", "</tool_call>"),
    "hermes, several objects": around("<tool_call>\n", wrapped("", ""), "\n</tool_call>"),
    "hermes, parameters": wrapped("<tool_call>\n", "\n</tool_call>", "parameters"),
    "granite 20b": wrapped("<function_call> ", "", between=" "),
    "glaive": wrapped("<functioncall> ", " <|endoftext|>"),
    "qwen3 coder": lambda calls: "\n".join(f"<tool_call>\n{PARAMETERS([one])}\n</tool_call>" for one in calls),
    "qwen3 coder without the wrapper": PARAMETERS,
    "seed": around("<seed:tool_call>\n", PARAMETERS, "\n</seed:tool_call>"),
    "qwen agent": named("\u273fFUNCTION\u273f: ", "\n\u273fARGS\u273f: ", "\n", "\n"),
    "mistral v3": listed("[TOOL_CALLS] ", "</s>"),
    "mistral v11": named("[TOOL_CALLS]", "[ARGS]", ""),
    "mistral v11 with ids": named("[TOOL_CALLS]", "[CALL_ID]a1B2c3D4e[ARGS]", ""),
    "mistral v13": named("[TOOL_CALLS]", "", ""),
    "llama 3.1": around("<|python_tag|>", wrapped("", "", "parameters", "; "), "<|eom_id|>"),
    "llama 3.1 without the token": wrapped("", "", "parameters", "; "),
    "llama 3.1 function tags": named("<function=", ">", "</function>", "\n"),
    "llama 4": around("<|python_start|>[", python(), "]<|python_end|><|eot|>"),
    "python list": around("[", python(), "]"),
    "gemma tool_code": around("```tool_code\n", python("\n"), "\n```"),
    "gemma tool_code list": around("```tool_code\n[", python(), "]\n```"),
    "gemini tool_code": around("```tool_code\n", python("\n", "print(default_api.{})"), "\n```"),
    "functiongemma": gemma("<start_function_call>", "<escape>", "<end_function_call>"),
    "gemma 4": gemma("<|tool_call>", '<|"|>', "<tool_call|>"),
    **{f"deepseek {key}": writer for key, writer in deepseek(BAR, BLOCK).items()},
    **{f"deepseek {key} in ascii": writer for key, writer in deepseek("|", "_").items()},
    **{f"deepseek {key} with ascii bars": writer for key, writer in deepseek("|", BLOCK).items()},
    "deepseek v3.2": dsml(BAR, "function_calls"),
    "deepseek v4": dsml(BAR, "tool_calls"),
    "deepseek v3.2 in ascii": dsml("|", "function_calls"),
    "glm 4.5": keys("<tool_call>{}\n", "", "</tool_call>"),
    "longcat": wrapped("<longcat_tool_call>", "</longcat_tool_call>"),
    "longcat, keys": keys("<longcat_tool_call>{}\n", "longcat_", "</longcat_tool_call>"),
    "hunyuan": listed("<tool_calls>", "</tool_calls>"),
    "hunyuan, keys": around("<tool_calls>\n", keys("<tool_call>{}<tool_sep>\n", "", "</tool_call>"), "\n</tool_calls>"),
    "kimi": kimi,
    "granite 3.0": listed("<|tool_call|>", "<|end_of_text|>"),
    "granite 3.1": listed("<tool_call>", ""),
    "internlm": around("<|action_start|><|plugin|>\n", wrapped("", "", "parameters"), "<|action_end|>"),
    "jamba": around("<tool_calls>", listed("", ""), "</tool_calls>"),
    "phi 4 mini": listed("<|tool_call|>", "<|/tool_call|>"),
    "phi 4 functools": listed("functools", ""),
    "firefunction": listed(" functools", "<|eot_id|>"),
    "xlam": listed("", ""),
    "xlam in a fence": listed("```json\n", "\n```"),
    "xlam after thinking": listed("I know what to do.</think>", ""),
    "minimax m1": around("<tool_calls>\n", wrapped("", ""), "\n</tool_calls>"),
    "minimax m2": around("<minimax:tool_call>\n", invokes(), "\n</minimax:tool_call>"),
    "minicpm xml": tagged('<function name="{}">', '<param name="{}">', "</param>", "</function>"),
    "minicpm python": around("<|tool_call_start|>\n```python\n", python("\n"), "\n```\n<|tool_call_end|>"),
    "step 3": around(STEP_TOKENS[3], STEP3, STEP_TOKENS[4]),
    "ernie": around("</think>\n\n", wrapped("<tool_call>\n", "\n</tool_call>\n"), ""),
    "lfm 2": around("<|tool_call_start|>[", python(), "]<|tool_call_end|>"),
    "lfm 2, json": listed("<|tool_call_start|>", "<|tool_call_end|>"),
    "olmo 3": around("<function_calls>\n", python("\n"), "\n</function_calls>"),
    "nemotron": listed("<TOOLCALL>", "</TOOLCALL>"),
    "nemotron, python": around("<TOOLCALL>[", python(), "]</TOOLCALL>"),
    "command r7b": listed("<|START_ACTION|>\n", "\n<|END_ACTION|>", "parameters", "tool_name"),
    "apertus": lambda calls: f"<|tools_prefix|>{compact([{tool: given} for tool, given in calls])}<|tools_suffix|>",
    "dots": listed("<dots_function_call>", "</dots_function_call>"),
    "gigachat": wrapped("<|message_sep|>\nfunction call<|role_sep|>\n", ""),
    "solar": named("<|tool_call:begin|>abc123<|tool_call:name|>", "<|tool_call:args|>", "<|tool_call:end|>"),
    "claude": around("<function_calls>\n", invokes(), "\n</function_calls>"),
    "claude with a prefix": around("<x:function_calls>\n", invokes("x:"), "\n</x:function_calls>"),
    "tool_use": named("<tool_use><name>", "</name><input>", "</input></tool_use>", "\n"),
    "tool_use, json": wrapped("<tool_use>\n", "\n</tool_use>", "input"),
    "openai": openai,
    "openai, function_call": lambda calls: "\n".join(
        compact({"function_call": {"name": tool, "arguments": compact(given)}}) for tool, given in calls
    ),
    "anthropic": lambda calls: compact(
        [{"type": "tool_use", "id": "toolu_1", "name": tool, "input": given} for tool, given in calls]
    ),
    "recipients": lambda calls: "\n".join(map(compact, tool_uses(calls))),
    "parallel": lambda calls: compact({"tool_uses": tool_uses(calls)}),
    "harmony": harmony("<|start|>assistant<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"),
    "harmony without a start": harmony("<|channel|>commentary to=functions.{} <|constrain|>json<|message|>"),
    "harmony, recipient first": harmony(
        "<|start|>assistant to=functions.{}<|channel|>commentary <|constrain|>json<|message|>"
    ),
    "harmony, code": harmony("<|channel|>commentary to=functions.{} code<|message|>"),
    "harmony on the analysis channel": harmony("<|channel|>analysis to=functions.{} code<|message|>"),
    "functionary 3.2": named(">>>", "\n", "", "\n"),
    "functionary 2": named("<|from|>assistant\n<|recipient|>", "\n<|content|>", "", "\n"),
    "react": named("Action: ", "\nAction Input: ", "", "\n"),
    "a named tool tag": named('<tool name="', '">', "</tool>", "\n"),
    "a named function_call tag": tagged(
        '<x:function_call name="{}">', '<parameter name="{}">', "</parameter>", "</x:function_call>"
    ),
}

ARGUMENTS: dict[str, dict[str, Any]] = {
    "a word": {"url": "a"},
    "nothing": {},
    "double quotes": {"url": 'say "hi", then "bye"'},
    "an apostrophe": {"url": "it's"},
    "both quotes": {"url": 'it\'s "both"'},
    "lines": {"url": "one\n  two\n\nthree"},
    "unicode": {"url": "na\u00efve \u65e5\u672c \U0001f389"},
    "a backslash": {"url": "C:\\new\\table \\d+"},
    "angles": {"url": "if a < b && c > d: x &= 1 &amp; <br/>"},
    "our own tags": {"url": '<get path="x"/>\n<set path="y">z</set>'},
    "braces": {"url": "function f() { return {a: [1]}; }"},
    "a bracket token": {"url": "[TOOL_CALLS]rm{}"},
    "a shell line": {"url": "grep -rn 'a b' src | sort -u > out; echo $?"},
    "commas and colons": {"url": "a, b: c; d = e"},
    "numbers": {"limit": 5, "ratio": 0.5, "deep": True, "flat": False},
    "nested": {"options": {"a": [1, 2, {"b": "c"}], "d": {"e": "f g"}}, "url": "u"},
    "a list": {"urls": ["a b", "c"], "limit": 1},
    "an empty text": {"url": "", "limit": 1},
    "several": {"url": "u", "method": "POST", "note": "n"},
}


def seen(text: str) -> list[tuple[str, dict[str, str], str]]:
    return [(one.name, dict(one.attributes), one.body) for one in read_reply(text).commands]


def meant(calls: Calls) -> list[tuple[str, dict[str, str], str]]:
    return [(tool, {key: text_of(value) for key, value in given.items()}, "") for tool, given in calls]


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS.keys())
@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS.keys())
def test_a_call_keeps_its_arguments(dialect, arguments):
    calls = [("fetch_url", arguments)]
    assert seen(dialect(calls)) == meant(calls)


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS.keys())
def test_several_calls_come_in_their_order(dialect):
    calls = [("sh", {"command": "ls -la"}), ("fetch_url", {"url": "a", "limit": 2}), ("get", {"path": "b"})]
    assert seen(dialect(calls)) == meant(calls)
    assert [one.known for one in read_reply(dialect(calls)).commands] == [True, False, True]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS.keys())
def test_the_text_around_a_call_is_narration(dialect):
    reply = read_reply(f"I look first.\n\n{dialect([('get', {'path': 'a'})])}\n\nThen I go on.")
    assert [one.name for one in reply.commands] == ["get"]
    assert reply.narration.startswith("I look first.") or reply.thought_ends
    assert reply.narration.endswith("Then I go on.")


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS.keys())
def test_content_becomes_the_body(dialect):
    body = 'def f(x):\n    return "<b>" if x < 1 else {"k": [1]}\n# it\'s done'
    assert seen(dialect([("set", {"path": "a.py", "content": body})])) == [("set", {"path": "a.py"}, body)]


@pytest.mark.parametrize("dialect", DIALECTS.values(), ids=DIALECTS.keys())
def test_half_a_call_never_runs(dialect):
    calls = [("sh", {"command": "rm -rf build/tmp"}), ("fetch_url", {"url": "a/b/c", "n": 12})]
    whole, expected = dialect(calls), meant(calls)
    for cut in range(len(whole)):
        found = seen(whole[:cut])
        if re.search(r"\[TOOL_CALLS\]\w+\Z", whole[:cut]):
            # In Mistral's notation a bare name at the end is a call without arguments.
            found.pop()
        assert found == expected[: len(found)], whole[:cut]


def test_an_escape_anywhere_in_a_valid_call_leaves_it_valid():
    for chars in range(150, 300):
        value = "x" * chars + "\u0007" + "<get path='a'/>"
        text = "<tool_call>" + json.dumps({"name": "lint", "arguments": {"path": value}}) + "</tool_call>"
        assert [command.attributes["path"] for command in read_reply(text).commands] == [value]
