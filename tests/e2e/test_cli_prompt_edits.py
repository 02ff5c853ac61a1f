"""`act --prompt-edits FILE`: from a file to the bytes that a vendor gets, and what a file that cannot be used says. OM27."""

from __future__ import annotations

import asyncio
import json

import pytest

from e2e.cli_process import Bench, json_lines
from sse_server import SseServer, chat

pytestmark = pytest.mark.asyncio

DONE = '<update status="200">Done.</update>'
EDITS = [
    {"append_to": {"target": "last-user", "parts": [{"text": "TO-LAST"}]}},
    {"append": {"role": "user", "parts": [{"text": "END"}]}},
]


async def act(bench: Bench, url: str, edits: object):
    file = bench.root / "edits.json"
    file.write_text(json.dumps(edits))
    return await asyncio.to_thread(
        bench.run,
        "act",
        "Do it.",
        "--model",
        "tiny",
        "--run",
        "r",
        "--json",
        "--prompt-edits",
        str(file),
        OPENAI_BASE_URL=url,
    )


async def test_edits_of_a_file_are_sent_and_told_with_the_turn(tmp_path):
    bench = Bench(tmp_path, {"TURNWRIGHT_MODEL_tiny": "openai/tiny"})
    async with SseServer(answers=[chat(DONE)]) as server:
        done = await act(bench, server.url, EDITS)
    [request] = [one for one in server.requests if one.method == "POST"]
    assert done.returncode == 0, done.stderr
    assert request.json["messages"][-1]["content"].endswith("</budget>\n\nTO-LAST\n\nEND")
    turns = [message["turn_finished"]["turn"] for message in json_lines(done.stdout) if "turn_finished" in message]
    assert [list(edit) for edit in turns[-1]["result"]["edits"]] == [["append_to"], ["append"]]


async def test_an_edit_that_cannot_be_applied_is_named_at_the_end(tmp_path):
    bench = Bench(tmp_path, {"TURNWRIGHT_MODEL_tiny": "openai/tiny"})
    insert = {"message_id": "prompt://9", "message": {"role": "user", "parts": [{"text": "x"}]}}
    async with SseServer(answers=[chat(DONE)]) as server:
        done = await act(bench, server.url, [{"insert_after": insert}])
        wrong = await act(bench, server.url, [{"append": {"role": "user", "id": "m1", "parts": []}}])
    assert (done.returncode, wrong.returncode, server.requests) == (5, 2, [])
    assert "prompt_message_unknown: edits[0] (insert_after): there is no message prompt://9" in done.stdout
    assert "edits.json: Object contains unknown field `id` - at `$[0].append`" in wrong.stderr
