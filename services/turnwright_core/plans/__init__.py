"""Plans: their model, their items, and how they are stored; no other module interprets the body of a plan.

Nothing here reads the store or a message. Source: architecture 9; rows RP01-RP08, AP08, AP09, AP16.
"""

from turnwright_core.plans.items import (
    NO_ITEMS,
    PlanItem,
    PlanPriority,
    PlanStatus,
    items_json,
    items_of,
    readable_items,
    word,
)
from turnwright_core.plans.plan import (
    MAIN,
    PLAN_ID,
    SCHEME,
    Plan,
    PlanDelta,
    PlanKind,
    PlanPart,
    delta_path,
    part_of,
    plan_path,
    version_path,
)
from turnwright_core.plans.plan_diff import ItemChange, count_changed_lines, diff_items

__all__ = [
    "MAIN",
    "NO_ITEMS",
    "PLAN_ID",
    "SCHEME",
    "ItemChange",
    "Plan",
    "PlanDelta",
    "PlanItem",
    "PlanKind",
    "PlanPart",
    "PlanPriority",
    "PlanStatus",
    "count_changed_lines",
    "delta_path",
    "diff_items",
    "items_json",
    "items_of",
    "part_of",
    "plan_path",
    "readable_items",
    "version_path",
    "word",
]
