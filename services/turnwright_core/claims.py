"""What an executor gets with a claim: the ledger of a run, from which its new owner continues."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from turnwright_core.constraints import FileConstraint
from turnwright_core.entries import Entry
from turnwright_core.models import Model
from turnwright_core.runs import Loop, Run, Turn


class Claim(Struct, frozen=True):
    """The ledger of a run as of its claim. Fields as in ClaimRunResponse."""

    epoch: int
    lease_ms: int
    run: Run
    loop: Loop | None
    model: Model | None
    open_turn: Turn | None
    records: Sequence[Entry]
    recent_turns: Sequence[Turn]
    turn_before: Turn | None
    abort_requested: bool
    project_root: str
    workspace_id: str
    turn_losses: int
    turn_calls: int
    file_constraints: Sequence[FileConstraint] | None
    """Of the project; None: too many to come with a claim."""
    files: Mapping[str, str] | None = None
    """The files that the run sees, with hashes of their bodies, if it adopted them with the claim."""
    schemes: Any | None = None
    """A SchemeRegistry, if the caller has another version."""
