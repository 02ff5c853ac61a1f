"""The API for plugins of the assembler, see docs/plugins.md. The names here are stable."""

from turnwright_assembler.sections.plugin_sections import Item, PacketContext, SystemContext
from turnwright_assembler.sections.registry import SectionRegistry as Registry
from turnwright_core.entries import Entry, State, Visibility

__all__ = ["Entry", "Item", "PacketContext", "Registry", "State", "SystemContext", "Visibility"]
