"""Bodies of requests count on their caller from their first byte, so that many connections hold no more than one."""

from __future__ import annotations

import asyncio
import struct

import pytest
from turnwright.documents.v1 import document_service_pb2

from contract.http.doors import ANN, EXECUTOR, WAIT_S, bearer, open_door
from contract.http.test_http_strangers import answer, head
from services import token_for
from turnwright_core.limits import MESSAGE_BYTES_MAX

pytestmark = pytest.mark.asyncio

BODY_BYTES = 7 * 1024 * 1024
FITTING = MESSAGE_BYTES_MAX // BODY_BYTES
PART_BYTES = 1024 * 1024
IMPORT = "/turnwright.documents.v1.DocumentService/ImportRun"


async def until_held(door, size: int) -> None:
    """Until the executor holds so many bytes of bodies."""
    ledger = door.stack.servers["executor"].http._door.admission._guarded.ledger
    async with asyncio.timeout(WAIT_S):
        while sum(ledger._request_bytes.values()) != size:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)


@pytest.mark.parametrize("kind", ["application/proto", "application/json"])
async def test_bodies_that_are_not_whole_count_on_their_caller(tmp_path, kind):
    async with open_door(tmp_path, caller_unsent_bytes_max=MESSAGE_BYTES_MAX) as door:
        length = f"content-length: {2 * BODY_BYTES}"
        sent = head(f"/{EXECUTOR}/Discover", f"content-type: {kind}", f"authorization: Bearer {ANN}", length)
        held = []
        for number in range(FITTING):
            held.append((await door.raw(sent + bytes(BODY_BYTES)))[1])
            await until_held(door, (number + 1) * BODY_BYTES)
        reader, writer = await door.raw(sent)
        # No byte of it is left unread, so that the answer arrives.
        writer.write(bytes(MESSAGE_BYTES_MAX + 1 - FITTING * BODY_BYTES))
        found = await answer(reader)
        assert found.startswith(b"HTTP/1.1 429 ")
        assert b"QUEUE_FULL" in found
        assert b"request_bytes" in found
        writer.close()
        await until_held(door, FITTING * BODY_BYTES)
        assert (await door.call("Discover", {}, token_for("bob"))).is_success
        assert (await door.call("Discover", {}, ANN)).is_success
        for one in held:
            one.close()
        await until_held(door, 0)


async def test_an_upload_counts_as_the_message_that_is_on_its_way(tmp_path):
    async with open_door(tmp_path, caller_unsent_bytes_max=MESSAGE_BYTES_MAX) as door:
        part = document_service_pb2.ImportRunRequest(project=door.stack.project, data=b" " * PART_BYTES)
        message = part.SerializeToString()

        async def messages():
            for _ in range(MESSAGE_BYTES_MAX // PART_BYTES + 2):
                yield struct.pack(">BI", 0, len(message)) + message

        headers = bearer(ANN) | {"content-type": "application/connect+proto"}
        found = await door.http.post(IMPORT, content=messages(), headers=headers)
        # All of it was read, and is no document.
        assert b"INVALID_FIELD" in found.content
        await until_held(door, 0)
