"""Tools of plugins: their base class, and the adapter between them and the pipeline.

A plugin's tool is carried out like a built-in one, by the same contract, within limits: each step has a deadline, the
store is accessed with plugin tier and for the current run only, and an answer that no record could hold counts as a
crash of the tool.
Source: architecture 6; rows RU029, RU121, RU126, RU157.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import CommandEffect, Entry, FileEffect, Mode, QuestionEffect, State, Tier

from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_core.limits import BODY_BYTES_MAX
from turnwright_core.schemes import Scheme
from turnwright_core.streams import PRODUCER
from turnwright_core.tools import PHASES
from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.domain.effects import CallEffect, Effect, EffectClass
from turnwright_executor.domain.toolset import Need, ToolDescriptor
from turnwright_executor.tools.contract import Context, Entries, Proposed, RefusedError
from turnwright_executor.tools.files import with_own_diffs
from turnwright_executor.tools.outside import OutsideTool
from turnwright_executor.tools.parameters import BODY, ToolParameter, schema_of
from turnwright_grammar.reply import Command
from turnwright_kit.plugin_calls import LateError, PluginCalls, PluginError

NAME: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
"""Valid names of tools, and so of their tags."""

DOC_CHARS_MAX: Final = 8192
"""Maximum length of a tool's documentation, in code points: it is in every packet."""

SCHEMA_BYTES_MAX: Final = 16 * 1024
"""Maximum size of the JSON Schema of a tool's arguments, in bytes: it is in every native model call."""

ANSWER_BYTES_MAX: Final = 64 * 1024
"""Maximum size of attributes, or of an effect's data, that a tool returns, in bytes of JSON."""

PHASES_OPEN: Final = tuple(phase for phase, _ in PHASES if phase != "communicate")
"""Phases open to plugins' tools; the last part of a reply is the runtime's own."""

KEPT: Final = frozenset({"tool", "target", PRODUCER})
"""Attributes of a record that only the runtime sets: those shown in its tag, and the producer of its output."""

_WRITERS: Final = {Tier.UNSPECIFIED: Tier.PLUGIN, Tier.PLUGIN: Tier.PLUGIN, Tier.MODEL: Tier.MODEL}


class PluginTool:
    """A tool. Subclass it, set its attributes, and register an instance with `registry.tool(...)`.

    The attributes are read once, when it is registered. `prepare` and `perform` may be plain functions as well: a plain
    one is called in a thread, so it may block.
    """

    name: str = ""
    """Its tag: a lower-case letter, then letters, digits and `_`, at most 32 characters. Must be unique."""
    doc: str = ""
    """Documentation for the model, at most 8,192 characters: `## <name .../> - what it does`, examples, bullets."""
    effect_class: EffectClass = EffectClass.PURE
    """What happens to an interrupted command of this tool."""
    needs: frozenset[Need] = frozenset()
    """Its requirements; a loop that lacks one does not offer the tool."""
    target: str = ""
    """The attribute with a command's target; required in each command, one line, and part of the record's path."""
    phase: str = "act"
    """Its place in the list of tools: `gather`, `reason` or `act`."""
    parameters: JsonMapping | None = None
    """JSON Schema of the arguments of native calls, an object's; at most 16 KiB. Each of them becomes an
    attribute, `body` or `content` the body. None: the `target`, which is required, and a body, both texts."""
    schemes: tuple[Scheme, ...] = ()
    """Schemes of entries that it brings along; they are registered with the store when the executor starts."""

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Settle the command, or propose an effect. Has no effect outside the store."""
        raise NotImplementedError

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        """Carry out an accepted effect of `prepare`. May be called again after a crash unless OUTSIDE."""
        return failed("conflict:409", f"<{command.name}> proposes nothing, so there is nothing to carry out.")


def check_tool(tool: PluginTool) -> None:
    """Raises ValueError, or TypeError, for a tool that cannot be offered."""
    if not isinstance(tool, PluginTool):
        raise TypeError(f"{tool!r} is not a PluginTool")
    if not NAME.fullmatch(tool.name):
        raise ValueError(f"{tool.name!r} is not a tool name: write a lower-case letter, then letters, digits or _")
    if not tool.doc.strip() or len(tool.doc) > DOC_CHARS_MAX:
        raise ValueError(f"<{tool.name}> needs a documentation for the model, of at most {DOC_CHARS_MAX} characters")
    if tool.phase not in PHASES_OPEN:
        raise ValueError(f"<{tool.name}> has the phase {tool.phase!r}; choose from {', '.join(PHASES_OPEN)}")
    if not isinstance(tool.effect_class, EffectClass) or not all(isinstance(need, Need) for need in tool.needs):
        raise TypeError(f"<{tool.name}> has an unknown effect_class or need")

    if tool.parameters is not None:
        _check_schema(tool)


def _check_schema(tool: PluginTool) -> None:
    schema = tool.parameters
    if not isinstance(schema, Mapping) or schema.get("type") != "object":
        raise TypeError(f"<{tool.name}> needs a JSON Schema of an object for its parameters")
    if len(json.dumps(dict(schema), ensure_ascii=False, allow_nan=False).encode()) > SCHEMA_BYTES_MAX:
        raise ValueError(f"the parameters of <{tool.name}> have more than {SCHEMA_BYTES_MAX} bytes as JSON")


def _default_schema(tool: PluginTool) -> JsonObject:
    target = [ToolParameter(tool.target, "What it is about.", required=True)] if tool.target else []
    return schema_of([*target, ToolParameter(BODY, "The body.")])


class PluginEntries:
    """The store for plugins: the entries of one run, written with the rights of the tier `plugin`."""

    def __init__(self, entries: Entries) -> None:
        self._entries = entries

    async def get(self, paths: Sequence[str]) -> list[Entry]:
        return await self._entries.get(paths)

    async def find(
        self, pattern: str, body_pattern: str = "", *, limit: int = 1000, bodies: bool = True, files_only: bool = False
    ) -> list[Entry]:
        return await self._entries.find(pattern, body_pattern, limit=limit, bodies=bodies, files_only=files_only)

    def scheme(self, name: str) -> Scheme:
        return self._entries.scheme(name)

    async def write(self, writes: Sequence[EntryWrite]) -> None:
        """See Entries. Raises ValueError for a tier above plugin, TurnwrightError for what the store refuses."""
        await self._entries.write([as_plugin(write) for write in writes])


def as_plugin(write: EntryWrite) -> EntryWrite:
    """The write with the tier of a plugin, in the current turn. Raises ValueError for a higher tier."""
    if write.writer not in _WRITERS:
        raise ValueError(f"{write.path}: a plugin writes as plugin or as model, not as {write.writer.name}")
    change = write.change
    if isinstance(change, SetEntry) and change.body is not None:
        change.body.encode()
    return replace(write, writer=_WRITERS[write.writer], turn=None, loop=None)


class PluginToolAdapter(OutsideTool):
    """Adapter of a plugin's tool for the pipeline; implements Tool."""

    def __init__(self, tool: PluginTool, plugin: str, calls: PluginCalls) -> None:
        self.name = tool.name
        self.effect_class = tool.effect_class
        self.plugin = plugin
        self.doc = tool.doc.strip()
        self.descriptor = ToolDescriptor(tool.name, tool.phase, tool.needs, tool.target)
        self.schemes = tool.schemes
        self._schema = _default_schema(tool) if tool.parameters is None else dict(tool.parameters)
        self.is_checked = tool.parameters is not None
        self._tool = tool
        self._calls = calls

    @property
    def schema(self) -> JsonObject:
        return dict(self._schema)

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """The tool's answer in storable form. Raises what the tool raised."""
        answer = await self._answer(self._tool.prepare, command, context)
        if not isinstance(answer, Proposed):
            return _done(answer)
        if refusal := _refused_in_ask_mode(answer, context):
            return refusal
        proposed = _proposed(answer)
        if not isinstance(proposed.effect, FileEffect):
            return proposed
        try:
            return replace(proposed, effect=await with_own_diffs(proposed.effect, command, context))
        except RefusedError as error:
            return error.done

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        """The result of the effect. Raises what the tool raised."""
        return _done(await self._answer(self._tool.perform, effect, command, context))

    def _scoped(self, context: Context) -> Context:
        """The context for a plugin's tool: the store at its tier, and its own plans (AP42)."""
        return replace(context, entries=PluginEntries(context.entries), plans=context.plans.scoped(self.name))

    async def _answer(self, step: Callable[..., object], *given: Any) -> Any:
        *others, context = given
        try:
            return await self._calls.call(step, *others, self._scoped(context))
        except PluginError as error:
            if isinstance(error.fault, LateError):
                text = f"The tool {self.name} gave {error.fault}; what it had begun may have happened all the same."
                return failed("timeout:504", text)
            raise (error.fault if isinstance(error.fault, Exception) else error) from None


