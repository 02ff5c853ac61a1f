"""`turnwright mcp serve`: the agent as an MCP server, its process called by a client of the official SDK."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest
from mcp import Client, StdioServerParameters

from e2e.cli_process import Bench

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(180)]

DONE = '<update status="200">Done.</update>'


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path, {"HOME": str(tmp_path)})


@asynccontextmanager
async def agent(bench, *arguments, **client):
    """A client of the process."""
    program, *words = bench.command("mcp", "serve", *arguments)
    server = StdioServerParameters(command=program, args=words, env=bench.env(), cwd=str(bench.project))
    async with asyncio.timeout(150), Client(server, **client) as made:
        yield made


async def call(client, tool, **arguments):
    """The result of a tool; fails if it is an error."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content[0].text
    assert json.loads(answer.content[0].text) == answer.structured_content
    return answer.structured_content


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_task_is_given_and_its_proposal_decided(bench, mode):
    (bench.project / "a.txt").write_text("old\n")
    bench.script("m", '<set path="a.txt">new\n</set>', DONE)
    async with agent(bench, "-m", "m", mode=mode) as client:
        tools = {one.name: one for one in (await client.list_tools()).tools}
        assert set(tools) == {"act", "ask", "runs", "decide"}
        assert [name for name, one in tools.items() if one.annotations.read_only_hint] == ["ask", "runs"]

        state = await call(client, "act", prompt="Write.", wait_s=100)
        assert state["status"] == "waits"
        (waiting,) = state["waiting"]
        assert (waiting["kind"], waiting["tool"]) == ("files", "set")
        assert "+new" in waiting["effect"]
        assert (bench.project / "a.txt").read_text() == "old\n"

        decided = {"run": state["run"], "path": waiting["path"], "accept": True, "wait_s": 100}
        state = await call(client, "decide", **decided)
        assert (state["status"], state["answer"]) == ("done", "Done.")
        assert (bench.project / "a.txt").read_text() == "new\n"
        listed = await call(client, "runs")
        assert [(one["run"], one["status"]) for one in listed["runs"]] == [(state["run"], "done")]
        # Deciding twice is told in words, and decides nothing.
        again = await client.call_tool("decide", decided)
        assert again.is_error
        assert "accepted" in again.content[0].text


async def test_a_question_is_answered_and_a_run_is_continued(bench):
    bench.script("m", '<ask_user question="Which one?"/>', '<update status="200">It is blue.</update>')
    async with agent(bench, "-m", "m") as client:
        first = await call(client, "ask", prompt="Which?", wait_s=100)
        (waiting,) = first["waiting"]
        assert (waiting["kind"], waiting["effect"]) == ("question", "Which one?")
        answer = {"run": first["run"], "path": waiting["path"], "accept": True, "answer": "Blue", "wait_s": 100}
        done = await call(client, "decide", **answer)
        assert (done["run"], done["answer"]) == (first["run"], "It is blue.")

        again = await call(client, "act", prompt="Paint.", run=first["run"], wait_s=0)
        waits = await call(client, "runs", run=again["run"], wait_s=100)
        assert (waits["run"], waits["status"], len(waits["waiting"])) == (first["run"], "waits", 1)


async def test_a_task_goes_on_after_the_wait_and_a_cancelled_call_takes_it_along(bench):
    bench.script("m", "=== reply chunk_chars=1 delay_ms=3600000 ===\nNever.")
    async with agent(bench, "-m", "m") as client:
        state = await call(client, "act", prompt="Wait.", wait_s=0.1)
        assert state["status"] in ("queued", "running")
        began = asyncio.Event()

        async def told(progress, total, message):
            began.set()

        going = asyncio.create_task(
            client.call_tool("act", {"prompt": "Wait.", "wait_s": 3000}, progress_callback=told)
        )
        await began.wait()
        going.cancel()
        await asyncio.gather(going, return_exceptions=True)
        while True:
            runs = (await call(client, "runs"))["runs"]
            statuses = {one["run"]: one["status"] for one in runs}
            if sorted(statuses.values()) == ["running", "stopped"]:
                break
            await asyncio.sleep(0.1)
        assert statuses[state["run"]] == "running"


@pytest.mark.parametrize(
    ("tool", "arguments", "words"),
    [
        ("act", {}, "prompt"),
        ("act", {"prompt": ""}, "prompt"),
        ("act", {"prompt": "Do.", "yolo": True}, "yolo"),
        ("act", {"prompt": "Do.", "model": "nobody/x"}, "nobody"),
        ("act", {"prompt": "Do.", "run": "none"}, "no run 'none'"),
        ("ask", {"prompt": "Do.", "run": "none", "model": "m"}, "no run 'none'"),
        ("runs", {"run": "none"}, "none"),
        ("runs", {"wait_s": -1}, "wait_s"),
        ("decide", {"run": "none", "path": "log://x", "accept": True}, "none"),
        ("erase", {}, "act, ask, runs, decide"),
    ],
)
async def test_a_wrong_call_is_told_what_is_wrong(bench, tool, arguments, words):
    bench.script("m", DONE)
    async with agent(bench, "-m", "m") as client:
        answer = await client.call_tool(tool, arguments)
        assert answer.is_error
        assert words in answer.content[0].text


@pytest.mark.parametrize(("model", "words"), [("n", "no model 'n'"), ("nobody/x", "no vendor nobody")])
async def test_a_model_that_is_not_there_is_told_before_any_call(bench, model, words):
    bench.script("m", DONE)
    task = await asyncio.to_thread(bench.run, "act", "-m", model, "Do.")
    process = await asyncio.create_subprocess_exec(
        *bench.command("mcp", "serve", "-m", model),
        env=bench.env(),
        cwd=bench.project,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        # Its input stays open, as that of a client that waits for an answer.
        async with asyncio.timeout(60):
            said = [await stream.read() for stream in (process.stdout, process.stderr)]
            ended = await process.wait()
    finally:
        process.stdin.close()
        await process.wait()
    assert (ended, *said) == (task.returncode, b"", task.stderr.encode())
    assert words in task.stderr
