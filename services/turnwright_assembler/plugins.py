"""The API for plugins of the assembler, see docs/plugins.md. The names here are stable."""

from turnwright_values.types import Entry, State, Visibility

from turnwright_assembler.sections.plugin_sections import Item, PacketContext, SystemContext
from turnwright_assembler.sections.prompt_editor import PromptContext, PromptEditor
from turnwright_assembler.sections.registry import SectionRegistry as Registry
from turnwright_core.chat.message import Image, Role, Text
from turnwright_core.chat.prompt_edits import PromptMessage

__all__ = [
    "Entry",
    "Image",
    "Item",
    "PacketContext",
    "PromptContext",
    "PromptEditor",
    "PromptMessage",
    "Registry",
    "Role",
    "State",
    "SystemContext",
    "Text",
    "Visibility",
]
