"""The process of an agent: its standard streams, its end, and the cases of its wire (AG01-AG03, AG09)."""

import json
import signal
import subprocess
import sys
import threading

import pytest

from e2e.cli_process import Bench

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

INITIALIZE = {"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": 1}}


@pytest.fixture
def bench(tmp_path):
    made = Bench(tmp_path, {"HOME": str(tmp_path)})
    made.script("m", "=== reply chunk_chars=4 delay_ms=200 ===\n" + "A long story. " * 400)
    return made


def lines(*messages):
    return b"".join(json.dumps(one).encode() + b"\n" for one in messages)


def test_it_ends_with_0_in_the_middle_of_a_prompt_and_writes_nothing_but_the_protocol(bench):
    command = bench.command("acp", "--model", "m")
    with subprocess.Popen(
        command, env=bench.env(PYTHONUNBUFFERED="1"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=bench.project
    ) as process:
        new = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "session/new",
            "params": {"cwd": str(bench.project), "mcpServers": []},
        }
        process.stdin.write(b"7\n" + lines(INITIALIZE, new))
        process.stdin.flush()
        read = []

        def next_with(is_it):
            while True:
                read.append(json.loads(process.stdout.readline()))
                if is_it(read[-1]):
                    return read[-1]

        session = next_with(lambda one: one.get("id") == 1)["result"]["sessionId"]
        prompt = {"sessionId": session, "prompt": [{"type": "text", "text": "Tell."}]}
        process.stdin.write(lines({"jsonrpc": "2.0", "id": 2, "method": "session/prompt", "params": prompt}))
        process.stdin.flush()
        next_with(lambda one: one.get("method") == "session/update")
        process.stdin.close()
        rest = process.stdout.read()
        assert process.wait(120) == 0
    assert read[0]["error"]["code"] == -32600
    assert all(json.loads(line)["jsonrpc"] == "2.0" for line in rest.splitlines())


def test_its_streams_may_be_files(bench, tmp_path):
    (tmp_path / "in").write_bytes(lines(INITIALIZE, {"jsonrpc": "2.0", "id": 1, "method": "session/list"}))
    with (tmp_path / "in").open("rb") as given, (tmp_path / "out").open("wb") as written:
        done = subprocess.run(
            bench.command("acp"),
            env=bench.env(),
            stdin=given,
            stdout=written,
            cwd=bench.project,
            timeout=120,
            check=False,
        )
    assert done.returncode == 0
    first = json.loads((tmp_path / "out").read_text().splitlines()[0])
    assert first["result"]["protocolVersion"] == 1


def test_a_client_that_stops_to_read_does_not_keep_it_from_ending(bench):
    with subprocess.Popen(
        bench.command("acp"), env=bench.env(), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:

        def write():
            process.stdin.write(b"7\n" * 3_000)
            process.stdin.close()

        writing = threading.Thread(target=write)
        writing.start()
        writing.join()
        assert process.wait(120) == 0


def test_what_else_is_printed_does_not_get_between_its_lines(bench):
    program = (
        "import signal; from turnwright_cli.__main__ import run; "
        "signal.signal(signal.SIGUSR2, lambda *_: print('a farewell', flush=True)); run()"
    )
    command = [sys.executable, "-c", program, "acp"]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, env=bench.env(), **pipes) as process:
        process.stdin.write(lines(INITIALIZE))
        process.stdin.flush()
        first = process.stdout.readline()
        process.send_signal(signal.SIGUSR2)
        rest, said = process.communicate(lines({"jsonrpc": "2.0", "id": 1, "method": "session/dance"}), timeout=120)
    assert process.returncode == 0
    assert [json.loads(line)["id"] for line in [first, *rest.splitlines()]] == [0, 1]
    assert b"a farewell" in said
