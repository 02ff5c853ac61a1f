"""`--prompt-edits`: what a file may say, and what is refused with its place. OM21, OM23."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from turnwright_cli.exit_codes import FailureError
from turnwright_cli.prompt_edits import FILE_BYTES_MAX, prompt_edits_of
from turnwright_client.edits import Image, append, append_to, insert_after, insert_before, prepend

PAGE = (Path(__file__).parents[3] / "docs" / "clients.md").read_text()
EXAMPLE = PAGE.partition("## Edits of a prompt")[2].partition("```json\n")[2].partition("```")[0]


def read(folder: Path, text: str):
    file = folder / "edits.json"
    file.write_text(text)
    return prompt_edits_of(str(file))


def test_the_example_of_the_documentation_is_read(tmp_path):
    # OM17-OM20
    assert read(tmp_path, EXAMPLE) == [
        append("user", ["Look at this.", Image(path="screen.png")]),
        prepend("user", "Rules of the house: no emoji."),
        append_to("last-user", "Be brief."),
        insert_after("prompt://1", "assistant", "Understood."),
        insert_before("prompt://4", "user", "New from here."),
    ]
    assert prompt_edits_of(None) == ()


X = {"role": "user", "parts": [{"text": "x"}]}
REFUSED = {
    "no JSON": ("[", "truncated"),
    "no list": ({"append": X}, "Expected `array`"),
    "no edit": ([{}], "each edit has one of append, prepend, append_to, insert_after, insert_before"),
    "two": ([{"append": X, "prepend": X}], "each edit has one of"),
    "an unknown verb": ([{"replace": X}], "unknown field `replace` - at `$[0]`"),
    "an id": ([{"append": {**X, "id": "m1"}}], "unknown field `id` - at `$[0].append`"),
    "a time": ([{"append": {**X, "time": {"created": 1}}}], "unknown field `time` - at `$[0].append`"),
    "settings": ([{"append": {**X, "model": "m"}}], "unknown field `model` - at `$[0].append`"),
    "a role": ([{"append": {"role": "tool", "parts": [{"text": "x"}]}}], "Invalid enum value 'tool' - at `$[0].append.role`"),
    "a target": ([{"append_to": {"target": "last-tool", "parts": [{"text": "x"}]}}], "at `$[0].append_to.target`"),
    "no parts": ([{"append": {"role": "user", "parts": []}}], "at least one part"),
    "an empty part": ([{"append": {"role": "user", "parts": [{}]}}], "none of them may be empty"),
    "no message": ([{"insert_after": {"message_id": "", "message": X}}], "Name the message"),
    "too many": ([{"append": X}] * 65, "edits has 65 items; the limit is 64"),
    "too much": ([{"append": {"role": "user", "parts": [{"text": "x" * 2**17}]}}], "edits has 131072 bytes; the limit is 65536"),
    "too long": (" " * (FILE_BYTES_MAX + 1), "it has more than 1048576 bytes"),
    "too deep": ("[" * 100_000, ""),
}  # fmt: skip


@pytest.mark.parametrize(("given", "words"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_list_of_edits_is_refused_with_its_place(tmp_path, given, words):
    text = given if isinstance(given, str) else json.dumps(given)
    with pytest.raises(FailureError) as refused:
        read(tmp_path, text)
    assert str(refused.value).startswith(f"--prompt-edits {tmp_path}/edits.json: ")
    assert words in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FailureError, match=r"none\.json cannot be read: No such file or directory"):
        prompt_edits_of(str(tmp_path / "none.json"))
