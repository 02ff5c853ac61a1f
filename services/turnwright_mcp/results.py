"""What MCP servers say, in the words of the contract of tools: their tools and what calls come to."""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import mcp_types as types
from turnwright.tool.v1 import result_pb2, tool_service_pb2
from turnwright.types.v1.command_record_pb2 import (
    EFFECT_CLASS_IDEMPOTENT,
    EFFECT_CLASS_OUTSIDE,
    EFFECT_CLASS_PURE,
)

from turnwright_core.text import cut_bytes
from turnwright_mcp.registration import McpRegistration, ToolEffect

SCHEMA_BYTES_MAX: Final = 256 * 1024
"""Schemas above it are refused by executors, in bytes."""
SCHEMAS_BYTES_MAX: Final = 3 * 1024 * 1024
"""All schemas of a server together, in bytes: they are in one message."""
TEXT_CHARS_MAX: Final = 8192
PARTS_MAX: Final = 64
RESULT_BYTES_MAX: Final = 15 * 1024 * 1024
"""All parts of a result together, in bytes: they are in one message."""
IMAGE_TYPES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
FAILED: Final = 500
BAD_GATEWAY: Final = 502

_EFFECTS: Final = {
    ToolEffect.READ_ONLY: EFFECT_CLASS_PURE,
    ToolEffect.IDEMPOTENT: EFFECT_CLASS_IDEMPOTENT,
    ToolEffect.OUTSIDE: EFFECT_CLASS_OUTSIDE,
}


def tools_to_pb(tools: Sequence[types.Tool], registration: McpRegistration) -> list[tool_service_pb2.Tool]:
    """The tools of a server. Their schemas stay within one message."""
    left = SCHEMAS_BYTES_MAX
    found = []
    for tool in tools:
        schema = json.dumps(tool.input_schema, ensure_ascii=False)
        # One that is too long is refused by its length, so that it is told in lists.
        schema = schema[: SCHEMA_BYTES_MAX + 1]
        left -= len(schema.encode())
        if left < 0:
            break
        found.append(_tool(tool, schema, registration.effect_of(tool.name)))
    return found


def _tool(tool: types.Tool, schema: str, effect: ToolEffect) -> tool_service_pb2.Tool:
    hints = tool.annotations or types.ToolAnnotations()
    if effect is ToolEffect.HINTS:
        effect = _believed(hints)
    is_read_only = effect is ToolEffect.READ_ONLY
    return tool_service_pb2.Tool(
        name=tool.name,
        description=(tool.description or "")[:TEXT_CHARS_MAX],
        schema=schema,
        effect_class=_EFFECTS[effect],
        annotations=tool_service_pb2.ToolAnnotations(
            title=(tool.title or hints.title or "")[:128],
            read_only=is_read_only,
            destructive=not is_read_only and hints.destructive_hint is True,
            open_world=hints.open_world_hint is not False,
        ),
    )


def agent_to_pb(name: str, about: str) -> tool_service_pb2.Tool:
    """The one tool that an agent of another vendor is."""
    tag = f"{name}.delegate"
    how = f"Give a part of the work to the agent {name}, which has a model and tools of its own: <{tag}>[task]</{tag}>"
    prompt = {"type": "string", "minLength": 1, "description": "Its whole task: it knows nothing of yours."}
    schema = {"type": "object", "properties": {"prompt": prompt}, "required": ["prompt"], "additionalProperties": False}
    return tool_service_pb2.Tool(
        name="delegate",
        description=f"{how}\n{about}".strip()[:TEXT_CHARS_MAX],
        schema=json.dumps(schema),
        effect_class=EFFECT_CLASS_OUTSIDE,
        annotations=tool_service_pb2.ToolAnnotations(title=name, destructive=True, open_world=True),
    )


def _believed(hints: types.ToolAnnotations) -> ToolEffect:
    """What hints make of a tool. Without any it asks, and is never made again by itself."""
    if hints.read_only_hint is True:
        return ToolEffect.READ_ONLY
    return ToolEffect.IDEMPOTENT if hints.idempotent_hint is True else ToolEffect.OUTSIDE


def result_to_pb(result: types.CallToolResult) -> result_pb2.ToolResult:
    """The result of a call, within one message."""
    found = result_pb2.ToolResult(status=FAILED if result.is_error else 0)
    left, left_out = RESULT_BYTES_MAX, 0
    for whole in _parts(result):
        part = _cut(whole, left) if whole.ByteSize() > left else whole
        size = part.ByteSize()
        if size > left or len(found.parts) >= PARTS_MAX - 1:
            left_out += 1
            continue
        found.parts.append(part)
        left -= size
    if left_out:
        found.parts.append(
            result_pb2.ToolPart(text=f"({left_out} more parts of the result are left out: it is too long)")
        )
    return found


def failure(status: int, text: str) -> result_pb2.ToolResult:
    """A call that has failed."""
    return result_pb2.ToolResult(parts=[text_part(text[:4096])], status=status or FAILED)


def _cut(part: result_pb2.ToolPart, left: int) -> result_pb2.ToolPart:
    room = max(0, left - 1024)
    if part.HasField("entry"):
        part.entry.body = cut_bytes(part.entry.body, room) + "\n(the rest is left out)"
    elif part.HasField("text"):
        part.text = cut_bytes(part.text, room) + "\n(the rest is left out)"
    return part


def _parts(result: types.CallToolResult) -> Iterator[result_pb2.ToolPart]:
    structured = result.structured_content
    for block in result.content:
        if isinstance(block, types.TextContent) and structured is not None and _says(block.text, structured):
            continue
        yield _part(block)
    if structured is not None:
        yield result_pb2.ToolPart(structured=json.dumps(structured, ensure_ascii=False))


def _says(text: str, structured: object) -> bool:
    """Whether a text is the structured content over again, as servers send it for clients that read no other."""
    try:
        return bool(json.loads(text) == structured)
    except ValueError:
        return False


def _part(block: Any) -> result_pb2.ToolPart:
    match block:
        case types.TextContent():
            return text_part(block.text)
        case types.ImageContent():
            return _image(block.mime_type, block.data)
        case types.ResourceLink():
            about = f": {block.description}" if block.description else ""
            return text_part(f"{block.name} ({block.uri}){about}")
        case types.EmbeddedResource():
            return _resource(block.resource)
        case _:
            return text_part(f"(a part of the kind {getattr(block, 'type', 'unknown')} is left out)")


def text_part(text: str) -> result_pb2.ToolPart:
    # Half of a surrogate pair, which JSON may have, can stand in no message.
    return result_pb2.ToolPart(text=text.encode(errors="replace").decode())


def _image(mime_type: str, data: str) -> result_pb2.ToolPart:
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        content = b""
    if mime_type not in IMAGE_TYPES or not content:
        return text_part(f"(an image of the type {mime_type[:64]}, {len(content)} bytes, is left out)")
    return result_pb2.ToolPart(image=result_pb2.ToolImage(mime_type=mime_type, data=content))


def _resource(resource: Any) -> result_pb2.ToolPart:
    name = str(resource.uri)[:128]
    if isinstance(resource, types.TextResourceContents):
        body = resource.text.encode(errors="replace").decode()
        return result_pb2.ToolPart(entry=result_pb2.ToolEntry(name=name, body=body))
    mime_type = resource.mime_type or ""
    if mime_type in IMAGE_TYPES:
        return _image(mime_type, resource.blob)
    return text_part(f"({name}, {mime_type or 'of an unknown type'}, is left out: only texts and images are kept)")
