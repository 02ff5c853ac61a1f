"""The runtime's own filters, in the one registry beside those of plugins.

Source: rows RU010, RU129, RU130, RU140, RU155, RU159.
"""

from __future__ import annotations

from collections.abc import Callable

from turnwright_executor.domain.policy import GATE, Case, Refusal
from turnwright_executor.domain.verdict import RULES
from turnwright_executor.hooks.payloads import Recording, RecordingContext
from turnwright_executor.hooks.points import ENTRY_RECORDING, TURN_VERDICT
from turnwright_executor.hooks.registry import Registry


def register_rules(registry: Registry) -> None:
    for priority, rule in GATE:
        registry.filter(ENTRY_RECORDING, _recording(rule, registry), priority)
    for priority, vote in RULES:
        registry.filter(TURN_VERDICT, vote, priority)


def _recording(
    rule: Callable[[Case], Refusal | None], registry: Registry
) -> Callable[[Recording, RecordingContext], Recording]:
    def check(value: Recording, context: RecordingContext) -> Recording:
        # Read at each command: plugins register after the rules.
        refused = rule(Case(value.command, context.mode, context.tools, registry.offers))
        return value.refused(refused.outcome, refused.body) if refused else value

    return check


def new_registry() -> Registry:
    """A registry that holds the runtime's own rules and nothing else."""
    registry = Registry()
    register_rules(registry)
    return registry
