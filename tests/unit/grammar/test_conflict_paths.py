"""Which line above a conflict block names its file, and which only speaks of one."""

import pytest

from turnwright_grammar.reader.parser import read_reply

BLOCK = "<<<<<<< SEARCH\na\n=======\nb\n>>>>>>> REPLACE\n"


def paths(text: str) -> list[str]:
    return [command.attributes["path"] for command in read_reply(text).commands]


@pytest.mark.parametrize(
    ("line", "path"),
    [
        ("src/a.py", "src/a.py"),
        ("  a.py  ", "a.py"),
        ("**src/a.py**", "src/a.py"),
        ("`src/a.py`:", "src/a.py"),
        ("### src/a.py", "src/a.py"),
        ("File: src/a.py", "src/a.py"),
        ("File:src/a.py", "src/a.py"),
        ("**File:** `src/a.py`", "src/a.py"),
        ("Makefile", "Makefile"),
        ("LICENSE", "LICENSE"),
        (".gitignore", ".gitignore"),
        ("app/(group)/[id]/page.tsx", "app/(group)/[id]/page.tsx"),
        ("src\\a.py", "src\\a.py"),
        ("known://plan", "known://plan"),
    ],
)
@pytest.mark.parametrize("form", ["{}\n{}", "{}\n```python\n{}```\n", "```python\n{}\n{}```\n", "{}\n``` c++\n{}```\n"])
def test_a_path_alone_on_its_line_names_the_file(form, line, path):
    assert paths(form.format(line, BLOCK)) == [path]


@pytest.mark.parametrize(
    "line",
    ["File: the first", "In src/a.py:", "In x:", "See src/a.py", "src/a.py (new)", "- src/a.py", "path=src/a.py",
     "Next", "Here:", "Before", "1.", "2. src/a.py", "e.g.", "Use Python 3.11", "3.11", "...", "self.x()", "def f():", "(src/a.py)",
     "https://host/a.py", "// src/a.ts", "", "Edit `src/a.py` so:", "src/"],
)  # fmt: skip
@pytest.mark.parametrize("form", ["{}\n{}", "{}\n```python\n{}```\n", "```python\n{}\n{}```\n"])
def test_prose_names_no_file(form, line):
    reply = read_reply(form.format(line, BLOCK))
    assert (reply.commands, [warning.kind for warning in reply.warnings]) == ((), ["conflict_without_path"])


@pytest.mark.parametrize(
    ("info", "found"),
    [
        ("python src/a.py", ["src/a.py"]),
        ("python title=src/a.py", ["src/a.py"]),
        ("diff a.py b.py", []),
        ("python 3", []),
    ],
)
def test_a_path_behind_the_language_of_a_fence_names_the_file(info, found):
    assert paths(f"```{info}\n{BLOCK}```\n") == found
    assert paths(f"b.py\n```{info}\n{BLOCK}```\n") == found


@pytest.mark.parametrize("between", ["", "\n", "```\n\n```python\n", "\n...\n\n"])
def test_a_block_right_behind_another_is_of_the_same_file(between):
    assert paths(f"a.py\n```python\n{BLOCK}{between}{BLOCK}```\n") == ["a.py", "a.py"]


@pytest.mark.parametrize("said", ["In src/b.py:", "File: all", "Then the tests:", "<get path='c'/>"])
def test_a_block_behind_prose_needs_its_own_file_name(said):
    assert paths(f"a.py\n{BLOCK}\n{said}\n{BLOCK}")[:1] == ["a.py"]
    assert "conflict_without_path" in [
        warning.kind for warning in read_reply(f"a.py\n{BLOCK}\n{said}\n{BLOCK}").warnings
    ]
