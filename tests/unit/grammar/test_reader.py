"""Facts about reading replies: our tags, their repairs, and where commands do not fire."""

import pytest

from turnwright_grammar.edits.apply import EditResult, apply_edit
from turnwright_grammar.reader.parser import read_reply

from .called import calls, kinds


def text_of(result) -> str:
    assert isinstance(result, EditResult)
    return result.text


GET_A, GET_B = ("get", {"path": "a"}), ("get", {"path": "b"})


@pytest.mark.parametrize(
    "text",
    [
        '<get path="a"/>',
        "<get path='a'/>",
        "<get path=a/>",
        "<get path=a />",
        '<GET PATH = "a" />',
        '<get\n  path="a"\n/>',
        '<get path="a"></get>',
        "<get>a</get>",
        "<get> a\n</get>",
        "<get><path>a</path></get>",
        '<get path=\\"a\\"/>',
        '<get file_path="a"/>',
        '<get path="a"/>\r\n',
        '<get path="a"\\>',
        '<get path="a"/ >',
        '<get path="a"></get path="a">',
        "<tool_call>\n<function=get>\n<parameter=path>\na\n</parameter>\n</function>\n</tool_call>",
        '<invoke name="get"><parameter name="path">a</parameter></invoke>',
        '<|start|>assistant<|channel|>commentary to=functions.get <|constrain|>json<|message|>{"path":"a"}<|call|>',
        '{"type":"tool_use","id":"t1","name":"get","input":{"path":"a"}}',
        '{"tool_calls":[{"id":"1","type":"function","function":{"name":"get","arguments":"{\\"path\\":\\"a\\"}"}}]}',
        '<tool_call>{"tool": "get", "path": "a"}</tool_call>',
        '<tool_call>{"name": "get", "arguments": {"path": "a"}</tool_call>',
        '```tool_code\nprint(get(path="a"))\n```',
        '```tool_code\n<get path="a"/>\n```',
        '```json\n{"name": "get", "arguments": {"path": "a"}}\n```',
    ],
)
def test_one_call_has_many_spellings(text):
    assert calls(text) == [GET_A]


@pytest.mark.parametrize(
    ("text", "expected", "kind"),
    [
        ('<get path="a/>\n<get path="b"/>', [GET_A, GET_B], "attribute_quotes"),
        ('<get path="a>\n<get path="b"/>', [GET_A, GET_B], "attribute_quotes"),
        ('<get path="a" <get path="b"/>', [GET_A, GET_B], "attribute_quotes"),
        ('<get path="a"><get path="b"/>', [GET_A, GET_B], "empty_body"),
        ('<get path="a">\n<get path="b"/></get>', [GET_A, GET_B], "empty_body"),
        ('<update>x</get>\n<get path="b"/>', [("update", {"status": "102"}, "x"), GET_B], "mismatched_close"),
        ('<set path="a">x\n<get path="b"/>', [("set", {"path": "a"}, "x\n"), GET_B], "unclosed"),
        ("<update>x", [("update", {"status": "102"}, "x")], "unclosed"),
        ('</set><get path="b"/>', [GET_B], "stray_close"),
        ('<sh command="git commit -m "x y""/>', [("sh", {"command": 'git commit -m "x y"'})], "attribute_quotes"),
        ('<get path="a', [GET_A], "attribute_quotes"),
        ("<get path=\u201ca\u201d/>", [GET_A], "attribute_quotes"),
        ('<get path="a">\n\nNow I wait.', [GET_A], "unclosed"),
        ('<get path="a">x\nNow:\n<get path="b"/>', [("get", {"path": "a"}, "x"), GET_B], "unclosed"),
        ('<set path="a"/>x</set><get path="b"/>', [("set", {"path": "a"}, "x"), GET_B], "reopened"),
        ('<rm path="src/ma', [], "cut_call"),
        ("the <get> tag", [], "stray_tag"),
        ('<tool_call>{"name": "sh", "arguments": {"command": "rm -r', [], "cut_call"),
        ("<tool_call>nothing to read</tool_call>", [], "unreadable_call"),
        (">>>>>>> REPLACE", [], "conflict_block"),
        ("<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE", [], "conflict_without_path"),
    ],
)
def test_every_recovery_is_a_warning(text, expected, kind):
    assert (calls(text), kind in kinds(text)) == (expected, True)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        ("if x<y: pass\nfor <get in z", "set"),
        ("<div class='a'>&amp;</div>", "set"),
        ('<get path="x"/>', "set"),
        ("</update></get>", "set"),
        ('<set path="b">x</set>', "set"),
        ("use `</set>` and `<set>`", "set"),
        ("\n```xml\n</set>\n```\n", "set"),
        ("<<SEARCH\n</set>\nSEARCH\n<<REPLACE\nx\nREPLACE", "set"),
        ("it`s", "set"),
        ('{"name": "get", "arguments": {}}', "set"),
        ("[TOOL_CALLS]get{}", "set"),
    ],
)
def test_a_body_is_opaque_and_ends_at_its_own_close(body, name):
    text = f'<{name} path="a">{body}</{name}><get path="b"/>'
    assert calls(text) == [(name, {"path": "a"}, body), GET_B]


