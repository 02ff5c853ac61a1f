"""The main job against an OpenAI-compatible server, and everything that can go wrong on the way.

Each failure ends in a clear outcome on the run and on the terminal, and the run can be continued afterwards.
Rows RU009, RU133, RU136, RU140, RU163, RU204, RU276; decisions C3, C20, C26.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sqlite3
import subprocess
from dataclasses import replace

import pytest

from e2e.cli_process import Bench, json_lines, loop_status, run_alias
from sse_server import Answer, SseServer, chat, error, hang_up, plain
from turnwright_store.sql.compression import decompress

SOAK = pytest.mark.soak
EDIT = (
    "I see the typo.\n\n"
    '<set path="greet.py">\n<<SEARCH\ndef greet():\n    return "helo"\nSEARCH\n'
    '<<REPLACE\ndef greet():\n    return "hello"\nREPLACE\n</set>\n'
    "<sh>python3 -c \"import greet; assert greet.greet() == 'hello'\"</sh>\n"
    '<update status="102">Fixed and checked.</update>'
)
DONE = '<update status="200">greet() returns hello now.</update>'
QUICK = {
    "TURNWRIGHT_VENDOR_BUSY_DEADLINE_S": "1",
    "TURNWRIGHT_VENDOR_SERVER_DEADLINE_S": "1",
    "TURNWRIGHT_VENDOR_GATEWAY_DEADLINE_S": "1",
    "TURNWRIGHT_VENDOR_CONNECT_DEADLINE_S": "1",
}


@pytest.fixture
def bench(tmp_path) -> Bench:
    made = Bench(tmp_path, {"TURNWRIGHT_MODEL_tiny": "openai/tiny", **QUICK})
    (made.project / "greet.py").write_text('def greet():\n    return "helo"\n')
    return made


async def act(bench: Bench, url: str, *more: str) -> subprocess.CompletedProcess[str]:
    return await asyncio.to_thread(
        bench.run, "act", "Fix the typo.", "--model", "tiny", "--yolo", "--json", *more, OPENAI_BASE_URL=url
    )


def records(text: str) -> dict[str, dict]:
    """The records of commands and errors as they were left, by path."""
    found = {}
    for message in json_lines(text):
        entry = (message.get("message_added") or message.get("message_updated") or {}).get("entry", {})
        if entry.get("path", "").startswith("log://"):
            found[entry["path"]] = entry
    return found


def nothing_is_raised(done: subprocess.CompletedProcess[str]) -> bool:
    return "Traceback" not in done.stderr + done.stdout


@pytest.mark.asyncio
async def test_the_edit_is_made_checked_and_reported(bench) -> None:
    async with SseServer(replies=[EDIT, DONE]) as server:
        done = await act(bench, server.url)

    assert (done.returncode, done.stderr, loop_status(done.stdout)) == (0, "", 200)
    assert (bench.project / "greet.py").read_text() == 'def greet():\n    return "hello"\n'
    packet = server.requests[1].json["messages"]
    assert [message["role"] for message in packet] == ["system", "user"]
    assert "exit=0" in packet[1]["content"]
    assert json_lines(done.stdout)[-1]["run_state"]["loop"]["summary"] == "greet() returns hello now."


@pytest.mark.asyncio
async def test_the_next_packet_shows_the_edited_file(bench) -> None:
    replies = ['<get path="greet.py"/><update status="102">Reading.</update>', EDIT, DONE]
    async with SseServer(replies=replies) as server:
        done = await act(bench, server.url)

    assert done.returncode == 0
    before, after = (post.json["messages"][1]["content"].partition("<visible>")[2] for post in server.requests[1:])
    assert 'return "helo"' in before
    assert 'return "hello"' in after.partition("</visible>")[0]


def cut(text: str) -> Answer:
    """A reply whose connection is cut in the middle."""
    whole = chat(text)
    return replace(whole, chunks=whole.chunks[:4], end="cut")


async def refused_port() -> str:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{probe.getsockname()[1]}/v1"


@pytest.mark.asyncio
async def test_connection_refused_ends_the_turn_after_a_while_and_the_run_goes_on_later(bench) -> None:
    done = await act(bench, await refused_port())

    assert (done.returncode, loop_status(done.stdout)) == (5, 500)
    assert "vendor_unreachable" in json_lines(done.stdout)[-1]["run_state"]["loop"]["reason"]
    assert nothing_is_raised(done)
    async with SseServer(replies=[EDIT, DONE]) as server:
        again = await act(bench, server.url, "--run", run_alias(done.stdout))
    assert (again.returncode, loop_status(again.stdout)) == (0, 200)


@pytest.mark.slow
@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("answer", "word"),
    [
        pytest.param(error(401, "bad key"), "vendor_auth", id="401"),
        pytest.param(error(404, "The model `tiny` does not exist"), "vendor_rejected", id="404-model", marks=SOAK),
        pytest.param(error(429, "slow down"), "vendor_rate_limit", id="429", marks=SOAK),
        pytest.param(error(500, "oops"), "vendor_failed", id="500"),
        pytest.param(plain("<html>hello</html>"), "vendor_protocol", id="not-sse", marks=SOAK),
        pytest.param(plain("", content_type="text/event-stream"), "vendor_protocol", id="no-events", marks=SOAK),
        pytest.param(hang_up(), "vendor_", id="hang-up", marks=SOAK),
        pytest.param(error(400, "This model's maximum context length is 10 tokens"), "context_exceeded", id="context"),
    ],
)
async def test_a_failing_vendor_ends_the_loop_with_its_reason(bench, answer, word) -> None:
    async with SseServer([answer] * 60) as server:
        done = await act(bench, server.url)

    loop = json_lines(done.stdout)[-1]["run_state"]["loop"]
    assert (done.returncode, loop["status"]) == (5, 413 if word == "context_exceeded" else 500)
    assert loop["reason"].startswith(word)
    assert nothing_is_raised(done)
    async with SseServer(replies=[DONE]) as server:
        again = await act(bench, server.url, "--run", run_alias(done.stdout))
    assert (again.returncode, loop_status(again.stdout)) == (0, 200)
    assert word in server.requests[0].json["messages"][1]["content"]


@pytest.mark.asyncio
async def test_tls_failure_ends_the_turn_at_once(bench) -> None:
    async with SseServer(replies=[DONE], tls=True) as server:
        done = await act(bench, server.url)

    assert (done.returncode, loop_status(done.stdout)) == (5, 500)
    assert "vendor_unreachable" in json_lines(done.stdout)[-1]["run_state"]["loop"]["reason"]


@pytest.mark.asyncio
async def test_a_rate_limit_that_passes_is_shown_and_survived(bench) -> None:
    answers = [error(429, "slow down", headers={"retry-after": "0.05"}), chat(EDIT), chat(DONE)]
    async with SseServer(answers) as server:
        done = await act(bench, server.url)

    assert done.returncode == 0
    phases = [m["run_progress"]["phase"] for m in json_lines(done.stdout) if "run_progress" in m]
    assert "PHASE_RETRYING" in phases


@pytest.mark.asyncio
async def test_a_stream_that_stops_in_the_middle_is_asked_for_again(bench) -> None:
    async with SseServer([cut(EDIT), chat(EDIT), chat(DONE)]) as server:
        done = await act(bench, server.url)

    assert (done.returncode, loop_status(done.stdout)) == (0, 200)
    assert any("stream_cancelled" in message for message in json_lines(done.stdout))


@pytest.mark.asyncio
async def test_a_stream_that_always_stops_ends_the_loop_and_keeps_what_came(bench) -> None:
    async with SseServer([cut(EDIT)] * 5) as server:
        done = await act(bench, server.url)

    assert (done.returncode, loop_status(done.stdout)) == (5, 500)
    assert json_lines(done.stdout)[-1]["run_state"]["loop"]["reason"].startswith("stream_interrupted")
    with sqlite3.connect(bench.home / "turnwright.db") as database:
        kept = database.execute(
            "SELECT body FROM versions JOIN entries ON entries.id = entry_id WHERE path = 'assistant://1'"
        ).fetchone()
    database.close()
    assert decompress(kept[0]).startswith(b"I see")


@pytest.mark.asyncio
async def test_a_reply_without_a_command_is_the_answer(bench) -> None:
    async with SseServer(replies=["It is spelled hello."]) as server:
        done = await act(bench, server.url)

    loop = json_lines(done.stdout)[-1]["run_state"]["loop"]
    assert (done.returncode, loop["status"], loop["summary"]) == (0, 200, "It is spelled hello.")


@pytest.mark.asyncio
async def test_empty_replies_are_strikes_until_the_loop_is_given_up(bench) -> None:
    async with SseServer(replies=[" "] * 4) as server:
        done = await act(bench, server.url)

    assert (done.returncode, loop_status(done.stdout), len(server.requests)) == (4, 499, 3)


@pytest.mark.asyncio
async def test_broken_tags_are_healed(bench) -> None:
    broken = EDIT.replace("</sh>", "").replace('path="greet.py">', "path='greet.py' >")
    async with SseServer(replies=[broken, DONE]) as server:
        done = await act(bench, server.url)

    assert (done.returncode, loop_status(done.stdout)) == (0, 200)
    assert "hello" in (bench.project / "greet.py").read_text()


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "path",
    [
        pytest.param("../outside.txt", marks=SOAK),
        pytest.param("/etc/turnwright-outside.txt", marks=SOAK),
        "link/outside.txt",
    ],
)
async def test_a_path_outside_of_the_project_is_refused_and_the_rest_cancelled(bench, tmp_path, path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (bench.project / "link").symlink_to(tmp_path / "elsewhere")
    escape = f'<set path="{path}"><<NEW\nescaped\nNEW</set><sh>touch ran.txt</sh><update status="200">Done.</update>'
    async with SseServer(replies=[escape, '<update status="422">I may not.</update>']) as server:
        done = await act(bench, server.url)

    assert (done.returncode, loop_status(done.stdout)) == (3, 422)
    statuses = {
        path.split("/")[3]: record["outcome"] for path, record in records(done.stdout).items() if "outcome" in record
    }
    assert statuses == {"set": "permission:403", "sh": "aborted:499", "update": "conflict:409"}
    assert not (tmp_path / "outside.txt").exists()
    assert not list((tmp_path / "elsewhere").iterdir())
    assert not (bench.project / "ran.txt").exists()


@pytest.mark.asyncio
async def test_a_file_that_is_not_utf8_is_reported_and_left_alone(bench) -> None:
    (bench.project / "image.bin").write_bytes(b"caf\xe9 au lait\n")
    replies = ['<get path="image.bin"/>', '<update status="422">It is not text.</update>']
    async with SseServer(replies=replies) as server:
        done = await act(bench, server.url)

    assert (done.returncode, loop_status(done.stdout)) == (3, 422)
    assert "UTF-8" in json.dumps(records(done.stdout))
    assert (bench.project / "image.bin").read_bytes() == b"caf\xe9 au lait\n"


@pytest.mark.asyncio
async def test_done_after_a_failed_command_is_refuted(bench) -> None:
    claims = '<sh>exit 3</sh><update status="200">All is well.</update>'
    late = '<get path="greet.py"/><update status="200">Now it is.</update>'
    async with SseServer(replies=[claims, late]) as server:
        done = await act(bench, server.url)

    assert (done.returncode, loop_status(done.stdout), len(server.requests)) == (0, 200, 2)
    outcomes = {path: record.get("outcome") for path, record in records(done.stdout).items()}
    assert [v for k, v in outcomes.items() if k.startswith("log://turn_1/update/")] in (
        ["conflict:409"],
        ["aborted:499"],
    )
