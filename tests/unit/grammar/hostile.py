"""Text that is made to be expensive: pieces of every dialect, repeated, combined and never closed.

The tests read each of these, the benchmark times them and the fuzzer mixes their pieces.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

OWN_TAGS = (
    "<",
    "</",
    "< ",
    "<g",
    "<get",
    "<get ",
    "<get>",
    "</get>",
    "<get/>",
    '<get path="a"/>',
    "<get></get>",
    "<set>",
    "</set>",
    '<set path="a">\n',
    "<set><get>",
    "<set>x</get>",
    "<update>x</get>",
    "<sh>\n<sh>\n</set>",
    "\n<get>\n",
    "`<get>`",
    '<set path="a">\n```\n</set>',
    '<set path="a">`</set>`',
    '<set path="a"><<SEARCH\n</set>',
    "<get><path>",
    "</set></get></sh>",
)
ATTRIBUTES = (
    '<get path="',
    "<get path='",
    "<get path=",
    '<get path="a" ',
    "<get path='x\" ",
    '<get a="\\"',
    '<get a=\\"',
    '<get a="b"c"d',
    "<get a='b' ' ",
    '<get a b c="',
    "<get =",
    '<get a="<',
    '<get a="\n',
    '<sh command="a"b" ',
    ' path="a"',
    '="',
    "' ",
    '" ',
    '"',
    "'",
    "\\",
    '\\"',
)
ENTITIES = ("&", "&amp;", "&#", "&#x41", '<get path="&', '<get path="&lt;&quot;')
CODE = (
    "`",
    "``",
    "```",
    "````",
    "` `` ``` ",
    "`a\n",
    "```\n",
    "```x\n",
    "~~~\n",
    "> ```\n",
    "```\n~~~\n",
    "````\n```\n",
    "```xml\n<get/>\n```\n",
    "```xml\n<get/>\n",
    "```tool_code\nx\n```\n",
    "```tool_code\n",
    '```json\n{"name":\n```\n',
)
EDIT_BLOCKS = (
    "<<<<<<< SEARCH\n",
    "<<<<<<< SEARCH\n=======\n",
    "=======\n",
    ">>>>>>> REPLACE\n",
    "a.py\n<<<<<<< SEARCH\n",
    "a.py\n<<<<<<< SEARCH\n=======\n>>>>>>> REPLACE\n",
    "```\n<<<<<<< SEARCH\n```\n",
    "<<SEARCH",
    "<<SEARCH ",
    "<<SEARCH\nSEARCH\n",
    "<<NEW\n",
    "--- a\n+++ b\n",
    "--- a\n+++ b\n@@ -1 +1 @@\n-a\n+b\n",
    "```diff\n--- a\n+++ b\n@@\n",
    "diff --git a/a b/a\n",
    "@@\n",
    "*** Begin Patch\n",
    "*** Update File: a\n@@\n-a\n",
    "*** Add File: a\n+a\n",
    "*** End Patch\n",
)
VENDOR_TOKENS = (
    "<|",
    "<|a",
    "|>",
    "<tool_call>",
    "</tool_call>",
    "<|tool_call>",
    "<|tool_call|>",
    "<tool_call|>",
    "<tool_calls>",
    "<function_calls>",
    "<minimax:tool_call>",
    "<|python_tag|>",
    "<|plugin|>",
    "<|action_start|>",
    "<|tool_calls_section_begin|>",
    "<|tool_call_begin|>functions.a:0",
    "<|tool_call_argument_begin|>{",
    "<\uff5ctool\u2581calls\u2581begin\uff5c>",
    "<\uff5ctool\u2581call\u2581begin\uff5c>function<\uff5ctool\u2581sep\uff5c>",
    "<\uff5cDSML\uff5cinvoke",
    "<start_function_call>",
    "[TOOL_CALLS]",
    "[TOOL_CALLS]a",
    "[TOOL_CALLS]a{",
    "[TOOL_CALLS] [{",
    "[TOOL_CALLS]a[ARGS]{",
    "[ARGS]",
    "functools[",
    "<tool_use><name>a</name><input>{",
    "<function=a>",
    "<function=a><parameter=b>",
    "<parameter=b>",
    "</parameter>",
    "</function>",
    '<invoke name="a">',
    '<invoke name="a"><parameter name="b">',
    '<parameter name="b">',
    "<tool_call>a<arg_key>k</arg_key><arg_value>",
    "<arg_key>k</arg_key>",
    '<tool_call>{"a"',
    '<tool_call>{"name":"a","arguments":{"b":"',
    '<tool_call>call:get{path:<|"|>',
)  # fmt: skip
VALUES = (
    "{",
    "[",
    "(",
    "}",
    '{"',
    '{"name":',
    '{"a":',
    '[{"name":',
    '{"name":"get","arguments":{',
    '{"name":"a","arguments":{"b":"c"}',
    '{"name":"a","arguments":{"b":"c"}},',
    '{"tool_calls":[',
    '{"type":"function","function":{',
    '{"type":"tool_use","name":"a","input":{',
    "\n[get(a=",
    "\n[get(a='",
    "\nget(a=(",
    "\n[get(a=1), ",
    "[[",
    '{"a":"\\',
    '{"a":"\\u',
    "{/*",
    "{#",
    "1e",
)
HARMONY = (
    "<|channel|>",
    "<|channel|>analysis<|message|>",
    "<|channel|>final<|message|>",
    "<|start|>assistant",
    "<|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{",
    "<|channel|>commentary to=a<|message|>",
    "<|call|>",
    "<|end|>",
    "<channel|>",
)
FOREIGN = (
    "<a>",
    "</a>",
    "<a_b>",
    "<a_b><c>",
    "<a_b><c>d</c>",
    "<a_b><path>",
    '<a path="b"/>',
    '<a path="b">',
    '<a path="',
    "<read_file>\n<path>",
    "<think>a",
    "<think>a</think>\nuser\n",
    "</think>",
    "<thinking>",
    "</thinking>",
    "<reasoning><thinking>",
    "<![CDATA[",
    "]]>",
    "<!--",
    "-->",
    "<?xml ",
    "<!",
)
PLAIN = (
    " ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    " \n",
    "a",
    "a ",
    "é",
    "\U0001f600",
    "\u2028",
    "\x00",
    "\ud800",
    "\udc00\ud800",
    "\x00<",
    "=",
    ":",
    "/",
    "-",
    "*",
    "#",
    "~",
    "_",
    "a.py\n",
    "x < y and y > z\n",
    "s/a/b/ ",
    "Action: get\nAction Input: ",
)
DIALECTS = (
    "to=functions.get {", "to=functions.get", 'to=functions.get json{"a":', "[/THINK]", "[THINK]", "<think>\n", "\u25c1think\u25b7",
    '<|channel|>commentary to=functions.get <|message|>{"a":"', ">>>get\n{", ">>>all\n", 'Action: get\nAction Input: {"a":"',
    "Observation: ", "\nUser:", "<tool_response>", "[TOOL_RESULTS]", "<|im_start|>user", "\u273fFUNCTION\u273f: get\n\u273fARGS\u273f: {",
    "<tool>get</tool><tool_input>", "<action>get</action><action_input>", '<tool_call>get(path="', "<|python_tag|>get(",
    '<|python_tag|>{"name":"get","parameters":{', "\n    <get>", "> <get>", "\n\n    ", '<function_calls><invoke name="get">',
    "<parameters><a>", "<tool_use><name>get</name><arguments><path>", "</arguments>", '<sh command="echo "a" > "',
    '{"role":"user","content":"', '{"tool_calls":[{"function":{"name":"get","arguments":"', 'get(a="b",', '(a="', '"""', "[CALL_ID]x[ARGS]{",
    "call:get{path:", '<|"|>', "\n- ", "```json\n{", "```tool_code\nget(", "# User\n", "<|START_ACTION|>[", "<|recipient|>all",
    "<|message_sep|>function call<|role_sep|>", 'functools[{"name":"get",', "a.py\n```\n<<<<<<< SEARCH\n", "</arg_value>",
)  # fmt: skip
PIECES = tuple(
    dict.fromkeys(
        (
            *OWN_TAGS,
            *ATTRIBUTES,
            *ENTITIES,
            *CODE,
            *EDIT_BLOCKS,
            *VENDOR_TOKENS,
            *VALUES,
            *HARMONY,
            *FOREIGN,
            *DIALECTS,
            *PLAIN,
        )
    )
)

