"""The Python client library: `async with Client.connect(address, token) as client: ...`; without async: SyncClient.

Answers are the messages of the contract (`turnwright.*.v1`); methods raise `TurnwrightError`, whose `reason` says why.
`RunView` folds the events of a run into its state, `RunList` those of a project's runs.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from turnwright_client.client import Client, Outcome, QueuedLoop, pending_proposals
    from turnwright_client.control import RunList, RunsMessage
    from turnwright_client.proposals import Accept, ProposedHunk, Reject, proposed_hunks
    from turnwright_client.sync import SyncClient
    from turnwright_client.watch import WatchPolicy
    from turnwright_core.errors import Reason, TurnwrightError
    from turnwright_core.rpc.certificates import Tls
    from turnwright_core.wire.run_view import Partial, RunView

_WHERE: Final = {
    **dict.fromkeys(("Client", "Outcome", "QueuedLoop", "pending_proposals"), "turnwright_client.client"),
    **dict.fromkeys(("RunList", "RunsMessage"), "turnwright_client.control"),
    **dict.fromkeys(("Accept", "ProposedHunk", "Reject", "proposed_hunks"), "turnwright_client.proposals"),
    **dict.fromkeys(("Partial", "RunView"), "turnwright_core.wire.run_view"),
    **dict.fromkeys(("Reason", "TurnwrightError"), "turnwright_core.errors"),
    "SyncClient": "turnwright_client.sync",
    "Tls": "turnwright_core.rpc.certificates",
    "WatchPolicy": "turnwright_client.watch",
}
"""Lazy imports: the module of each exported name. Who only branches on reasons, or folds, needs no gRPC."""


def __getattr__(name: str) -> object:
    """Import a name of this package at its first use (PEP 562)."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(_WHERE[name]), name)
    return found


__all__ = [
    "Accept",
    "Client",
    "Outcome",
    "Partial",
    "ProposedHunk",
    "QueuedLoop",
    "Reason",
    "Reject",
    "RunList",
    "RunView",
    "RunsMessage",
    "SyncClient",
    "Tls",
    "TurnwrightError",
    "WatchPolicy",
    "pending_proposals",
    "proposed_hunks",
]
