"""The sections that show entries, one text for each.

Source: RU063, RU185-RU189, RU194, RU195, RP05, RP06, RH05; decisions C46, C47.
"""

from __future__ import annotations

from typing import Final

from turnwright_assembler.sections.contract import BlockSection

BLOCK_SECTIONS: Final = (
    # Every data entry, condensed, in first-seen order: grows at its end, so that what stands above stays cached.
    BlockSection("summary", 50, lambda block: block.condensed if block.category == "data" else ""),
    # Every visible data entry with its whole body.
    BlockSection("visible", 75, lambda block: block.whole if block.category == "data" and block.is_visible else ""),
    # The latest version of every plan; its deltas are in the log, so that these bytes do not change.
    BlockSection("plans", 90, lambda block: block.whole if block.plan and not block.plan.sequence else ""),
    # What happened, over all loops: records, events and deltas of plans, and earlier prompts, at their places in time.
    BlockSection("log", 100, lambda block: block.text if block.in_log or block.prompt else ""),
    BlockSection("unknowns", 150, lambda block: block.text if block.category == "unknown" else ""),
)
