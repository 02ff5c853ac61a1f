"""Tool definitions for native calls: name, description and JSON Schema of the arguments.

The description is the tool's documentation without the examples of tags: its purpose and its bullets. Source: C41, C44.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_executor.domain.tool_spec import native_name
from turnwright_executor.tools.contract import Tool
from turnwright_executor.tools.outside import OutsideTool
from turnwright_executor.tools.parameters import BODY_NAMES, schema_of
from turnwright_grammar.reply import Command

_HEADING: Final = re.compile(r"##\s+<.*>\s+-\s+(.+)")
_TAG: Final = re.compile(r'<([a-z][a-z0-9_]*)((?:\s+[a-z_]+(?:="[^"<>]*")?)*)\s*/?>')
_ATTRIBUTE: Final = re.compile(r'([a-z_]+)(?:="([^"]*)")?')


def native_tools(tools: Mapping[str, Tool], docs: Mapping[str, str]) -> list[JsonObject]:
    """The definitions of the tools that have documentation, in its order."""
    return [
        {"name": native_name(name), "description": _described(tools[name], doc), "parameters": schema(tools[name])}
        for name, doc in docs.items()
    ]


def schema(tool: Tool) -> JsonObject:
    return tool.schema if isinstance(tool, OutsideTool) else schema_of(tool.parameters)


def _described(tool: Tool, doc: str) -> str:
    own = tool.native_text if isinstance(tool, OutsideTool) else ""
    return own or description_of(doc)


def description_of(doc: str) -> str:
    """A tool's documentation without examples, which are tags; calls that it mentions are written as native calls."""
    lines = doc.splitlines()
    heading = _HEADING.match(lines[0]) if lines else None
    bullets = [line for line in lines if line.startswith("* ")]
    if heading is None or not bullets:
        return _TAG.sub(_called, doc)
    return _TAG.sub(_called, "\n".join([heading[1], *bullets]))


def _called(tag: re.Match[str]) -> str:
    given = [f'{name}="{value}"' if value else f"{name}=true" for name, value in _ATTRIBUTE.findall(tag[2])]
    return f"{tag[1]}({', '.join(given)})" if given else tag[1]


def missing_argument(command: Command, wanted: JsonMapping) -> str:
    """A sentence about a required argument that a command lacks, with what its tool takes; empty if it has all."""
    required = wanted.get("required", ())
    for name in required:
        given = command.attributes.get(name) or (command.body if name in BODY_NAMES else "")
        if not given.strip():
            taken = (
                f"`{each}`{' (required)' if each in required else ''}: {about.get('description', 'see Discover.')}"
                for each, about in wanted.get("properties", {}).items()
            )
            return f"{command.name} needs `{name}`. It takes {' '.join(taken)}"
    return ""
