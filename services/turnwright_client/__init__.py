"""The Python client library: `async with Client.connect(address, token) as client: ...`.

Answers are the messages of the contract (`turnwright.*.v1`); errors are `turnwright_core.errors.TurnwrightError`.
`RunView` folds the events of a run into its state, `locate` finds the stack that serves a home.
"""

from turnwright_client.client import Client, QueuedLoop, pending_proposals
from turnwright_client.control import Board, RunsMessage
from turnwright_client.discovery import StackRecord, locate, read_record
from turnwright_client.fold import Partial, RunView
from turnwright_client.watch import WatchPolicy

__all__ = [
    "Board",
    "Client",
    "Partial",
    "QueuedLoop",
    "RunView",
    "RunsMessage",
    "StackRecord",
    "WatchPolicy",
    "locate",
    "pending_proposals",
    "read_record",
]
