"""A client calls a tool by what the contract says of it: its parameters, or the shape of a tag."""

from __future__ import annotations

import json
import re

import pytest
import pytest_asyncio
from jsonschema import Draft202012Validator
from turnwright.types.v1 import settings_pb2

from turnwright_grammar.tools import _SHAPES

pytestmark = pytest.mark.asyncio(loop_scope="module")

BODY = "body"


@pytest_asyncio.fixture(loop_scope="module")
async def called(shared_services):
    """The client, with a run that may do everything."""
    await shared_services.client.create_run(
        shared_services.project, "r", settings_pb2.RunSettings(model="m", yolo=True)
    )

    async def call(tool: str, attributes=None, body=""):
        return await shared_services.client.call_tool(shared_services.project, "r", tool, attributes, body)

    call.discovered = {tool.name: tool for tool in (await shared_services.client.discover()).tools}
    call.files = shared_services.files
    return call


async def test_each_tool_tells_its_parameters_as_a_schema(called):
    assert {"sh", "get", "set", "cp", "undo", "update_plan"} <= called.discovered.keys()
    for name, tool in called.discovered.items():
        schema = json.loads(tool.parameters)
        Draft202012Validator.check_schema(schema)
        assert schema["type"] == "object", name
        assert all(one["description"] for one in schema["properties"].values()), name
        if name in _SHAPES:
            # What a body of this shape becomes is one of them.
            assert {_SHAPES[name].filled} - {None} <= schema["properties"].keys()


async def test_what_is_missing_is_named_with_everything_that_the_tool_takes(called):
    for name, tool in called.discovered.items():
        schema = json.loads(tool.parameters)
        # What the grammar completes is never missing.
        for missing in {*schema.get("required", ())} - (_SHAPES[name].defaults.keys() if name in _SHAPES else set()):
            given = {each: "x" for each in schema["required"] if each not in (missing, BODY)}
            record = await called(name, given, "" if missing == BODY else " ")
            assert (record.status, record.outcome) == (400, "invalid:400"), name
            assert f"needs `{missing}`" in record.body
            assert all(f"`{each}`" in record.body for each in schema["properties"]), name


BY_TAG = {
    "sh": ({"command": "echo hi"}, {}, "echo hi"),
    "env": ({"command": "true"}, {}, "\n true \n"),
    "get": ({"path": "a.txt"}, {}, "a.txt"),
    "cp": ({"path": "a.txt", "to": "b.txt"}, {"from": "a.txt"}, "b.txt"),
    "mv": ({"path": "a.txt", "to": "b.txt"}, {"path": "a.txt"}, "b.txt"),
    "rm": ({"path": "a.txt"}, {}, "a.txt"),
    "search": ({"path": "the words"}, {}, "the words"),
    "skill": ({"path": "none"}, {}, "none"),
    "get_plan": ({"plan_id": "p"}, {}, "p"),
    "wait_agents": ({"names": "x"}, {}, "x"),
}


async def test_the_table_has_each_tool_whose_body_is_an_argument():
    assert BY_TAG.keys() == {name for name, shape in _SHAPES.items() if shape.filled}


@pytest.mark.parametrize("tool", BY_TAG)
async def test_a_body_in_the_shape_of_a_tag_is_the_argument_that_a_tag_makes_of_it(called, tool):
    attributes, given, body = BY_TAG[tool]
    if tool not in called.discovered:
        pytest.skip("it is not offered here")
    told = []
    for call in ((attributes, ""), (given, body)):
        for file, text in (("a.txt", "old\n"), ("b.txt", "")):
            (called.files / file).write_text(text)
        record = await called(tool, *call)
        said = re.sub("call_[0-9a-f]+", "call", record.body)
        told.append((record.status, record.outcome, said, (called.files / "b.txt").read_text()))
    assert told[0] == told[1]
    assert told[0][0] != 400
