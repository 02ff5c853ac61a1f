"""Schemas of tools, the texts that models read about them, and the grammar say the same of attributes. C41."""

from __future__ import annotations

import json

import pytest

from turnwright_executor.tools.native import description_of, native_tools, schema
from turnwright_executor.tools.parameters import BODY
from turnwright_executor.tools.registry import doc_of, texts_of
from turnwright_grammar.native import commands_from_call
from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.tools import canonical_attributes

from .bench import TOOLS

SAMPLES = {"string": "x", "integer": 7, "number": 0.5, "boolean": True}
AS_WRITTEN = {"string": "x", "integer": "7", "number": "0.5", "boolean": "true"}


@pytest.mark.parametrize("name", TOOLS)
def test_the_grammar_leaves_each_parameter_under_its_name(name) -> None:
    declared = TOOLS[name].parameters
    given = {one.name: one.words[0] if one.words else SAMPLES[one.type] for one in declared}
    [command], warnings = commands_from_call(name, json.dumps(given))
    wanted = {one.name: one.words[0] if one.words else AS_WRITTEN[one.type] for one in declared}
    body = wanted.pop(BODY, "")
    assert (dict(command.attributes), command.body, warnings) == (wanted, body, ())


@pytest.mark.parametrize("name", TOOLS)
def test_what_a_text_shows_of_a_tool_is_declared(name) -> None:
    declared = {one.name for one in TOOLS[name].parameters}
    shown = [command for command in read_reply(doc_of(name)).commands if command.name == name]
    used = {attribute for command in shown for attribute in command.attributes}
    used |= {BODY for command in shown if command.body}
    assert shown
    assert used - declared == set()


@pytest.mark.parametrize("name", TOOLS)
def test_what_the_grammar_knows_of_a_tool_is_declared(name) -> None:
    assert canonical_attributes(name) - {one.name for one in TOOLS[name].parameters} == set()


@pytest.mark.parametrize("tool", native_tools(TOOLS, texts_of(TOOLS)), ids=TOOLS)
def test_a_definition_is_a_schema_and_a_description_without_tags(tool) -> None:
    made = tool["parameters"]
    assert made["type"] == "object"
    assert set(made.get("required", ())) <= made["properties"].keys()
    assert all(one["description"] for one in made["properties"].values())
    assert tool["description"]
    assert [name for name in TOOLS if f"<{name}" in tool["description"]] == []


def test_a_call_that_a_text_mentions_is_written_as_it_is_made_natively() -> None:
    doc = '## <look path="[path]"/> - look closely\n\n<look path="a"/>\n\n* Not <look>.\n* As <look path="a" preview/>.'
    assert description_of(doc) == 'look closely\n* Not look.\n* As look(path="a", preview=true).'
    assert description_of("Looks closely.") == "Looks closely."


def test_a_schema_names_what_is_required_and_all_words() -> None:
    made = schema(TOOLS["update"])
    assert (made["required"], made["properties"]["status"]["enum"]) == (
        ["status", "body"],
        ["102", "200", "204", "422"],
    )