@pytest.mark.parametrize(
    "text",
    [
        '`<get path="a"/>`',
        'write ``<get path="a"/>`` to read',
        'it`s <get path="a"/> or`',
        "```\ntext\n<get path='a'/>\n```",
        "~~~xml\nsay:\n<get path='a'/>\n~~~",
        "<thinking><get path='a'/></thinking>",
        "<!-- <get path='a'/> -->",
        "<think><get path='a'/></think>",
        "<|channel|>analysis<|message|><get path='a'/><|end|>",
        "2 < 3 and <get",
        '{"name": "get", "description": "d", "parameters": {"type": "object", "properties": {}}}',
        "```bash\nls\n```",
        '<div class="get">x</div>',
    ],
)
def test_what_is_quoted_or_considered_does_not_fire(text):
    assert [call for call in calls(text) if call[0] != "think"] == []


def test_fenced_tags_fire_when_nothing_outside_does():
    fenced = '```xml\n<get path="a"/>\n```\n'
    assert (calls(fenced), kinds(fenced)) == ([GET_A], ["fenced_commands"])
    assert (calls(fenced + '<get path="b"/>'), kinds(fenced + '<get path="b"/>')) == ([GET_B], ["fenced_inert"])


def test_a_diff_with_a_file_name_is_an_edit():
    text = "```diff\n--- a/x.py\n+++ b/x.py\n@@ -1,2 +1,2 @@\n a\n-b\n+c\n```"
    (command,) = read_reply(text).commands
    assert (command.name, dict(command.attributes)) == ("set", {"path": "x.py"})
    assert text_of(apply_edit("a\nb\n", command.body)) == "a\nc\n"


PATCH = """*** Begin Patch
*** Update File: a
@@
-x
+y
*** Add File: n
+new
*** Update File: b
*** Move to: c
*** Delete File: o
*** End Patch
"""


DIFF = """```diff
--- a/a
+++ b/a
@@ -1 +1 @@
-x
+y
--- /dev/null
+++ b/n
@@ -0,0 +1 @@
+new
diff --git a/b b/c
rename from b
rename to c
diff --git a/o b/o
--- a/o
+++ /dev/null
@@ -1 +0,0 @@
-y
```"""


@pytest.mark.parametrize(
    "text",
    [
        DIFF,
        PATCH,
        f"So:\n{PATCH}Done.",
        f"```\n{PATCH}```",
        f"```bash\napply_patch <<'EOF'\n{PATCH}EOF\n```",
    ],
)
def test_a_patch_changes_creates_moves_and_removes_files(text):
    change, create, move, remove = read_reply(text).commands
    assert [text_of(apply_edit("x\n", change.body)), text_of(apply_edit(None, create.body))] == ["y\n", "new\n"]
    assert [(one.name, dict(one.attributes)) for one in (change, create, move, remove)] == [
        ("set", {"path": "a"}),
        ("set", {"path": "n"}),
        ("mv", {"path": "b", "to": "c"}),
        ("rm", {"path": "o"}),
    ]


