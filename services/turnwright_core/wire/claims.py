"""Claims on the wire."""

from __future__ import annotations

from turnwright.store.v1 import lease_pb2, ledger_pb2
from turnwright.types.v1 import project_pb2
from turnwright_values.store import ClaimRunResponse, GetLeaseResponse, RenewLeasesResponse, TitleCall
from turnwright_values.types import FileConstraint, FileConstraintKind

from turnwright_core.wire.codec import codec, known

constraint_to_pb, constraint_from_pb = codec(
    FileConstraint,
    project_pb2.FileConstraint,
    kind=(int, lambda number: known(FileConstraintKind, number or FileConstraintKind.ADD, "kind")),
)
claim_to_pb, claim_from_pb = codec(
    ClaimRunResponse,
    lease_pb2.ClaimRunResponse,
    files=(
        lambda files: ledger_pb2.AdoptFilesResponse(paths=files.keys(), hashes=files.values(), last=True),
        lambda message: dict(zip(message.paths, message.hashes, strict=True)),
    ),
)
renewal_from_pb = codec(RenewLeasesResponse, lease_pb2.RenewLeasesResponse)[1]
lease_to_pb, lease_from_pb = codec(GetLeaseResponse, lease_pb2.GetLeaseResponse)
title_call_to_pb, title_call_from_pb = codec(TitleCall, ledger_pb2.TitleCall)
