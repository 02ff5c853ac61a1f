"""What plugins register with the assembler.

Source: rows RU041-RU044, RU145, RU148; architecture 4.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterable, Sequence
from typing import Final

from msgspec import Struct
from turnwright_values.types import Entry

from turnwright_assembler.domain.envelope import RESERVED
from turnwright_assembler.domain.projection import Projection, Views
from turnwright_assembler.sections import SECTIONS
from turnwright_assembler.sections.plugin_sections import (
    RENDER_VERSION,
    Item,
    PacketContext,
    PacketPlugins,
    PluginFunction,
    PluginPacketFilter,
    PluginSection,
    projection,
)
from turnwright_assembler.sections.prompt_editor import KINDS, PromptFunction, PromptPlugin
from turnwright_core.schemes import BY_NAME
from turnwright_grammar.tools import DEFAULT_TOOLS
from turnwright_kit.plugins import ASSEMBLY, NONE, PROMPT, Plugin, PluginRegistry, load_all
from turnwright_kit.plugins import SECTIONS as SECTION_PLUGINS

SYSTEM: Final = "assembly.system"
USER: Final = "assembly.user"

PLACE_MIN: Final = 30
"""The place of `<prompt>`, which is first: nothing stands before it."""
PLACE_END: Final = 175
"""The place of `<budget>`, which is last (C11)."""
PRIORITY_DEFAULT: Final = 10
"""Place of a filter of the system message when none is named (RU042)."""

TAG: Final = re.compile(r"[a-z][a-z0-9_]{0,31}")
TAKEN: Final = RESERVED | DEFAULT_TOOLS | set(BY_NAME) | {"file", "error", "item"}
"""Tags that a section of a plugin cannot have: they mean something else already."""


class _SystemFilter(Struct, frozen=True):
    priority: int
    part: PluginFunction


class _SchemeView(Struct, frozen=True):
    scheme: str
    view: Projection


class SectionRegistry(PluginRegistry):
    """Collects the sections, projections and filters that plugins bring to packets."""

    def section(
        self,
        tag: str,
        render: Callable[[PacketContext], Iterable[Item]],
        *,
        priority: int,
        schemes: Sequence[str] = (),
    ) -> None:
        """Show a section `<tag>` with the items that `render` returns; without items there is none.

        `priority` is its place, from 30 (after the prompt) to 174 (before the budget), see architecture 4. `schemes`
        are those whose entries it is given. Raises ValueError where the tag is taken, or the place is none.
        """
        if not TAG.fullmatch(tag):
            raise ValueError(f"{tag!r} is not a tag: write a lower-case letter, then letters, digits or _")
        owner = {one.tag: plugin for plugin, one in self.brought(PluginSection)}.get(tag)
        if owner or tag in TAKEN:
            raise ValueError(f"the tag <{tag}> is taken, by {owner or 'the runtime'}")
        self.bring(PluginSection(tag, _place(priority), self._part(f"<{tag}>", render), frozenset(schemes)))

    def projection(
        self,
        scheme: str,
        *,
        visible: Callable[[Entry], str] | None = None,
        summarized: Callable[[Entry], str] | None = None,
    ) -> None:
        """Say what is shown of the entries of a scheme, whole and condensed; None: what is shown of any other entry.

        Raises ValueError for a scheme that the runtime, or another plugin, shows.
        """
        owner = {one.scheme: plugin for plugin, one in self.brought(_SchemeView)}.get(scheme)
        if owner or scheme in BY_NAME:
            raise ValueError(f"entries of {scheme}:// are already shown by {owner or 'the runtime'}")
        seen, short = (
            self._part(f"{scheme}:// ({name})", view) if view else None
            for name, view in (("visible", visible), ("summarized", summarized))
        )
        self.bring(_SchemeView(scheme, projection(seen, short)))

    def filter(
        self,
        hook: object,
        function: Callable[..., object],
        priority: int = PRIORITY_DEFAULT,
        schemes: Sequence[str] = (),
    ) -> None:
        """Put a function into the chain `assembly.system` or `assembly.user`, lower priorities first (RU042).

        System: `(text, SystemContext) -> text`. User: `(pieces, PacketContext) -> pieces`, with all pieces of the
        message that stand before its place, which is from 30 to 174. Raises ValueError for another `assembly.*`.
        """
        name = hook if isinstance(hook, str) else str(getattr(hook, "name", ""))
        if name == SYSTEM:
            self.bring(_SystemFilter(int(priority), self._part(name, function)))
        elif name == USER:
            self.bring(PluginPacketFilter(self._part(name, function), _place(priority), frozenset(schemes)))
        elif name.startswith(ASSEMBLY):
            raise ValueError(f"there is no filter {name!r}; there are {SYSTEM} and {USER}")

    def prompt(self, function: PromptFunction, kinds: Sequence[str] = ("primary",)) -> None:
        """Edit the prompts of model calls: `function(editor, context)`, async or not, which returns nothing.

        `kinds` are the purposes of the calls: `primary`, `compaction`, `title`. Raises ValueError for another one.
        """
        if not callable(function):
            raise TypeError(f"prompt: {function!r} is not a function")
        if isinstance(kinds, str) or not kinds or not set(kinds) <= KINDS.keys():
            raise ValueError(f"prompt: {kinds!r} are not kinds of model calls: list some of {', '.join(KINDS)}")
        wanted = frozenset(KINDS[kind] for kind in kinds)
        self.bring(PromptPlugin(self.plugin, "prompt", function, PROMPT, kinds=wanted))

    @property
    def prompts(self) -> tuple[PromptPlugin, ...]:
        """What edits prompts, in the order of registration."""
        return tuple(one for _, one in self.brought(PromptPlugin))

    def _part(self, name: str, function: Callable[..., object]) -> PluginFunction:
        if not callable(function) or inspect.iscoroutinefunction(function):
            raise TypeError(f"{name}: {function!r} is not a plain function: packets are built without async code")
        return PluginFunction(self.plugin, name, function)

    def packet_plugins(self, plugins: Iterable[Plugin]) -> PacketPlugins:
        # What only edits prompts is no part of packets: its edits are recorded.
        parts = {plugin for plugin, one in self.brought(object) if not isinstance(one, PromptPlugin)}
        editing = {one.plugin for one in self.prompts} - parts
        named = sorted((one for one in plugins if one.name not in editing), key=lambda plugin: plugin.name)
        steps = [one for _, one in self.brought(object) if isinstance(one, PluginSection | PluginPacketFilter)]
        system = sorted((one for _, one in self.brought(_SystemFilter)), key=lambda one: one.priority)
        return PacketPlugins(
            steps=tuple(sorted((*SECTIONS, *steps), key=lambda step: step.priority)),
            system_filters=tuple(one.part for one in system),
            views=Views(
                {one.scheme: one.view for _, one in self.brought(_SchemeView)},
                RESERVED | {one.tag for _, one in self.brought(PluginSection)},
            ),
            schemes=frozenset().union(*(one.schemes for one in steps)),
            render_version=" ".join([RENDER_VERSION, *(f"{plugin.name}={plugin.version}" for plugin in named)]),
            plugins=tuple(plugin.name for plugin in named),
        )


def load_plugins(sections: str, prompt: str = NONE) -> tuple[PacketPlugins, tuple[PromptPlugin, ...]]:
    """What the enabled plugins bring; for the settings see `select_plugins`. Raises SettingsError."""
    registry, plugins = load_all(SectionRegistry(), ((SECTION_PLUGINS, sections), (PROMPT, prompt)))
    return registry.packet_plugins(plugins), registry.prompts


def _place(priority: int) -> int:
    if not PLACE_MIN <= int(priority) < PLACE_END:
        raise ValueError(f"{priority} is not a priority: use {PLACE_MIN} (after the prompt) to {PLACE_END - 1}")
    return int(priority)
