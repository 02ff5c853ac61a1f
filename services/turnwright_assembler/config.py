"""Settings of the assembler."""

from __future__ import annotations

from typing import Final

from turnwright_kit.settings import PeerSettings, setting

DEFAULT_LISTEN: Final = "127.0.0.1:7442"


class AssemblerSettings(PeerSettings):
    """The settings of the assembler."""

    token_divisor: int = setting(
        "Characters per token in every estimate: tokens = ceil(characters / this).", 2, ge=1, le=16
    )
    budget_ceiling: float = setting("Fraction of the model's context window that a packet may fill.", 0.9, gt=0, le=1)
    sections: str = setting(
        "Plugins that change packets: entry points of `turnwright.sections`, or `module:function`, "
        "separated by commas. Empty: all that are installed. `none`: none.",
        "",
    )
    prompt: str = setting(
        "Plugins that edit prompts: entry points of `turnwright.prompt`, or `module:function`, separated by commas, in "
        "the order in which they are called. Empty: all that are installed, by name. `none`: none.",
        "",
    )
    section_deadline_s: float = setting(
        "Time limit for one step of building a packet with plugins, and for all plugins that edit its prompt "
        "together, in seconds. Keep it below "
        "`TURNWRIGHT_RPC_TIMEOUT_S`.",
        10.0,
        gt=0,
        le=3600,
    )
    assembler_cache_bytes_max: int = setting(
        "Size of the cache of rendered entries, over all runs, in bytes. 0: no cache.", 256 * 1024 * 1024, ge=0
    )
