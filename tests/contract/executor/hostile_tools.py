"""A server of tools that misbehaves, on bare bytes: `python hostile_tools.py`, which prints its address.

The name of a tool says how a call of it goes, and the header `list` what Describe comes to.
"""

import asyncio
import json

import grpc
from turnwright.tool.v1 import result_pb2, tool_service_pb2

NAME = tool_service_pb2.DESCRIPTOR.services_by_name["ToolService"].full_name
MIB = 1024 * 1024
SCHEMA = {"type": "object"}
LEAVING = asyncio.Event()
CALLS = [
    "silent", "floods", "floods_for_ever", "says_nothing_for_ever", "huge", "without_a_result", "an_empty_message",
    "two_results", "no_utf_8", "no_message", "half_of_a_pair", "nested", "nested_too_deeply", "many_parts", "odd_parts",
    "an_odd_status", "proposes_after_its_result", "asks_and_leaves", "starts_again", "work",
]  # fmt: skip


def progress(text):
    return tool_service_pb2.DispatchResponse(progress=result_pb2.ToolProgress(text=text)).SerializeToString()


def result(*parts, **more):
    answer = result_pb2.ToolResult(parts=parts, **more)
    return tool_service_pb2.DispatchResponse(result=answer).SerializeToString()


def text(value):
    return result_pb2.ToolPart(text=value)


def structured(value):
    return result(result_pb2.ToolPart(structured=value))


def tool(name="work", schema=SCHEMA, **more):
    written = schema if isinstance(schema, str) else json.dumps(schema)
    return tool_service_pb2.Tool(name=name, schema=written, **more)


async def dispatch(kind):  # noqa: C901 - one case for each kind
    match kind:
        case "silent":
            await asyncio.Event().wait()
        case "floods":
            for _ in range(5000):
                yield progress("x")
        case "floods_for_ever":
            while True:
                yield progress("x" * 1000)
        case "says_nothing_for_ever":
            while True:
                yield progress("")
        case "huge":
            yield result(text("x" * 100 * MIB))
        case "without_a_result":
            return
        case "an_empty_message":
            yield b""
        case "two_results":
            yield result(text("first"))
            yield result(text("second"))
        case "no_utf_8":
            yield result(text("broken")).replace(b"broken", b"\xff\xfe\xfd\xfc\xfb\xfa")
        case "no_message":
            yield b"\xff" * 100
        case "half_of_a_pair":
            yield structured('{"a": "\\ud800"}')
        case "nested":
            yield structured("[" * 900 + ",".join(["1"] * MIB) + "]" * 900)
        case "nested_too_deeply":
            yield structured("[" * MIB + "]" * MIB)
        case "many_parts":
            yield result(*[text("x")] * 100_000)
        case "odd_parts":
            image = result_pb2.ToolImage(mime_type="image/png\0" * 100, data=b"x" * 9 * MIB)
            entry = result_pb2.ToolEntry(name="../\0a\n" * 100, body="b\0c", summary="\0" * 100)
            yield result(result_pb2.ToolPart(image=image), result_pb2.ToolPart(entry=entry), result_pb2.ToolPart())
        case "an_odd_status":
            yield result(text("what?"), status=4_294_967_295)
        case "starts_again":
            start = tool_service_pb2.ServerStart(id="x" * MIB, clock={"seconds": 2**63 - 1, "nanos": -5})
            yield tool_service_pb2.DispatchResponse(other_start=start).SerializeToString()
            return
        case "asks_and_leaves":
            # The server takes no connection and no call any more before it asks.
            LEAVING.set()
            await asyncio.sleep(0.5)
            asking = result_pb2.ToolModelRequest()
            yield tool_service_pb2.DispatchResponse(model_request=asking).SerializeToString()
            return
    yield result(text("done"))


def tools(kind):
    match kind:
        case "schemas":
            huge = {"type": "object", "properties": {"a": {"description": "x" * MIB}}}
            half = '{"type": "object", "properties": {"\\ud800": {"description": "\\udfff\\u0000"}}}'
            long = half.replace('"\\ud800"', f'"{"y" * 20_000}": {{}}, "\\ud800"')
            given = {"huge": huge, "half": half, "long": long, "nul": '{"type": "object"}\0', "deep": "[" * 100_000}
            return [*(tool(name, schema) for name, schema in given.items()), tool()]
        case "names":
            names = ["", "\0", "a\nb", "<b>", "x" * MIB, "work", "Work", "WORK", "__", "get", "t.work"]
            return [tool(name, title_of(name), version="\0" * 200, description="\0d" * 9000) for name in names]
        case "a long list":
            schema = {"type": "object", "properties": {f"p{place}": {"type": "string"} for place in range(500)}}
            return [*(tool(f"tool_{place}", schema) for place in range(1000)), tool()]
        case "a huge list":
            return [tool(description="x" * 40 * MIB)]
    return [tool(name) for name in CALLS]


def title_of(name):
    return {"type": "object", "title": name[:10]}


async def describe(request, context):
    kind = kind_of(context)
    if kind == "no message":
        return b"\xff" * 100
    return tool_service_pb2.DescribeResponse(tools=tools(kind)).SerializeToString()


async def dispatched(request, context):
    async for answer in dispatch(tool_service_pb2.DispatchRequest.FromString(request).tool):
        yield answer


async def cancel(request, context):
    return b""


def kind_of(context):
    return dict(context.invocation_metadata()).get("list", "")


async def main():
    server = grpc.aio.server(options=[("grpc.max_send_message_length", -1)])
    handlers = {
        "Describe": grpc.unary_unary_rpc_method_handler(describe),
        "Dispatch": grpc.unary_stream_rpc_method_handler(dispatched),
        "Cancel": grpc.unary_unary_rpc_method_handler(cancel),
    }
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(NAME, handlers)])
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await LEAVING.wait()
    await server.stop(60)


asyncio.run(main())
