"""Settings of the assembler."""

from __future__ import annotations

from typing import Final

from turnwright_core.kit.settings import PeerSettings, setting

DEFAULT_LISTEN: Final = "127.0.0.1:7442"


class AssemblerSettings(PeerSettings):
    """What the assembler reads."""

    token_divisor: int = setting(
        default=2, ge=1, le=16, description="Characters per token in every estimate: tokens = ceil(characters / this)."
    )
    budget_ceiling: float = setting(
        default=0.9, gt=0, le=1, description="Part of the model's context window that a packet may fill."
    )
    sections: str = setting(
        default="",
        description="Plugins that take part in packets: entry points of `turnwright.sections`, or `module:function`, "
        "with commas between. Empty: all that are installed; `none`: none.",
    )
    section_deadline_s: float = setting(
        default=10.0,
        gt=0,
        le=3600,
        description="Seconds that one step of a packet may take in which plugins take part; below `rpc_timeout_s`.",
    )
    assembler_cache_bytes_max: int = setting(
        default=256 * 1024 * 1024,
        ge=0,
        description="Bytes of rendered entries that are kept between turns, over all runs; 0 keeps none.",
    )
    assembler_calls_per_run_max: int = setting(
        default=16, ge=1, le=1000, description="Calls for one run that may wait for each other; more are refused."
    )
    assembler_read_timeout_s: float = setting(
        default=60.0, gt=0, le=3600, description="Deadline in seconds of one read of a run's entries from the store."
    )
