"""An edit that changes one line leaves the bytes of all others as they were, however inexact the model's copy of them is."""

import random
from unicodedata import normalize

import pytest

from turnwright_grammar.edits.apply import EditResult, apply_edit
from turnwright_grammar.reader.parser import read_reply

# What the text has, and what a model makes of it.
FORGIVEN = {
    "curly quotes": ("p{n} = \u201chi\u201d", 'p{n} = "hi"'),
    "no-break spaces": ("a{n}\u00a0= 1", "a{n} = 1"),
    "two blanks at the end": ("line {n}  ", "line {n}"),
    "tabs between columns": ("a{n}\tb\tc", "a{n}  b  c"),
    "tab indentation": ("\tif x{n}:", "    if x{n}:"),
    "two blanks inside": ("if  x{n}  :", "if x{n} :"),
    "dashes": ("from {n}\u20135", "from {n}-5"),
    "full width": ("call\uff08x{n}\uff09", "call(x{n})"),
    "decomposed": (normalize("NFD", "caf\u00e9 {n}"), normalize("NFC", "caf\u00e9 {n}")),
    "composed": (normalize("NFC", "caf\u00e9 {n}"), normalize("NFD", "caf\u00e9 {n}")),
    "as it is": ("plain {n}", "plain {n}"),
}
FORMS = {
    "markers": "<<SEARCH\n{old}\nSEARCH\n<<REPLACE\n{new}\nREPLACE",
    "conflict block": "<<<<<<< SEARCH\n{old}\n=======\n{new}\n>>>>>>> REPLACE",
    "apply_patch": "*** Begin Patch\n*** Update File: f\n@@\n{minus}\n{plus}\n*** End Patch",
    "diff": "--- a/f\n+++ b/f\n@@ -1,{count} +1,{count} @@\n{minus}\n{plus}\n",
    "context": "--- a/f\n+++ b/f\n@@ -1,{count} +1,{count} @@\n{context}\n",
}


def body_of(form: str, old: list[str], new: list[str]) -> str:
    changed = zip(old, new, strict=True)
    context = [f" {one}" if one == other else f"-{one}\n+{other}" for one, other in changed]
    minus, plus = ("\n".join(sign + line for line in lines) for sign, lines in (("-", old), ("+", new)))
    return FORMS[form].format(
        old="\n".join(old), new="\n".join(new), minus=minus, plus=plus, context="\n".join(context), count=len(old)
    )


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", FORGIVEN)
@pytest.mark.parametrize("line_ends", [["\n"], ["\r\n"], ["\r\n", "\n"]], ids=["LF", "CRLF", "mixed"])
def test_lines_that_an_edit_does_not_change_stay_byte_by_byte(form, kind, line_ends):
    dice = random.Random(f"{form} {kind}")
    for size in (2, 3, 5):
        kinds = [FORGIVEN[kind], *(FORGIVEN[dice.choice((kind, "as it is"))] for _ in range(size - 1))]
        ends = [line_ends[n % len(line_ends)] for n in range(size)]
        there, copied = ([pair[side].format(n=n) for n, pair in enumerate(kinds)] for side in (0, 1))
        for changed in range(size):
            new = [*copied]
            new[changed] = f"changed{changed}"
            text = "".join(line + end for line, end in zip(there, ends, strict=True))
            result = apply_edit(text, body_of(form, copied, new), path="f")
            assert isinstance(result, EditResult), (text, result)
            lines, wanted = result.text.splitlines(keepends=True), text.splitlines(keepends=True)
            assert len(lines) == len(wanted)
            for number, (line, kept) in enumerate(zip(lines, wanted, strict=True)):
                assert line == kept or (number == changed and line.strip() == new[changed])


def test_a_line_that_is_added_or_taken_out_leaves_its_neighbours():
    text = "p = \u201chi\u201d\nq\u00a0= 1  \r\nr\n"
    for new, wanted in (
        ('p = "hi"\nnew\nq = 1', "p = \u201chi\u201d\nnew\nq\u00a0= 1  \r\nr\n"),
        ('p = "hi"', "p = \u201chi\u201d\r\nr\n"),
        ("q = 1", "q\u00a0= 1  \r\nr\n"),
    ):
        result = apply_edit(text, f'<<SEARCH\np = "hi"\nq = 1\nSEARCH\n<<REPLACE\n{new}\nREPLACE')
        assert isinstance(result, EditResult)
        assert result.text == wanted


