"""Streams by HTTP: server-sent events and the framing of Connect; cut, resumed, and left."""

from __future__ import annotations

import asyncio
import json
import struct

import pytest

from contract.http.doors import ANN, EXECUTOR, WAIT_S, bearer, open_door, reason_of

pytestmark = pytest.mark.asyncio

CUTS = 100


def has_ended(event: dict) -> bool:
    return event.get("runState", {}).get("loop", {}).get("status") == 200


async def until_left(door) -> None:
    """Until the executor works on no call."""
    async with asyncio.timeout(WAIT_S):
        while door.stack.servers["executor"]._calls._tasks:  # noqa: ASYNC110 - nobody is told
            await asyncio.sleep(0.01)


async def test_a_run_is_started_and_followed_to_its_end_by_events(tmp_path):
    async with open_door(tmp_path) as door:
        door.stack.script('Hello.\n<update status="200">Done.</update>')
        queued = await door.act(ANN)
        request = {"project": door.stack.project, "run": "r", "after": queued["cursor"]}
        async with door.events(request, ANN) as events:
            seen = []
            async for kind, id_, event in events:
                assert (kind, json.loads(id_)) == ("message", event["cursor"])
                seen.append(event)
                if has_ended(event):
                    break
        assert "Hello." in json.dumps(seen)
        assert events.answer.headers["content-type"] == "text/event-stream"
        await until_left(door)


async def test_the_same_stream_in_the_framing_of_connect(tmp_path):
    async with open_door(tmp_path) as door:
        door.stack.script('<update status="200">Done.</update>')
        await door.act(ANN)
        body = json.dumps({"project": door.stack.project, "run": "r"}).encode()
        headers = bearer(ANN) | {"content-type": "application/connect+json"}
        content = struct.pack(">BI", 0, len(body)) + body
        data = b""
        async with door.http.stream("POST", f"/{EXECUTOR}/WatchRun", content=content, headers=headers) as answer:
            assert answer.headers["content-type"] == "application/connect+json"
            async for part in answer.aiter_raw():
                data += part
                while len(data) >= 5 and len(data) >= 5 + (length := int.from_bytes(data[1:5])):
                    event, data = json.loads(data[5 : 5 + length]), data[5 + length :]
                    if has_ended(event) or has_ended({"runState": event.get("snapshot", {}).get("run", {})}):
                        return
        raise AssertionError("the stream ended")


async def test_a_watch_that_is_cut_a_hundred_times_misses_nothing(tmp_path):
    async with open_door(tmp_path, cycles_min=100) as door:
        turns = [f'<think>{number}</think><update status="102">Going on.</update>' for number in range(CUTS // 8)]
        door.stack.script(*turns, '<update status="200">Done.</update>')
        queued = await door.act(ANN)
        last, seqs, is_over, cuts = json.dumps(queued["cursor"]), [int(queued["cursor"].get("seq", 0))], False, 0
        while not is_over:
            async with door.events({"project": door.stack.project, "run": "r"}, ANN, last) as events:
                async for _, id_, event in events:
                    last = id_
                    assert "snapshot" not in event
                    if "heartbeat" in event:
                        continue
                    seqs.append(int(event["cursor"].get("seq", 0)))
                    is_over = has_ended(event)
                    break
            cuts += 1
        assert seqs == list(range(seqs[0], seqs[0] + len(seqs)))
        assert cuts > CUTS
        await until_left(door)


async def test_a_client_that_leaves_ends_its_call(tmp_path):
    async with open_door(tmp_path) as door:
        await door.act(ANN)
        async with door.events({"project": door.stack.project, "run": "r"}, ANN) as events:
            coming = aiter(events)
            await anext(coming)
            assert door.stack.servers["executor"]._calls._tasks
        await until_left(door)


async def test_events_are_refused_with_a_status_before_the_first(tmp_path):
    async with open_door(tmp_path) as door:
        for token, request, last, status, reason in (
            ("", {}, "", 401, "UNAUTHENTICATED"),
            (ANN, {"project": door.stack.project, "run": "nix"}, "", 404, "RUN_NOT_FOUND"),
            (ANN, {"project": door.stack.project, "run": "nix"}, "{broken", 404, "RUN_NOT_FOUND"),
            (ANN, {"project": door.stack.project, "run": "nix"}, "7", 400, "INVALID_FIELD"),
            (ANN, {"project": door.stack.project, "runn": "nix"}, "", 400, "INVALID_FIELD"),
        ):
            async with door.events(request, token, last) as events:
                await events.answer.aread()
                assert (events.answer.status_code, reason_of(events.answer.json())) == (status, reason)


async def test_events_come_by_get_for_what_only_reads(tmp_path):
    async with open_door(tmp_path) as door:
        await door.act(ANN)
        query = {"message": json.dumps({"project": door.stack.project, "run": "r"})}
        headers = bearer(ANN) | {"accept": "text/event-stream"}
        async with door.http.stream("GET", f"/{EXECUTOR}/WatchRun", params=query, headers=headers) as answer:
            assert answer.status_code == 200
            assert (await anext(answer.aiter_lines())).startswith("id: {")


async def test_a_stream_that_ends_says_so(tmp_path):
    async with open_door(tmp_path) as door:
        door.stack.script('<update status="200">Done.</update>')
        await door.stack.until(await door.stack.act())
        request = {"project": door.stack.project, "run": "r"}
        path = "/turnwright.documents.v1.DocumentService/ExportRun"
        async with door.events(request, ANN, method=path) as events:
            kinds = [kind async for kind, _, _ in events]
        assert (kinds[0], kinds[-1]) == ("message", "end")


async def test_a_stop_ends_streams_and_takes_no_more_calls(tmp_path):
    async with open_door(tmp_path) as door:
        await door.act(ANN)
        async with door.events({"project": door.stack.project, "run": "r"}, ANN) as events:
            coming = aiter(events)
            await anext(coming)
            stopping = asyncio.create_task(door.stack.stop("executor"))
            kinds = [kind async for kind, _, _ in coming]
            assert kinds[-1] == "end"
            await asyncio.wait_for(stopping, WAIT_S)
        with pytest.raises(ConnectionError):
            await door.raw(b"")
        await door.stack.start("executor")


async def test_the_id_of_an_event_is_read_with_a_request_as_one_without_is(tmp_path):
    async with open_door(tmp_path) as door:
        headers = bearer(ANN) | {
            "accept": "text/event-stream",
            "content-type": "application/json",
            "last-event-id": "x",
        }
        content = b'{"project": "p", "run": "r", "run": "r"}'
        answer = await door.http.post(f"/{EXECUTOR}/WatchRun", content=content, headers=headers)
        assert (answer.status_code, reason_of(answer.json())) == (400, "INVALID_FIELD")
        assert "twice" in answer.json()["message"]
