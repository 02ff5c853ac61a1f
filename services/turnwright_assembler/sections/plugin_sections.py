"""Plugins' contributions to packets: sections, projections, filters.

A plugin's function is pure: from rows to text. Its result is cached while its input is the same. Its deadline is that
of the packet's step (app.step_runner). A function that raises or returns a wrong type fails the packet
(PLUGIN_FAILED), because what it should show or hide must not be ignored. The results of sections and projections are
wrapped and fenced like any other content; a filter's result is the message itself, and the plugin is responsible for
it. Source: architecture 4; rows RU042-RU044, RU145, RU148.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright_values.types import Entry

from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.domain.envelope import element, fenced, tag_name, well_formed
from turnwright_assembler.domain.projection import OWN_VIEWS, Projection, Views
from turnwright_assembler.sections import SECTIONS
from turnwright_assembler.sections.contract import PacketDraft, Section, block_section
from turnwright_core import __version__
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.json_text import JsonMapping
from turnwright_kit.logs import get_logger
from turnwright_kit.plugin_calls import PluginError, call_sync
from turnwright_kit.plugins import SECTIONS as SECTION_PLUGINS
from turnwright_kit.plugins import PluginKind

_log = get_logger("plugins")


class Item(Struct, frozen=True):
    """One item of a section: a tag with attributes, around a body between sentinels.

    `path` is shown and names the sentinels; names and values are escaped.
    """

    path: str
    body: str = ""
    tag: str = "item"
    attributes: Mapping[str, str | int] = field(default_factory=dict)


class PacketContext(Struct, frozen=True):
    """The input of a section or a filter of the user message. It has no figures: these are settled last."""

    loop: int
    loop_start_turn: int
    """The loop's first turn, from the path of its prompt; 0 if that is archived."""
    mode: str
    """`ask` or `act`; empty if the prompt is archived."""
    entries: tuple[Entry, ...]
    """Visible and summarized entries of the schemes that it uses, in the order in which the run saw them."""


class SystemContext(Struct, frozen=True):
    """The input of a filter of the system message."""

    tools: tuple[str, ...]
    """Names of the offered tools, in order."""
    persona: str | None
    """The run's own persona; None: the default."""


class PluginFunction(Struct, frozen=True):
    """A plugin's function and its purpose: `<weather>`, `assembly.user`, `prompt`."""

    plugin: str
    name: str
    function: Callable[..., Any]
    of_kind: PluginKind = SECTION_PLUGINS

    def guarded(self, work: Callable[..., object], *given: object) -> Any:
        """Run work that calls the function. Raises PLUGIN_FAILED; the cause is only logged."""
        _here.busy.append(self)
        try:
            return call_sync(work, *given)
        except PluginError as error:
            raise self.failure(f"failed in {self.name}", error.fault) from None
        finally:
            _here.busy.pop()

    def failure(self, what: str, error: BaseException) -> TurnwrightError:
        """The error for a failure of the plugin, which is only logged."""
        error_id = secrets.token_hex(8)
        _log.error("plugin_failed", plugin=self.plugin, part=self.name, error_id=error_id, exc_info=error)
        message = (
            f"The plugin {self.plugin} {what} (error {error_id}): nothing is sent without it. "
            f"Repair it, or leave it out with {self.of_kind.setting}."
        )
        return fault(Reason.PLUGIN_FAILED, message, plugin=self.plugin, part=self.name, error_id=error_id)


class _CallStack(threading.local):
    """The plugin parts being called in this thread, the innermost last."""

    def __init__(self) -> None:
        self.busy: list[PluginFunction] = []


_here = _CallStack()


def watched(busy: list[PluginFunction], work: Callable[..., object], *given: object) -> object:
    """Run work; meanwhile the list tells other threads which plugin part is being called."""
    _here.busy = busy
    return work(*given)


class PluginSection(Section, frozen=True):
    """A section of a plugin."""

    part: PluginFunction
    schemes: frozenset[str]

    def render(self, draft: PacketDraft) -> Sequence[str]:
        """Its items, cached while its input is the same. Raises PLUGIN_FAILED."""
        context = context_of(draft, self.schemes)
        before, pieces = draft.kept.get(self.tag, (None, ()))
        if before != context:
            pieces = self.part.guarded(self._pieces, context)
            draft.kept[self.tag] = (context, pieces)
        return tuple(pieces)

    def _pieces(self, context: PacketContext) -> tuple[str, ...]:
        return tuple(block_section(self.tag, map(_piece, self.part.function(context))))


