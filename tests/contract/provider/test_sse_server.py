"""The tests' own server as a process of its own, as other suites run it."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

SERVER = Path(__file__).resolve().parents[2] / "sse_server.py"


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("replies.json", json.dumps(["first\nreply", "second"])),
        ("replies.txt", "=== reply ===\nfirst\nreply\n\n=== reply delay_ms=3 ===\nsecond\n"),
    ],
)
async def test_the_server_process_replays_its_file(provider, tmp_path, name, text):
    replies, log = tmp_path / name, tmp_path / "requests.jsonl"
    replies.write_text(text)
    process = await asyncio.create_subprocess_exec(
        sys.executable, SERVER, "--port", "0", "--replies", replies, "--models", "tiny", "--requests", log,
        stdout=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        url = (await process.stdout.readline()).decode().strip()
        client = await provider(openai_base_url=url)
        checks = await client.check("openai/tiny", "openai/other")
        heard = [await client.generate(prompt=f"prompt {n}") for n in range(3)]
    finally:
        process.terminate()
        await process.communicate()

    assert [check.usable for check in checks] == [True, False]
    assert [h.text for h in heard] == ["first\nreply", "second", ""]
    assert heard[2].reason == "VENDOR_REJECTED"
    prompts = [json.loads(line)["messages"][0]["content"] for line in log.read_text().splitlines()]
    assert prompts == ["prompt 0", "prompt 1", "prompt 2"]
