"""Claims on the wire, and the call that creates a run and claims it."""

from __future__ import annotations

import contextlib
from typing import Final

from turnwright.store.v1 import lease_pb2, ledger_pb2, queue_pb2, write_pb2
from turnwright.types.v1 import project_pb2

from turnwright_core.claims import Claim, CreatedRun, CreateRunCall
from turnwright_core.constraints import ADD, IGNORE, READONLY, FileConstraint
from turnwright_core.errors import TurnwrightError
from turnwright_core.rpc_codec import RpcCodec
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


def _created_run_to_pb(created: CreatedRun) -> queue_pb2.EnqueueLoopResponse:
    answer: queue_pb2.EnqueueLoopResponse = created.answer
    if created.claim:
        answer.claim.CopyFrom(claim_to_pb(created.claim))
    return answer


def _created_run_from_pb(answer: queue_pb2.EnqueueLoopResponse) -> CreatedRun:
    """Decode. A claim that cannot be read is left out: who claims the run again releases it."""
    claim = None
    with contextlib.suppress(TurnwrightError, ValueError):
        claim = claim_from_pb(answer.claim) if answer.HasField("claim") else None
    return CreatedRun(answer, claim)


CREATE_RUN: Final = RpcCodec(
    "/turnwright.store.v1.StoreService/EnqueueLoop",
    CreateRunCall,
    CreatedRun,
    lambda call: call.task,
    CreateRunCall,
    _created_run_to_pb,
    _created_run_from_pb,
)