class PluginPacketFilter(Struct, frozen=True):
    """A filter of the user message: it gets all pieces before its place, and returns their replacement."""

    part: PluginFunction
    priority: int
    schemes: frozenset[str]

    def changed(self, pieces: Sequence[str], draft: PacketDraft) -> list[str]:
        """The pieces from now on. Raises PLUGIN_FAILED."""
        return list(self.part.guarded(self._changed, tuple(pieces), context_of(draft, self.schemes)))

    def _changed(self, pieces: tuple[str, ...], context: PacketContext) -> tuple[str, ...]:
        changed = self.part.function(pieces, context)
        if isinstance(changed, str):
            raise TypeError("it returned one string instead of pieces")
        return tuple(map(_text, changed))


RENDER_VERSION: Final = f"{__version__}+2"
"""The release, and a number that is raised whenever the same entries are shown in other words."""


class PacketPlugins(Struct, frozen=True):
    """All that plugins bring to packets."""

    steps: tuple[Section | PluginPacketFilter, ...] = SECTIONS
    """Sections and filters of the user message, in order."""
    system_filters: tuple[PluginFunction, ...] = ()
    views: Views = OWN_VIEWS
    schemes: frozenset[str] = frozenset()
    """Schemes whose entries some plugin is given."""
    render_version: str = RENDER_VERSION
    """What packets are made by: RENDER_VERSION, and each plugin with its version. Only equal ones give equal bytes."""
    plugins: tuple[str, ...] = ()
    """Names of the plugins."""

    def system(self, text: str, attributes: JsonMapping) -> str:
        """The system message after its filters. Raises PLUGIN_FAILED."""
        if not self.system_filters:
            return text
        tools, persona = attributes.get("tools"), attributes.get("persona")
        named = tuple(map(str, tools)) if isinstance(tools, list) else ()
        context = SystemContext(named, persona if isinstance(persona, str) else None)
        for part in self.system_filters:
            text = part.guarded(lambda part=part, text=text: _text(part.function(text, context)))
        return text


NOTHING: Final = PacketPlugins()
"""Without plugins."""


class RunPacketPlugins(Struct, frozen=True):
    """Plugins' contributions to the packets of one run."""

    packet_plugins: PacketPlugins = NOTHING
    entries: tuple[Entry, ...] = ()
    """Entries of the schemes that plugins use, in the order of blocks."""
    kept: dict[str, object] = field(default_factory=dict)
    """See Draft."""

    def shown(self, blocks: Iterable[Block]) -> tuple[Entry, ...]:
        """The entries as a packet of these blocks shows them, with the demotions of the ladder."""
        if not self.entries:
            return ()
        seen = {block.path: block.visibility for block in blocks if block.scheme in self.packet_plugins.schemes}
        wanted = ((entry, seen.get(entry.path, entry.visibility)) for entry in self.entries)
        return tuple(
            entry if entry.visibility is visibility else replace(entry, visibility=visibility)
            for entry, visibility in wanted
        )


NO_ADDITIONS: Final = RunPacketPlugins()
"""Without plugins."""


def context_of(draft: PacketDraft, schemes: frozenset[str]) -> PacketContext:
    prompt = draft.prompt
    number = prompt.path.partition("://")[2] if prompt else ""
    return PacketContext(
        loop=draft.loop,
        loop_start_turn=int(number) if number.isascii() and number.isdecimal() else 0,
        mode=prompt.prompt.mode if prompt and prompt.prompt else "",
        entries=tuple(entry for entry in draft.entries if entry.scheme in schemes),
    )


def projection(visible: PluginFunction | None, summarized: PluginFunction | None) -> Projection:
    """The views of a scheme's entries, guarded."""
    return Projection(_view(visible) if visible else None, _view(summarized) if summarized else None)


def _view(part: PluginFunction) -> Callable[[Entry], str]:
    def view(entry: Entry) -> str:
        shown: str = part.guarded(lambda: _text(part.function(entry)))
        return shown

    return view


def _text(value: object) -> str:
    """The value if it is text, as UTF-8 can hold it. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"it returned {type(value).__name__} instead of str")
    return well_formed(value)


def _piece(item: object) -> str:
    """Raises TypeError, AttributeError for what is no item."""
    if not isinstance(item, Item):
        raise TypeError(f"it returned {type(item).__name__} instead of Item")
    shown: dict[str, str | int] = {"path": _text(item.path)}
    shown |= {tag_name(name, ()): value for name, value in item.attributes.items()}
    return element(tag_name(item.tag), shown, fenced(item.path, _text(item.body))) + "\n"
