"""search_tools and call_tool: for loops whose servers bring more tools than there is room for.

The names are in the text of search_tools; it answers with the text and the schema of what it finds. A model that
writes tags then writes the tag; one that calls natively calls call_tool, which becomes a command of the named tool
before it is recorded. Source: architecture 6; docs/adr/0081.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Mapping
from typing import Final

from turnwright_core.json_text import JsonObject
from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.domain.toolset import ToolDescriptor
from turnwright_executor.tools.contract import Context, Proposed
from turnwright_executor.tools.outside import OutsideTool
from turnwright_grammar.reply import Command

SEARCH_TOOLS: Final = "search_tools"
CALL_TOOL: Final = "call_tool"

FOUND_MAX: Final = 8
"""Tools that one search shows in full."""

ANSWER_CHARS_MAX: Final = 16 * 1024
NAMES_CHARS_MAX: Final = 6000
"""Length of the list of names, in code points; of what does not fit the number is told."""

_WORD: Final = re.compile(r"[^\W_]+")


class SearchTools(OutsideTool):
    """Finds tools of servers by words; implements Tool."""

    name = SEARCH_TOOLS
    effect_class = EffectClass.PURE

    def __init__(self, tools: Mapping[str, OutsideTool], *, is_native: bool) -> None:
        self._tools = tools
        self._is_native = is_native
        self.descriptor = ToolDescriptor(SEARCH_TOOLS, "gather", frozenset(), "")
        how = (
            "Then call call_tool with the name and the arguments." if is_native else "Then write the tag that it shows."
        )
        self.doc = (
            f"## <search_tools>[words or a name]</search_tools> - show more tools\n\n"
            f"<search_tools>{next(iter(tools), 'issue')}</search_tools>\n"
            f"* There are {len(tools)} more tools, by their names: {_names(tools)}\n"
            f"* YOU MUST search for a tool before its first call: you are shown what it does and its arguments. {how}"
        )

    @property
    def schema(self) -> JsonObject:
        query = {"type": "string", "description": "Words that describe what you need, or the name of a tool."}
        return {"type": "object", "properties": {"query": query}, "required": ["query"]}

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        query = (command.attributes.get("query") or command.attributes.get("path") or command.body).strip()
        if not query:
            return failed("invalid:400", "<search_tools> needs words: <search_tools>create an issue</search_tools>.")
        found = self._found(query)
        if not found:
            return failed("not_found:404", f"No tool has any of these words. The tools are {_names(self._tools)}")
        return Done("\n\n".join(map(self._shown, found))[:ANSWER_CHARS_MAX])

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        return failed("conflict:409", "<search_tools> proposes nothing.")

    def _found(self, query: str) -> list[OutsideTool]:
        if query in self._tools:
            return [self._tools[query]]
        words = set(map(str.lower, _WORD.findall(query)))
        scored = [(_score(words, tool), name) for name, tool in self._tools.items()]
        best = sorted((one for one in scored if one[0]), key=lambda one: -one[0])[:FOUND_MAX]
        return [self._tools[name] for _, name in best]

    def _shown(self, tool: OutsideTool) -> str:
        if not self._is_native:
            return tool.doc
        return f"{tool.name}: {tool.native_text}\nArguments: {json.dumps(tool.schema, ensure_ascii=False)}"


class CallTool(OutsideTool):
    """Calls a tool by its name, for vendors that allow calls of declared tools only; never dispatched itself."""

    name = CALL_TOOL
    effect_class = EffectClass.PURE
    doc = (
        '## <call_tool name="server.tool"/> - call a tool that search_tools has shown\n\n* Give arguments as an object.'
    )
    descriptor = ToolDescriptor(CALL_TOOL, "act", frozenset(), "")

    @property
    def schema(self) -> JsonObject:
        return {
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The name of the tool, as search_tools shows it."},
                "arguments": {"type": "object", "description": "Its arguments."},
            },
            "required": ["name", "arguments"],
        }

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        return failed("not_found:404", "There is no tool of this name: look for one with search_tools.")

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        return failed("conflict:409", "<call_tool> proposes nothing.")


def called_tool(command: Command, tools: Collection[str]) -> Command:
    """The command that a call of call_tool stands for; any other as it is."""
    name = command.attributes.get("name", "").strip()
    if command.name != CALL_TOOL or name not in tools or CALL_TOOL not in tools:
        return command
    # Imported with the first such call: an executor is ready for work long before there is one.
    from turnwright_grammar.native import commands_from_call  # noqa: PLC0415

    commands, _ = commands_from_call(name, command.attributes.get("arguments", command.body), frozenset(tools))
    return commands[0]


def _score(words: set[str], tool: OutsideTool) -> int:
    name = set(map(str.lower, _WORD.findall(tool.name)))
    about = set(map(str.lower, _WORD.findall(tool.native_text)))
    return 4 * len(words & name) + len(words & about)


def _names(tools: Collection[str]) -> str:
    shown: list[str] = []
    room = NAMES_CHARS_MAX
    for name in tools:
        room -= len(name) + 2
        if room < 0:
            return f"{', '.join(shown)}, and {len(tools) - len(shown)} more."
        shown.append(name)
    return f"{', '.join(shown)}."
