"""The first bad part of a request is named, and no vendor is asked."""

import base64

import pytest
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.types.v1 import delta_pb2, settings_pb2
from turnwright.types.v1.message_pb2 import ROLE_ASSISTANT, ROLE_EVENT, ROLE_TOOL, ROLE_USER, Image, Message, Part

from contract.provider.conftest import said
from sse_server import SseServer, chat
from turnwright_provider.rpc.checks import IMAGE_BYTES_MAX

pytestmark = pytest.mark.asyncio

USER = said(ROLE_USER, "hi")
CALL = delta_pb2.ToolCall(index=0, id="c", name="get", arguments="{}")
PNG = b"\x89PNG\r\n"
ENCODED = base64.b64encode(PNG).decode()


def calls(*made: delta_pb2.ToolCall) -> Message:
    return Message(role=ROLE_ASSISTANT, calls=made)


def call(**fields) -> delta_pb2.ToolCall:
    return delta_pb2.ToolCall(**{"index": 0, "id": "c", "name": "get", "arguments": "{}", **fields})


def answer(call_id: str) -> Message:
    return Message(role=ROLE_TOOL, call_id=call_id, parts=[Part(text="done")])


def shows(**image) -> list[Message]:
    return [Message(role=ROLE_USER, parts=[Part(text="look"), Part(image=Image(**image))])]


def tool(name: str = "get", parameters: str = "", **more) -> pb.Tool:
    return pb.Tool(name=name, parameters=parameters, **more)


