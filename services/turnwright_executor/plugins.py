"""What plugins that bring tools import; docs/plugins.md tells how. The names here stay as they are.

What plugins that observe or filter need besides is in `turnwright_executor.hooks`.
"""

from turnwright_values.store import AppendEntry, CopyEntry, EntryWrite, MoveEntry, RemoveEntry, SetEntry
from turnwright_values.types import (
    CommandEffect,
    Entry,
    FileEdit,
    FileEffect,
    Mode,
    PlanKind,
    QuestionEffect,
    State,
    Tier,
    Visibility,
)

from turnwright_core.plans.plan import Plan
from turnwright_core.schemes import Scheme
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.command_record import Done, failed
from turnwright_executor.domain.effects import CallEffect, Effect, EffectClass
from turnwright_executor.domain.toolset import Need
from turnwright_executor.hooks.registry import Registry
from turnwright_executor.tools.contract import Context, Entries, Proposed
from turnwright_executor.tools.plugin_tools import PluginTool
from turnwright_grammar.reply import Command

__all__ = [
    "AppendEntry",
    "CallEffect",
    "Command",
    "CommandEffect",
    "Context",
    "CopyEntry",
    "Done",
    "Effect",
    "EffectClass",
    "Entries",
    "Entry",
    "EntryWrite",
    "FileEdit",
    "FileEffect",
    "Mode",
    "MoveEntry",
    "Need",
    "Plan",
    "PlanKind",
    "PluginTool",
    "Proposed",
    "QuestionEffect",
    "Registry",
    "RemoveEntry",
    "Scheme",
    "SetEntry",
    "State",
    "Tier",
    "Visibility",
    "failed",
    "to_attributes_json",
]