@pytest.mark.parametrize("there", ["\u201cx\u201d", "\u201cx\u201d  ", "caf\u00e9\u2019s", '"x"'])
@pytest.mark.parametrize("tab", ["    ", "\t"])
@pytest.mark.parametrize("depth", [0, 1])
def test_lines_that_are_put_in_take_the_indentation_of_the_text_whatever_else_differs(there, tab, depth):
    copied = there.translate(str.maketrans("\u201c\u201d\u2019", '""\'')).rstrip()
    text = f"class A:\n{tab}def f(self):\n{2 * tab}{there}\n{2 * tab}y\n"
    margin = "  " * depth
    search = f"{margin}def f(self):\n{margin}  {copied}\n{margin}  y"
    for old, new in (("y", "z"), (copied, f"new\n{margin}  {copied}"), ("y", f"if y:\n{margin}    z")):
        replacement = search.replace(f"  {old}", f"  {new}")
        result = apply_edit(text, f"<<SEARCH\n{search}\nSEARCH\n<<REPLACE\n{replacement}\nREPLACE")
        lines = [line.replace("  ", tab) for line in replacement.removeprefix(margin).split(f"\n{margin}")]
        wanted = [tab + line.replace(copied, there) for line in lines]
        assert isinstance(result, EditResult)
        assert [line.replace(2 * tab + "  z", 3 * tab + "z") for line in result.text.splitlines()[1:]] == wanted


# How a model copies lines from an output with numbers, such as that of `cat -n`, `grep -n` or a viewer of files.
NUMBERS = [
    "{n} | {line}",
    "{n}|{line}",
    "{n}: {line}",
    "{n}:{line}",
    "{n:>4} │ {line}",
    "{n:>6}→{line}",
    "{n:>6}\t{line}",
]


@pytest.mark.parametrize("form", ["markers", "conflict block"])
@pytest.mark.parametrize("number", NUMBERS)
@pytest.mark.parametrize("first", ["def a():", "    if a:", "\tif a:", "        if a:"])
def test_numbers_before_lines_are_not_written_and_change_no_line(form, number, first):
    there = [first, f"    {first}\u00a0x  ", "", f"    {first} \u201cy\u201d"]
    copied = [first, f"    {first} x", "", f"    {first} \u201cy\u201d"]
    text = "\r\n".join(("head", *there, "tail", ""))
    numbered = [number.format(n=n, line=line) for n, line in enumerate(copied, 9)]
    new = f"    {first} new"
    for written, wanted in (
        (numbered, there),
        (copied, there),
        ([*numbered[:1], new, *numbered[1:]], [*there[:1], new, *there[1:]]),
        ([*numbered[:1], new, *numbered[2:]], [*there[:1], new, *there[2:]]),
        ([numbered[0], number.format(n=10, line=new), *numbered[2:]], [there[0], new, *there[2:]]),
        ([*copied[:1], new, *copied[2:]], [*there[:1], new, *there[2:]]),
        ([numbered[-1]], [there[-1]]),
    ):
        body = FORMS[form].format(old="\n".join(numbered), new="\n".join(written))
        result = apply_edit(text, body, path="f")
        assert isinstance(result, EditResult), (body, result)
        assert result.text == "\r\n".join(("head", *wanted, "tail", ""))


@pytest.mark.parametrize(
    ("text", "old", "new", "wanted"),
    [
        ("1 | a\n2 | b\n", "1 | a\n2 | b", "1 | a\n2 | c", "1 | a\n2 | c\n"),
        ("web:\n  ports:\n", "3: web:\n4:   ports:", "web:\n  ports:\n  80: http", "web:\n  ports:\n  80: http\n"),
        ("a\nb\n", "1 | a\nb", "1 | a\nc", None),
    ],
    ids=["of the text", "in what is new", "before some lines"],
)
def test_numbers_that_are_content_stay(text, old, new, wanted):
    result = apply_edit(text, FORMS["markers"].format(old=old, new=new), path="f")
    assert (result.text if isinstance(result, EditResult) else None) == wanted


BLOCK = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n"


@pytest.mark.parametrize(
    "head",
    [
        "```python a.py\n", "```a.py\n", "```python:a.py\n", '```py title="a.py"\n', "a.py\n```\n", "File: a.py\n", "File: a.py\n```py\n",
        "**a.py**\n", "# a.py\n", "### `a.py`\n", "`a.py`:\n", "**File:** `a.py`\n```\n", "Path: a.py\n", "filename: a.py\n",
    ],
)  # fmt: skip
def test_a_block_changes_the_file_that_stands_alone_before_it(head):
    reply = read_reply(f"I change it.\n\n{head}{BLOCK}" + "```\n" * ("```" in head))
    assert [command.attributes for command in reply.commands] == [{"path": "a.py"}]


@pytest.mark.parametrize(
    "head", ["Change a.py\n", "File: see a.py\n", "Now the file.\n", "```python\n", "File: it is done\n"]
)
def test_a_sentence_is_no_file_name(head):
    assert read_reply(f"I change it.\n\n{head}{BLOCK}" + "```\n" * ("```" in head)).commands == ()