# Each opens something that waits for its end; what follows must not be searched again and again.
OPENERS = (
    "<get",
    '<get path="',
    '<set path="a">',
    "<think>",
    "<thinking>",
    "<a_b>",
    "`",
    "```\n",
    "```tool_code\n",
    "a.py\n<<<<<<< SEARCH\n",
    '<set path="a"><<SEARCH\n',
    "*** Begin Patch\n*** Update File: a\n",
    "<tool_call>",
    '<tool_call>{"name":"get","arguments":{"path":"',
    "[TOOL_CALLS]get{",
    "[TOOL_CALLS][",
    "<function=get><parameter=path>",
    '<invoke name="get"><parameter name="path">',
    "<tool_call>get<arg_key>path</arg_key><arg_value>",
    '{"name":"get","arguments":{"path":"',
    "\n[get(path='",
    "<|channel|>analysis<|message|>",
    "<|channel|>commentary to=functions.get<|message|>{",
    "<|tool_call_begin|>functions.get:0<|tool_call_argument_begin|>{",
)
TAILS = (" ", "\n", "<", ">", '"', "'", "{", "[", "\\", "&amp;", '{"a":', '", ', '" ', "</", "`", "a", "</set>", "}")
ALTERNATING = (
    "<get ",
    "</set>",
    '<set path="a">\n',
    '"',
    "`",
    "```\n",
    "<<<<<<< SEARCH\n",
    "<<SEARCH ",
    "<tool_call>",
    '{"name":',
    "[TOOL_CALLS]",
    "<function=a><parameter=b>",
    "<|channel|>analysis<|message|>",
    "<a_b><c>",
    "<thinking>",
)


