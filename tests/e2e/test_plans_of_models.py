"""A model plans, works and adds to its plan in one turn: its next packet, the project and the shell have it all. RP01, RP05."""

from __future__ import annotations

import asyncio
import subprocess

import pytest

from e2e.cli_process import PORTS, Bench, json_lines, loop_status
from sse_server import SseServer
from turnwright_cli.discovery import read_record
from turnwright_client import Client

DELTA = "The greeting is fixed; testing is left."
PLAN = "# Goal\n1. fix the greeting\n2. test it"
WORK = (
    f"<set_plan>{PLAN}</set_plan>"
    '<set path="greet.py"><<SEARCH\nhelo\nSEARCH\n<<REPLACE\nhello\nREPLACE</set>'
    f"<update_plan>{DELTA}</update_plan>"
    '<update status="102">Fixed.</update>'
)
DONE = '<update status="200">All is done.</update>'


@pytest.fixture
def bench(tmp_path) -> Bench:
    """A project in git."""
    made = Bench(tmp_path, {"TURNWRIGHT_MODEL_tiny": "openai/tiny"})
    made.script("m", WORK, DONE)
    (made.project / "greet.py").write_text('print("helo")\n')
    identity = ("-c", "user.name=Dev", "-c", "user.email=dev@localhost")
    for arguments in (("init", "--quiet"), ("add", "."), (*identity, "commit", "--quiet", "-m", "Greet")):
        git(made, *arguments)
    return made


def git(bench, *arguments) -> str:
    done = subprocess.run(["git", *arguments], cwd=bench.project, check=True, capture_output=True, text=True)
    return done.stdout


def act(bench, model, **env) -> str:
    done = bench.run("act", "Greet rightly.", "--run", "r", "--model", model, "--yolo", "--json", **env)
    assert (done.returncode, done.stderr, loop_status(done.stdout)) == (0, "", 200)
    return done.stdout


async def read_by_model(bench) -> str:
    """What the model was sent in the second turn."""
    async with Client.connect(read_record(bench.home).executor, (bench.home / "token").read_text().strip()) as client:
        project = (await client.init_project(str(bench.project))).name
        return (await client.get_entry(project, "r", "user://2")).body


def section(packet, name) -> str:
    return packet.partition(f"<{name}>\n")[2].partition(f"\n</{name}>")[0]


def check_packet(packet) -> None:
    assert section(packet, "plans") == (
        f'<plan plan_id="main" version="1" mode="act">\n<<:::plan://main\n{PLAN}\n:::plan://main\n</plan>'
    )
    log = section(packet, "log")
    update = '<plan-update plan_id="main" version="1" sequence="1">\n'
    update += f"<<:::plan://main/v1/1\n{DELTA}\n:::plan://main/v1/1\n</plan-update>"
    assert log.count(DELTA) == 1
    assert log.index(":::log://turn_1/update/4\n</update>") < log.index(update)


def check_told(bench) -> None:
    assert '-print("helo")\n+print("hello")\n' in git(bench, "diff")
    assert git(bench, "status", "--short") == " M greet.py\n"
    assert bench.run("plan", "show", "r").stdout.splitlines()[1:] == [
        "main\t1\tact\tmarkdown\t\t\t# Goal\\n1. fix the greeting\\n2. test it\t",
        f"main\t1\tact\tdelta\t\t\t{DELTA}\t",
    ]
    shown = bench.run("runs", "show", "r").stdout
    assert shown.startswith("r: 200 done, 2 turns\n")
    assert "\nplan main, version 1: 1 delta\n" in shown


@pytest.mark.slow
def test_a_plan_of_a_model_reaches_its_next_packet_and_the_shell(bench) -> None:
    with bench.running("serve", *PORTS) as served:
        served.wait_for("^executor serves at ", "err")
        act(bench, "m")
        check_packet(asyncio.run(read_by_model(bench)))
        check_told(bench)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_model_behind_http_is_sent_its_plan(bench) -> None:
    async with SseServer(replies=[WORK, DONE]) as server:
        told = await asyncio.to_thread(act, bench, "tiny", OPENAI_BASE_URL=server.url)
    check_packet(server.requests[1].json["messages"][1]["content"])
    check_told(bench)
    plans = [message["plan_updated"] for message in json_lines(told) if "plan_updated" in message]
    assert [(plan["version"], len(plan.get("deltas", ()))) for plan in plans][-1] == (1, 1)