@pytest.mark.parametrize(
    "text", ["Write `*** Begin Patch` first.", "* *** Begin Patch", "*** Begin Patch\nno section\n"]
)
def test_a_patch_that_is_only_talked_about_changes_nothing(text):
    assert read_reply(text).commands == ()


def test_a_conflict_block_is_an_edit_of_the_file_named_before_it():
    text = "**a/b.py**\r\n```python\r\n<<<<<<< SEARCH\r\nx\r\n=======\r\ny\r\n>>>>>>> REPLACE\r\n```\r\n<get path='b'/>"
    assert [(call[0], call[1]["path"]) for call in calls(text)] == [("set", "a/b.py"), ("get", "b")]


def test_entities_are_decoded_in_attributes_and_never_in_bodies():
    text = '<get path="a &amp; &#98; &lt;?x=1&copy=2"/><set path="a">&amp;</set>'
    assert calls(text) == [("get", {"path": "a & b <?x=1&copy=2"}), ("set", {"path": "a"}, "&amp;")]


def test_escaped_quotes_in_an_attribute_are_its_own():
    assert calls('<sh command="echo \\"hi\\" there" timeout="5"/>') == [
        ("sh", {"command": 'echo "hi" there', "timeout": "5"})
    ]


@pytest.mark.parametrize(
    ("text", "name", "attributes"),
    [
        ("<read_file><path>a</path></read_file>", "read_file", {"path": "a"}),
        ('<open path="a"/>', "open", {"path": "a"}),
        (
            '<tool_call>{"name": "Read", "arguments": {"n": 1, "l": [1], "x": null}}</tool_call>',
            "Read",
            {"n": "1", "l": "[1]"},
        ),
    ],
)
def test_unknown_tools_are_returned_as_unknown(text, name, attributes):
    (command,) = read_reply(text).commands
    assert (command.name, dict(command.attributes), command.known) == (name, attributes, False)


def test_a_plugin_s_tool_is_known_when_it_is_named():
    (command,) = read_reply("<lint>src</lint>", known_tools=frozenset({"lint"})).commands
    assert (command.name, command.body, command.known) == ("lint", "src", True)


def test_a_fence_that_fires_is_no_narration():
    assert read_reply("So:\n```xml\n<get path='a'/>\n```\nDone.").narration == "So:\n\nDone."


def test_a_self_closed_set_that_no_close_follows_has_no_body():
    assert calls('<set path="a"/>\n<set path="b">x</set>') == [("set", {"path": "a"}), ("set", {"path": "b"}, "x")]


def test_commands_over_the_cap_are_dropped_and_counted():
    reply = read_reply('<get path="a"/>' * 5, commands_max=3)
    assert (len(reply.commands), reply.dropped, [one.kind for one in reply.warnings]) == (3, 2, ["too_many_commands"])


def test_spans_cut_the_commands_out_of_the_text():
    text = 'see <get path=\'a\'/>, then\n```json\n{"name": "get", "arguments": {"path": "b"}}\n```\n<sh>ls</sh>.'
    cut = [text[slice(*one.span)] for one in read_reply(text).commands]
    assert cut == ["<get path='a'/>", '{"name": "get", "arguments": {"path": "b"}}', "<sh>ls</sh>"]


def test_the_narration_is_what_is_no_command():
    reply = read_reply("First <get path='a'/> then.<|im_end|>")
    assert reply.narration == "First  then."


def test_a_native_body_may_hold_our_tags():
    text = '<tool_call>{"name": "set", "arguments": {"path": "a", "content": "x <get path=\\"b\\"/></tool_call>"}}</tool_call>'
    assert calls(text) == [("set", {"path": "a"}, 'x <get path="b"/></tool_call>')]


def test_no_text_is_no_reply():
    assert read_reply(None) == read_reply("")
    assert read_reply("").commands == ()
