"""What a client can be told through the environment. The library itself takes arguments; programs read these."""

from __future__ import annotations

from turnwright_client.watch import WatchPolicy
from turnwright_core.kit.settings import Settings, setting


class ClientSettings(Settings):
    """Where the executor is, and how patient a client is."""

    server: str = setting(
        default="", description="Address of the executor to use. Empty: the live stack of the home, else an own one."
    )
    rpc_timeout_s: float = setting(
        default=30.0,
        gt=0,
        le=3600,
        description="Deadline in seconds of a call to another service that answers at once.",
    )
    locate_timeout_s: float = setting(
        default=1.0, gt=0, le=60, description="Seconds that a recorded stack has to answer its health check."
    )
    watch_retries_max: int = setting(
        default=8, ge=0, le=1000, description="Reconnects in a row without an event before watching a run is given up."
    )
    watch_backoff_s: float = setting(
        default=0.1, gt=0, le=60, description="Seconds before the first reconnect of a watch; doubles with each."
    )
    watch_backoff_s_max: float = setting(
        default=5.0, gt=0, le=600, description="Longest pause in seconds between two reconnects of a watch."
    )
    watch_silence_s_max: float = setting(
        default=60.0, gt=0, le=3600, description="Seconds without event or heartbeat after which a watch reconnects."
    )

    def watch_policy(self) -> WatchPolicy:
        """How a watch reconnects under these settings."""
        return WatchPolicy(
            retries_max=self.watch_retries_max,
            backoff_s=self.watch_backoff_s,
            backoff_s_max=self.watch_backoff_s_max,
            silence_s_max=self.watch_silence_s_max,
        )