BAD = {
    "a result for no call": ({"messages": [USER, answer("c")]}, "messages[1].call_id"),
    "a result before its call": ({"messages": [USER, answer("c"), calls(CALL)]}, "messages[1].call_id"),
    "the same id twice": ({"messages": [USER, calls(CALL, CALL)]}, "messages[1].calls"),
    "a message of nobody": ({"messages": [USER, Message(parts=[Part(text="hi")])]}, "messages[1].role"),
    "a message of whom no vendor knows": ({"messages": [said(ROLE_EVENT, "hi")]}, "messages[0].role"),
    "1001 calls": ({"messages": [USER, calls(*(call(id=f"c{n}") for n in range(1001)))]}, "messages[1].calls"),
    "a call of a user": ({"messages": [Message(role=ROLE_USER, calls=[CALL])]}, "messages[0].calls"),
    "a call of no tool": ({"messages": [USER, calls(call(name=""))]}, "messages[1].calls[0].name"),
    "an image of another type": ({"messages": shows(data=PNG, mime="image/tiff")}, "messages[0].parts[1].image.mime"),
    "an image without a type": ({"messages": shows(data=PNG)}, "messages[0].parts[1].image.mime"),
    "an empty image": ({"messages": shows(data=b"", mime="image/png")}, "messages[0].parts[1].image.data"),
    "an image that is too large": (
        {"messages": shows(data=bytes(IMAGE_BYTES_MAX + 1), mime="image/png")}, "messages[0].parts[1].image.data"
    ),
    "an image of an entry": ({"messages": shows(path="a.png")}, "messages[0].parts[1].image.path"),
    "an address of another kind": ({"messages": shows(url="file:///etc/passwd")}, "messages[0].parts[1].image.url"),
    "an address that is too long": ({"messages": shows(url="https://x/" + "y" * 9000)}, "messages[0].parts[1].image.url"),
    "a data URL without base64": ({"messages": shows(url="data:image/png,abc")}, "messages[0].parts[1].image.url"),
    "a data URL of another type": (
        {"messages": shows(url=f"data:text/html;base64,{ENCODED}")}, "messages[0].parts[1].image.url"
    ),
    "a data URL that is broken": ({"messages": shows(url="data:image/png;base64,@@@")}, "messages[0].parts[1].image.url"),
    "a tool without a name": ({"tools": [tool("")]}, "tools[0].name"),
    "a tool whose name is none": ({"tools": [tool("get"), tool("get it")]}, "tools[1].name"),
    "two tools of a name": ({"tools": [tool("get"), tool("get")]}, "tools[1].name"),
    "129 tools": ({"tools": [tool(f"t{n}") for n in range(129)]}, "tools"),
    "a schema that is no JSON": ({"tools": [tool(parameters="{")]}, "tools[0].parameters"),
    "a schema that is no object": ({"tools": [tool(parameters="[]")]}, "tools[0].parameters"),
    "a schema of no object": ({"tools": [tool(parameters='{"type": "string"}')]}, "tools[0].parameters"),
    "a schema that is none": ({"tools": [tool(parameters='{"type": 7}')]}, "tools[0].parameters"),
    "a schema whose properties are none": (
        {"tools": [tool(parameters='{"properties": ["path"]}')]}, "tools[0].parameters"
    ),
    "a schema that is nested without end": ({"tools": [tool(parameters='{"x":' * 5000)]}, "tools[0].parameters"),
    "a schema that is too long": (
        {"tools": [tool(parameters='{"title": "' + "x" * 70_000 + '"}')]}, "tools[0].parameters"
    ),
    "a choice of no tool": ({"tools": [tool()], "tool_choice": pb.ToolChoice(tool="set")}, "tool_choice.tool"),
    "a form that is none": ({"response_format": settings_pb2.ResponseFormat(schema="7")}, "response_format.schema"),
    "a form with another name": ({"response_format": settings_pb2.ResponseFormat(name="a b")}, "response_format.name"),
    "five cache marks": (
        {"messages": [Message(role=ROLE_USER, parts=[Part(text="a", cache=True)] * 4)], "tools": [tool(cache=True)]}, "cache"
    ),
    "five stops": ({"stop": ["a"] * 5}, "stop"),
    "an empty stop": ({"stop": [""]}, "stop"),
    "a long stop": ({"stop": ["a" * 257]}, "stop"),
    "too much metadata": ({"metadata": {f"k{n}": "v" for n in range(17)}}, "metadata"),
    "a long word": ({"metadata": {"k": "v" * 513}}, "metadata.k"),
    "a requirement that is none": ({"required": ["tools", "speed"]}, "required"),
    "fields that are no object": ({"extra": "[1]"}, "extra"),
    "too much text": ({"messages": [said(ROLE_USER, "x" * (1 << 20))] * 17}, "messages"),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
async def test_the_first_bad_part_is_named_before_any_vendor_is_asked(provider, what):
    fields, field = BAD[what]
    async with SseServer([chat("no")]) as server:
        heard = await (await provider(openai_base_url=server.url)).generate(**fields)

    assert (heard.reason, heard.error.metadata["field"]) in {("INVALID_FIELD", field), ("LIMIT_EXCEEDED", field)}
    assert heard.error.message
    assert (server.requests, server.looks) == ([], [])


BROKEN = {
    "broken": '{"path": ',
    "cut": '{"path": "a.t',
    "empty": "",
    "no object": "[1]",
    "1 MB": '{"x": "' + "y" * (1 << 20),
}


@pytest.mark.parametrize("arguments", BROKEN)
@pytest.mark.parametrize(
    ("vendor", "read"),
    [("openai", lambda body: body["messages"][1]["tool_calls"][0]["function"]["arguments"] == "{}"),
     ("anthropic", lambda body: body["messages"][1]["content"][0]["input"] == {}),
     ("gemini", lambda body: body["contents"][1]["parts"][0]["functionCall"]["args"] == {}),
     ("ollama", lambda body: body["messages"][1]["tool_calls"][0]["function"]["arguments"] == {})],
)  # fmt: skip
async def test_arguments_that_a_model_broke_off_go_back_as_none(provider, vendor, read, arguments):
    # Many servers parse them, and would refuse all that follows.
    messages = [USER, calls(call(arguments=BROKEN[arguments])), answer("c")]
    async with SseServer([chat("ok")]) as server:
        client = await provider(**{f"{vendor}_base_url": server.url.removesuffix("/v1")})
        await client.generate(f"{vendor}/m", messages=messages, tools=[tool()])

    assert read(server.requests[0].json)


async def test_an_image_of_50_mb_is_refused_before_it_is_read(provider):
    async with SseServer([chat("no")]) as server:
        client = await provider(openai_base_url=server.url)
        heard = await client.generate(messages=shows(data=bytes(50 << 20), mime="image/png"))

    assert heard.error is not None
    assert (heard.parts, server.requests) == ([], [])
