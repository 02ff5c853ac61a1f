"""The sections that show entries, one text for each (Block.sections).

Source: RU063, RU185-RU189, RU194, RU195, RP05, RP06, RH05; decisions C46, C47.
"""

from __future__ import annotations

from typing import Final

from turnwright_assembler.sections.contract import BlockSection

BLOCK_SECTIONS: Final = (
    # Every data entry, condensed, in first-seen order: grows at its end, so that what stands above stays cached.
    BlockSection("summary", 50),
    # Every visible data entry with its whole body.
    BlockSection("visible", 75),
    # The latest version of every plan; its deltas are in the log, so that these bytes do not change.
    BlockSection("plans", 90),
    # What happened, over all loops: records, events and deltas of plans, and earlier prompts, at their places in time.
    BlockSection("log", 100),
    BlockSection("unknowns", 150),
)
