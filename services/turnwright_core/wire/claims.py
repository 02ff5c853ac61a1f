"""Claims on the wire."""

from __future__ import annotations

from typing import Final

from turnwright.store.v1 import lease_pb2, ledger_pb2, write_pb2
from turnwright.types.v1 import project_pb2

from turnwright_core.claims import Claim
from turnwright_core.constraints import ADD, IGNORE, READONLY, FileConstraint
from turnwright_core.wire.codec import codec, each
from turnwright_core.wire.entries import entry_from_pb, entry_to_pb
from turnwright_core.wire.runs import (
    loop_from_pb,
    loop_to_pb,
    model_from_pb,
    model_to_pb,
    run_from_pb,
    run_to_pb,
    turn_from_pb,
    turn_to_pb,
)

_KINDS: Final = (ADD, ADD, READONLY, IGNORE)
"""The kinds of file constraints by their numbers; 0, which says none, is ADD."""
constraint_to_pb, constraint_from_pb = codec(
    FileConstraint, project_pb2.FileConstraint, kind=(lambda kind: _KINDS.index(kind, 1), _KINDS.__getitem__)
)
claim_to_pb, claim_from_pb = codec(
    Claim,
    lease_pb2.ClaimRunResponse,
    epoch=(lambda epoch: write_pb2.Fence(epoch=epoch), lambda fence: fence.epoch),
    run=(run_to_pb, run_from_pb),
    loop=(loop_to_pb, loop_from_pb),
    model=(model_to_pb, model_from_pb),
    open_turn=(turn_to_pb, turn_from_pb),
    records=each(entry_to_pb, entry_from_pb),
    recent_turns=each(turn_to_pb, turn_from_pb),
    turn_before=(turn_to_pb, turn_from_pb),
    file_constraints=(
        lambda found: lease_pb2.FileConstraints(constraints=map(constraint_to_pb, found)),
        lambda message: tuple(map(constraint_from_pb, message.constraints)),
    ),
    files=(
        lambda files: ledger_pb2.AdoptFilesResponse(paths=files.keys(), hashes=files.values(), last=True),
        lambda message: dict(zip(message.paths, message.hashes, strict=True)),
    ),
)
