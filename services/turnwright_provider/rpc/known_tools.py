"""The tools of calls, checked, and the lists of them that later calls name by their digest."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Sequence
from typing import Final

from turnwright_values.provider import GenerateRequest, Tool

from turnwright_core.checks import check_bytes, check_count, invalid
from turnwright_core.errors import Reason, fault
from turnwright_core.json_text import JsonObject, parse_json
from turnwright_core.model_calls import tools_digest
from turnwright_provider.domain.model_call import ToolList, ToolSpec

TOOLS_MAX: Final = 128
SCHEMA_BYTES_MAX: Final = 64 * 1024

LISTS_MAX: Final = 64
"""Lists that are kept."""

LISTS_CHARS_MAX: Final = 8 * 1024 * 1024
"""Texts of all lists that are kept, in code points, unless one alone has more."""

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


class KnownTools:
    """The lists that calls have brought with their digests; those used last are kept.

    Whoever names a digest gets its list, whatever project is behind the call. But only services call, no list is kept
    under another digest than its own, and a digest is no easier to guess than the list.
    """

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[ToolList, int]] = OrderedDict()
        self._chars = 0

    def of(self, request: GenerateRequest) -> ToolList:
        """The tools of a call. Raises TOOLS_UNKNOWN, and InvalidError for a bad one or another digest than theirs."""
        digest = request.tools_digest
        if not digest:
            return checked_tools(request.tools)
        if request.tools and tools_digest(request.tools) != digest:
            raise invalid("tools_digest", "It is not that of `tools`: make it as its comment says, or leave it out.")
        if digest in self._kept:
            self._kept.move_to_end(digest)
            return self._kept[digest][0]
        if not request.tools:
            message = "The provider keeps no list of tools of this digest: repeat the call with `tools`."
            raise fault(Reason.TOOLS_UNKNOWN, message, digest=digest)
        found = checked_tools(request.tools)
        self._keep(digest, found, sum(len(one.description) + len(one.parameters) for one in request.tools))
        return found

    def _keep(self, digest: str, tools: ToolList, chars: int) -> None:
        self._kept[digest] = tools, chars
        self._chars += chars
        while len(self._kept) > LISTS_MAX or (self._chars > LISTS_CHARS_MAX and len(self._kept) > 1):
            _, (_, freed) = self._kept.popitem(last=False)
            self._chars -= freed


def checked_tools(given: Sequence[Tool]) -> ToolList:
    check_count("tools", len(given), TOOLS_MAX)
    tools: dict[str, ToolSpec] = {}
    for index, tool in enumerate(given):
        field = f"tools[{index}]"
        check_name(f"{field}.name", tool.name)
        if tool.name in tools:
            raise invalid(f"{field}.name", f"Two tools have the name {tool.name}.")
        schema: JsonObject = {"type": "object", "properties": {}}
        if tool.parameters:
            schema = schema_in(f"{field}.parameters", tool.parameters)
            if schema.get("type", "object") != "object":
                raise invalid(f"{field}.parameters", "The schema of a tool's arguments must have the type `object`.")
        tools[tool.name] = ToolSpec(tool.name, tool.description, schema, tool.strict, tool.cache)
    return ToolList(tuple(tools.values()))


def check_name(field: str, name: str) -> None:
    if not _NAME.fullmatch(name):
        raise invalid(field, f"{name[:100]!r} is not a valid name: use 1 to 64 of A-Z a-z 0-9 _ and -.")


def schema_in(field: str, text: str) -> JsonObject:
    schema = object_in(field, text)
    kind = schema.get("type", "object")
    if not isinstance(kind, str | list) or not isinstance(schema.get("properties", {}), dict):
        raise invalid(field, "It is not a JSON Schema: `type` is a word and `properties` an object.")
    return schema


def object_in(field: str, text: str) -> JsonObject:
    check_bytes(field, text, SCHEMA_BYTES_MAX)
    try:
        value = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise invalid(field, f"It is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise invalid(field, "It must be a JSON object.")
    return value
