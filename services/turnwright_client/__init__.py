"""The Python client library: `async with Client.connect(address, token) as client: ...`.

Answers are the messages of the contract (`turnwright.*.v1`); methods raise `TurnwrightError`, whose `reason` says why.
`RunView` folds the events of a run into its state, `locate` finds the stack that serves a home.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from turnwright_client.client import Client, QueuedLoop, pending_proposals
    from turnwright_client.control import RunList, RunsMessage
    from turnwright_client.discovery import StackRecord, locate, read_record
    from turnwright_client.watch import WatchPolicy
    from turnwright_core.errors import Reason, TurnwrightError
    from turnwright_core.wire.run_view import Partial, RunView
    from turnwright_kit.certificates import Tls

_WHERE: Final = {
    **dict.fromkeys(("Client", "QueuedLoop", "pending_proposals"), "turnwright_client.client"),
    **dict.fromkeys(("RunList", "RunsMessage"), "turnwright_client.control"),
    **dict.fromkeys(("StackRecord", "locate", "read_record"), "turnwright_client.discovery"),
    **dict.fromkeys(("Partial", "RunView"), "turnwright_core.wire.run_view"),
    **dict.fromkeys(("Reason", "TurnwrightError"), "turnwright_core.errors"),
    "Tls": "turnwright_kit.certificates",
    "WatchPolicy": "turnwright_client.watch",
}
"""Lazy imports: the module of each exported name. A process that only serves needs discovery, not the client."""


def __getattr__(name: str) -> object:
    """Import a name of this package at its first use (PEP 562)."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found


__all__ = [
    "Client",
    "Partial",
    "QueuedLoop",
    "Reason",
    "RunList",
    "RunView",
    "RunsMessage",
    "StackRecord",
    "Tls",
    "TurnwrightError",
    "WatchPolicy",
    "locate",
    "pending_proposals",
    "read_record",
]
