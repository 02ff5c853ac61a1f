"""Settings of clients from the environment. The library itself takes arguments; programs read these."""

from __future__ import annotations

from turnwright_kit.settings import Settings, setting


class ClientSettings(Settings):
    """Where the executor is, and how long it may take to answer."""

    server: str = setting(
        "Address of the executor to use. Empty: the running stack of this home, or an embedded one.", ""
    )
    rpc_timeout_s: float = setting("Deadline of a short call to another service, in seconds.", 30.0, gt=0, le=3600)
