"""What plugins of the assembler import; docs/plugins.md tells how. The names here stay as they are."""

from turnwright_assembler.sections.plugged import Item, PacketContext, SystemContext
from turnwright_assembler.sections.registry import SectionRegistry as Registry
from turnwright_core.entries import Entry, State, Visibility

__all__ = ["Entry", "Item", "PacketContext", "Registry", "State", "SystemContext", "Visibility"]
