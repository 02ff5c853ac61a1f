"""A document that is longer than what its import may hold."""

from __future__ import annotations

import json
import resource
from collections.abc import AsyncIterator

import pytest
from turnwright.documents.v1 import document_service_pb2 as documents

from contract.store.harness import SQLITE_ONLY, Client

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(1200)]

BODY = "".join(f"{number * 7919:x} {number:o}\n" for number in range(8000))
ROOM_KB = 64 * 1024
"""What ten times the document may take more: one part, one element in some forms, and one transaction."""


async def parts(project: str, entries: int) -> AsyncIterator[documents.ImportRunRequest]:
    yield documents.ImportRunRequest(
        project=project, data=b'{"schema_version": 1, "run": {"run": "large"}, "entries": ['
    )
    for number in range(1, entries + 1):
        entry = {
            "path": f"known://{number}",
            "body": f"{number}\n{BODY}",
            "body_size_bytes": str(len(f"{number}\n{BODY}")),
            "attributes_json": "{}",
            "visibility": "VISIBILITY_ARCHIVED",
            "state": "STATE_RESOLVED",
            "writer": "TIER_MODEL",
            "position": str(number),
            "write_count": 1,
            "revision": str(number),
        }
        yield documents.ImportRunRequest(data=json.dumps({"entry": entry}).encode() + b"," * (number < entries))
    yield documents.ImportRunRequest(data=b'], "complete": true}')


def peak_kb() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


@SQLITE_ONLY
async def test_two_hundred_megabytes_take_no_more_memory_than_twenty(client: Client, project) -> None:
    # The statements and the memory of this process are the same on each database.
    size = len(BODY)
    peaks = []
    for megabytes in (20, 200):
        answer = await client.peer.upload(client.rpc("ImportRun"), parts(project, megabytes * 1_000_000 // size), 600)
        assert (answer.skipped, answer.run.revision) == (0, megabytes * 1_000_000 // size)
        peaks.append(peak_kb())
    assert peaks[1] - peaks[0] < ROOM_KB