@dataclass(frozen=True, slots=True)
class Hostile:
    """A text of any size: `prefix`, then `piece` over and over, then `tail` as often as `piece`.

    Where `numbered`, the `#` in a piece is its number, so that no two are alike.
    """

    piece: str
    prefix: str = ""
    tail: str = ""
    numbered: bool = False

    @property
    def name(self) -> str:
        parts = (self.prefix, self.piece, self.tail and f"...{self.tail}")
        return ascii("".join(parts))[1:-1][:80]

    def text(self, chars: int) -> str:
        """Return about `chars` characters of it."""
        unit = len(self.piece) + len(self.tail) + (4 if self.numbered else 0)
        count = max(1, (chars - len(self.prefix)) // unit)
        if self.numbered:
            return self.prefix + "".join(self.piece.replace("#", str(number)) for number in range(count))
        return self.prefix + self.piece * count + self.tail * count


NESTED = (
    Hostile("<set>", tail="</set>"),
    Hostile('<set path="a">', tail="</set>"),
    Hostile("<get>", tail="</set>"),
    Hostile("<a_b>", tail="</a_b>"),
    Hostile('<get path="', tail='">'),
    Hostile("<tool_call>", tail="</tool_call>"),
    Hostile("<thinking>", tail="</thinking>"),
    Hostile("{", tail="}"),
    Hostile('{"name":', tail="}"),
    Hostile("[", tail="]"),
    Hostile('{"name":"a","arguments":', tail="}"),
    Hostile("[{", prefix="<tool_call>", tail="}]"),
    Hostile("(", prefix="\n[get(a=", tail=")"),
    Hostile("<<SEARCH\n", prefix='<set path="a">', tail="SEARCH\n"),
    Hostile("<<<<<<< SEARCH\n", prefix="a.py\n", tail="=======\n>>>>>>> REPLACE\n"),
    Hostile("`", tail=" `"),
    Hostile("<think>a", tail="<|python_tag|>"),
    Hostile('<think a="b">x<tool_call>{"name": "get", "arguments": {"path": "1"}}</tool_call> '),
    Hostile('<think a="b">x<tool_call>{"name": "get", "arguments": {"path": "1"}}</tool_call> <get>'),
    Hostile("<tool_response></thinking>"),
    Hostile('<set path="a"><set path="b">[/THINK]x'),
)
NUMBERED = (
    Hostile("<a_#><c>", numbered=True),
    Hostile("<a_# path='x'>", numbered=True),
    Hostile("<a#:tool_call>", numbered=True),
    Hostile("<|a#|>", numbered=True),
    Hostile("<function=a#>", numbered=True),
    Hostile("<<A#\n", prefix='<set path="a">', numbered=True),
    Hostile(" a#='b'", prefix="<get", numbered=True),
    Hostile('"a#": 1,', prefix='<tool_call>{"name":"a","arguments":{', numbered=True),
    Hostile("a#=1,", prefix="\n[get(", numbered=True),
    Hostile("<parameter=a#>x</parameter>", prefix="<function=a>", numbered=True),
    Hostile("```a#\n", numbered=True),
    Hostile("a#.py\n<<<<<<< SEARCH\n", numbered=True),
    Hostile("<get path='a#'>\n", numbered=True),
)


SINGLE = (*(Hostile(piece) for piece in PIECES), *NESTED, *NUMBERED)
COMBINED = (
    *(Hostile(first + second) for first, second in combinations(ALTERNATING, 2)),
    *(Hostile(tail, prefix) for prefix in OPENERS for tail in TAILS),
)
HOSTILE = (*SINGLE, *COMBINED)

# Bodies of a `set`: what they do to a text must be found in linear time too.
EDIT_BODIES = (
    Hostile("<<A "),
    Hostile("<<A x A y "),
    Hostile("<<A#\n", numbered=True),
    Hostile("<<SEARCH "),
    Hostile("<<SEARCH a SEARCH "),
    Hostile("<<SEARCH\na b\nSEARCH\n<<REPLACE\na b\nREPLACE\n"),
    Hostile("<<SEARCH\nz\nSEARCH\n<<REPLACE\na\nREPLACE\n"),
    Hostile("<<SEARCH1\nSEARCH2\n"),
    Hostile("<<APPEND\na b\nAPPEND\n"),
    Hostile("<<DELETE\na b\nDELETE\n"),
    Hostile("<<NEW\nNEW x\n"),
    Hostile("<<NEW\n", tail="NEW\n"),
    Hostile("SEARCH\n", prefix="<<SEARCH\n"),
    Hostile("s/a/b/ "),
    Hostile("s/a/b/\n"),
    Hostile("\\/", prefix="s/"),
    Hostile("s|", prefix=""),
    Hostile("<<<<<<< SEARCH\n"),
    Hostile("<<<<<<< SEARCH\na b\n=======\nc\n>>>>>>> REPLACE\n"),
    Hostile("=======\n", prefix="<<<<<<< SEARCH\n"),
    Hostile("--- a\n+++ b\n@@\n-a b\n+c\n"),
    Hostile("@@\n", prefix="--- a\n+++ b\n"),
    Hostile(" a b\n", prefix="--- a\n+++ b\n@@ -1 +1 @@\n"),
    Hostile("*** Begin Patch\n"),
    Hostile("@@\n-a b\n+c\n", prefix="*** Begin Patch\n*** Update File: a\n"),
    Hostile("<<:::a\n"),
    Hostile("a b\n"),
    Hostile("\n"),
    Hostile(" "),
)
