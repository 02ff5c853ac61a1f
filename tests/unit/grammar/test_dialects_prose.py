"""Facts about ordinary replies: prose, code, data and markup call nothing."""

import pytest

from turnwright_grammar.reader.parser import read_reply

ORDINARY = {
    "a sentence": "I looked at the parser and it seems fine.",
    "a name with parentheses": "Call `get(path)` first, then set(x=1) if you must.",
    "a question": "Should I use get() or search()?",
    "a list": "1. get the file\n2. set the flag\n3. rm the rest\n",
    "a checklist": "- [ ] get(a=1)\n- [x] done\n",
    "a link": "See [get](https://example.org/get?path=a&b=c) and [1].",
    "a footnote": "As said before.[1]\n\n[1]: https://example.org",
    "a quote": '> He said: "name": "get"\n',
    "a table": "| tool | path |\n|---|---|\n| get | a |\n| sh | ls -la |\n",
    "a heading": "# Action\n\n## Input\n\nget",
    "bold words": "**Action**: we read it.\n**Result**: fine.",
    "an action in prose": "Action: none needed.\n\nWe are done.",
    "a labelled plan": "Action: read the file\nAction Input is the path",
    "arrows": "a -> b => c >>> d <<< e <- f",
    "a prompt of a console": ">>> get\nNameError: name 'get' is not defined\n>>> x = {}\n",
    "a doctest": '>>> get("a")\n{"path": "a"}\n>>> all([True])\nTrue\n',
    "a shell line": "$ rm -rf build && ls | grep get > out.txt",
    "a here document": "cat <<EOF > a.txt\nget\nEOF",
    "a redirect": "sort < in.txt > out.txt 2>&1",
    "json": '{"path": "a", "limit": 5}',
    "json with a name": '{"name": "turnwright", "version": "1.0.0", "dependencies": {}}',
    "json with a type": '{"type": "object", "properties": {"name": {"type": "string"}}}',
    "json of people": '[{"name": "Ada", "role": "author"}, {"name": "Bob", "role": "editor"}]',
    "json with an id": '{"id": 7, "action": "opened", "number": 3}',
    "json with input": '{"input": "text", "output": "text"}',
    "json with a function": '{"function": "main", "line": 12, "file": "a.c"}',
    "a tool's definition": '{"name": "get", "description": "Reads.", "parameters": {"type": "object", "properties": {}}}',
    "a fenced tool's definition": (
        '```json\n{"type": "function", "function": {"name": "get", "parameters": {"type": "object", "properties": {}}}}\n```'
    ),
    "fenced json": '```json\n{"name": "get", "path": "a"}\n```',
    "fenced python": "```python\nget(path='a')\nprint([f(x=1) for x in y])\n```",
    "fenced python list": "```python\n[get(path='a'), get(path='b')]\n```",
    "fenced shell": "```bash\nrm -rf build\nget a\n```",
    "fenced html": '```html\n<form action="/get"><input name="path" value="a"></form>\n```',
    "fenced xml": '```xml\n<project name="x"><target name="get"/></project>\n```',
    "fenced yaml": "```yaml\nname: get\narguments:\n  path: a\n```",
    "a comprehension": "[get(x) for x in paths]",
    "a list of calls": '["get(a)", "set(b)"]',
    "an index": "x[get(1)] = y[0]",
    "a dictionary": "{'name': 'Ada', 'age': 36}",
    "keyword arguments": "def f(path='a', *, mode=None): ...",
    "a decorator": "@get(path='/a')\ndef handler(): ...",
    "generics": "Map<String, List<Integer>> m = new HashMap<>();",
    "a template": "std::vector<std::pair<int, int>> v; if (a<b && c>d) f<int>(x);",
    "jsx": '<Button onClick={() => get("a")} disabled={!ok}>Get</Button>',
    "html": '<div class="tool"><p>get</p><br/><a href="a">a</a></div>',
    "an html form": '<form method="get"><button name="action">Go</button></form>',
    "an html input": '<input type="text" name="path" value="a"/>',
    "xml": '<?xml version="1.0"?><tool name="hammer"><weight>2</weight></tool>',
    "xml actions": '<action name="open">File</action><tool>saw</tool>',
    "svg": '<svg viewBox="0 0 1 1"><path d="M0 0L1 1"/></svg>',
    "an xml comment": "<!-- get: a --><![CDATA[get]]>",
    "math": "f(x) = x^2 for x < 0, |x| <= 1, <x|y> = 0 and a || b",
    "latex": r"\frac{a}{b} < \sum_{i=1}^{n} x_i, \{x | x > 0\}",
    "a ket": "The state <psi|H|psi> and |0>, |1>.",
    "an ascii table": "+----+----+\n| a  | <b |\n+----+----+\n| 1 || 2>|\n",
    "logs": '2024-01-01 12:00:00 [INFO] get(path="a") took 3ms {"name": "get", "ms": 3}',
    "a log with brackets": "[main] [tool=get] [TOOLS] [CALLS] done",
    "a trace": 'Traceback (most recent call last):\n  File "a.py", line 3, in get\nKeyError: {"name": "get"}',
    "an http request": 'POST /tools HTTP/1.1\nContent-Type: application/json\n\n{"method": "get", "params": {}}',
    "json rpc": '{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "result": {"ok": true}}',
    "sql": "SELECT name, arguments FROM calls WHERE name = 'get' AND n <> 3;",
    "toml": '[tool.get]\nname = "get"\n[tool_calls]\nx = 1\n',
    "ini": "[functions]\nget=a\n",
    "a regex": r"re.compile(r'<tool_(?:call|use)>(.*?)</\1>')",
    "rust": 'fn get<T: Into<String>>(x: T) -> Option<&str> { Some("a") }',
    "go": "func get[K comparable, V any](m map[K]V) []V { return nil }",
    "an email": "From: Ada <ada@example.org>\nTo: <bob@example.org>",
    "a diff line": "+ get(path='a')\n- set(path='b')\n",
    "a bracketed aside": "[note: get(path) reads one file]",
    "an emoji": "Done \U0001f389 <3",
    "chinese": "\u8bf7\u8c03\u7528 get\uff08path\uff09\uff0c\u8c22\u8c22\uff5c",
    "special tokens": "<s>Hello</s><|im_end|><|eot_id|><|endoftext|>",
    "a command in words": "Run get with path a, then sh with ls.",
    "colons": "get: reads a file\nset: writes one\ncall: invokes\n",
    "braces": "Use {name} and {arguments} in the template {{get}}.",
}


@pytest.mark.parametrize("text", ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_text_calls_nothing(text):
    assert read_reply(text).commands == ()
    assert read_reply(f"Look:\n\n{text}\n\nThat is all.").commands == ()


@pytest.mark.parametrize("text", ORDINARY.values(), ids=ORDINARY.keys())
def test_ordinary_text_beside_a_call_stays_narration(text):
    reply = read_reply(f'{text}\n\n<tool_call>{{"name": "get", "arguments": {{"path": "a"}}}}</tool_call>')
    assert [(one.name, dict(one.attributes)) for one in reply.commands] == [("get", {"path": "a"})]
    words = text.replace("<", " <").split()[:2]
    assert all(word in reply.narration for word in words if "<" not in word)
