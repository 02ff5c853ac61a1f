"""What a client can be told through the environment. The library itself takes arguments; programs read these."""

from __future__ import annotations

from turnwright_client.watch import WatchPolicy
from turnwright_core.kit.settings import Settings, setting


class ClientSettings(Settings):
    """Where the executor is, and how patient a client is."""

    server: str = setting(
        default="",
        description="Address of the executor to use. Empty: the running stack of this home, or an embedded one.",
    )
    rpc_timeout_s: float = setting(
        default=30.0,
        gt=0,
        le=3600,
        description="Deadline of a short call to another service, in seconds.",
    )
    watch_retries_max: int = setting(
        default=8,
        ge=0,
        le=1000,
        description="How often a watch reconnects without receiving an event before it gives up.",
    )
    watch_backoff_s: float = setting(
        default=0.1,
        gt=0,
        le=60,
        description="Pause before a watch reconnects the first time, in seconds. It doubles each time.",
    )
    watch_backoff_s_max: float = setting(
        default=5.0, gt=0, le=600, description="Longest pause between two reconnects of a watch, in seconds."
    )
    watch_silence_s_max: float = setting(
        default=60.0,
        gt=0,
        le=3600,
        description="A watch reconnects after this many seconds without an event or heartbeat.",
    )

    def watch_policy(self) -> WatchPolicy:
        """How a watch reconnects under these settings."""
        return WatchPolicy(
            retries_max=self.watch_retries_max,
            backoff_s=self.watch_backoff_s,
            backoff_s_max=self.watch_backoff_s_max,
            silence_s_max=self.watch_silence_s_max,
        )