def _refused_in_ask_mode(answer: Proposed, context: Context) -> Done | None:
    is_harmless = isinstance(answer.effect, QuestionEffect) or (
        isinstance(answer.effect, CommandEffect) and answer.effect.read_only
    )
    if context.mode is not Mode.ASK or is_harmless:
        return None
    return failed("permission:403", "Ask mode is read-only: nothing outside of entries is changed. Answer in <update>.")


def _proposed(answer: Proposed) -> Proposed:
    """Raises ValueError or TypeError for an invalid proposal."""
    if not isinstance(answer.effect, FileEffect | CommandEffect | QuestionEffect | CallEffect):
        raise TypeError(f"{type(answer.effect).__name__} is not an effect")
    if isinstance(answer.effect, CallEffect):
        _check_json(answer.effect.data, "the data of an effect")
    _check_answer(answer.body, answer.attributes)
    return answer


def _done(answer: object) -> Done:
    """Raises ValueError or TypeError for what a record cannot hold."""
    if not isinstance(answer, Done):
        raise TypeError(f"it returned {type(answer).__name__}, neither Done nor Proposed")
    if not isinstance(answer.state, State) or not answer.state.is_settled:
        raise ValueError("the state of a Done must be resolved, failed or cancelled")
    if answer.outcome and not answer.outcome.rpartition(":")[0]:
        raise ValueError(f"an outcome must be `word:code`, such as not_found:404; it is {answer.outcome!r}")
    _check_answer(answer.body, answer.attributes)
    return replace(answer, writes=tuple(as_plugin(write) for write in answer.writes))


def _check_answer(body: str, attributes: JsonMapping) -> None:
    if len(body.encode()) > BODY_BYTES_MAX:
        raise ValueError(f"a record holds at most {BODY_BYTES_MAX} bytes: write more into an entry of its own")
    if taken := KEPT & attributes.keys():
        raise ValueError(f"the runtime keeps the attributes {', '.join(sorted(taken))} of a record itself")
    _check_json(attributes, "attributes")


def _check_json(value: JsonMapping, what: str) -> None:
    size = len(json.dumps(dict(value), ensure_ascii=False, allow_nan=False).encode())
    if size > ANSWER_BYTES_MAX:
        raise ValueError(f"{what} have at most {ANSWER_BYTES_MAX} bytes as JSON, and these have {size}")
