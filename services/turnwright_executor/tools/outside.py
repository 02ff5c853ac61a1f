"""Tools that are not the runtime's own: of plugins, of clients, of servers. One base, so one path for all of them.

They bring their text and a JSON Schema of their arguments. A command is held against the schema before it is recorded:
what does not match is recorded as failed, and never dispatched. Source: architecture 6; docs/adr/0081.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

from turnwright_core.json_schema import value_problem
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_executor.domain.command_record import Done
from turnwright_executor.domain.effects import Effect, EffectClass
from turnwright_executor.domain.toolset import ToolDescriptor
from turnwright_executor.tools.contract import Context, Proposed
from turnwright_executor.tools.parameters import BODY, BODY_NAMES, ToolParameter
from turnwright_grammar.reply import Command


class OutsideTool:
    """The base of such a tool; implements Tool."""

    name: str
    effect_class: EffectClass = EffectClass.OUTSIDE
    doc: str
    """What models read about it."""
    descriptor: ToolDescriptor
    is_checked: bool = False
    """Whether commands are held against its schema."""

    @property
    def parameters(self) -> Sequence[ToolParameter]:
        return ()

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        raise NotImplementedError

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done | Proposed:
        raise NotImplementedError

    @property
    def schema(self) -> JsonObject:
        raise NotImplementedError

    @property
    def schema_text(self) -> str:
        """What its arguments are checked against; empty: any."""
        return json.dumps(self.schema, sort_keys=True) if self.is_checked else ""

    @property
    def native_text(self) -> str:
        """What vendors are sent as its description; empty: `doc`, without examples."""
        return ""

    def problem_with(self, command: Command) -> str:
        """What is wrong with the arguments of a command, and where; empty if they match. Bounded in time."""
        text = self.schema_text
        if not text:
            return ""
        problem = value_problem(text, arguments_of(command, self.schema), "arguments")
        return f"<{self.name}> was not called. {problem}" if problem else ""


def arguments_of(command: Command, schema: JsonMapping) -> JsonObject:
    """The arguments of a command as JSON, by the types that the schema gives them: attributes of tags are text."""
    given = schema.get("properties")
    properties: Mapping[str, object] = given if isinstance(given, dict) else {}
    written = command.body.strip()
    if not command.attributes and written.startswith("{") and properties.keys().isdisjoint(BODY_NAMES):
        whole = _parsed(written)
        if isinstance(whole, dict):
            return whole
    found = {
        name: _typed(text, properties.get(name), is_json=name in command.json_names)
        for name, text in command.attributes.items()
    }
    if command.body:
        name = _body_name(command, properties, schema)
        found[name] = _typed(command.body, properties.get(name), is_json=BODY in command.json_names)
    return found


def _body_name(command: Command, properties: Mapping[str, object], schema: JsonMapping) -> str:
    """The argument that a body stands for: the only one that is missing, if none has its name."""
    if named := command.body_name or next((name for name in BODY_NAMES if name in properties), ""):
        return named
    required = schema.get("required")
    for names in (required if isinstance(required, list) else [], [*properties]):
        missing = [name for name in names if isinstance(name, str) and name not in command.attributes]
        if len(missing) == 1:
            return missing[0]
    return BODY


def _typed(text: str, about: object, *, is_json: bool) -> object:
    types = about.get("type") if isinstance(about, dict) else None
    wanted = {types} if isinstance(types, str) else set(types) if isinstance(types, list) else set()
    is_untyped = not wanted and text.strip().startswith(("{", "["))
    if is_json or is_untyped or (wanted and "string" not in wanted):
        return _parsed(text, text)
    return text


def _parsed(text: str, otherwise: object = None) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return otherwise
