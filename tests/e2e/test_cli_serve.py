"""Stacks and their clients: serve and attach, four processes, commands that share an embedded stack, the library."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal

import pytest
from turnwright.types.v1 import loop_pb2, settings_pb2

from e2e.cli_process import PORTS, Bench, Process, loop_status
from turnwright_client import Client, RunView, WatchPolicy
from turnwright_core.errors import Reason, TurnwrightError

EDIT = '<set path="a.txt">new</set><update status="102">Edited.</update>'
DONE = '<update status="200">All is done.</update>'
SLOW = "=== reply after_ms=3000 ===\n" + DONE


@pytest.fixture
def bench(tmp_path) -> Bench:
    made = Bench(tmp_path)
    made.script("m", EDIT, DONE, DONE)
    made.script("slow", SLOW)
    return made


def address_of(process: Process, name: str = "executor") -> str:
    return process.wait_for(rf"^{name} serves at (\S+)$", "err")[1]


def record(bench: Bench) -> dict:
    return json.loads((bench.home / "run" / "stack.json").read_text())


def until(name: str) -> str:
    """A reply whose command runs until the project has a file of this name."""
    return f'<sh>while [ ! -e {name} ]; do sleep 0.1; done</sh><update status="102">Waiting.</update>'


def settings(model: str, **more) -> settings_pb2.LoopSettings:
    return settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, model=model, **more)


def test_serve_waits_for_its_database_and_a_command_does_not(bench) -> None:
    bench.environment["TURNWRIGHT_DB"] = "postgresql://who:secret@127.0.0.1:1/none"
    with bench.running("serve", *PORTS) as server:
        server.wait_for("database_awaited", "err")
        server.popen.send_signal(signal.SIGTERM)
        assert server.popen.wait(60) == 0
    done = bench.run("act", "Edit it.", "--model", "m")
    assert done.returncode == 5
    assert "127.0.0.1:1/none cannot be reached" in done.stderr
    assert "secret" not in done.stderr


def test_commands_attach_to_what_serves_the_home(bench) -> None:
    with bench.running("serve", *PORTS) as server:
        address = address_of(server)
        services = {name: address_of(server, name) for name in ("store", "provider", "assembler", "executor")}
        expected = {"executor": address, "pid": server.popen.pid, "embedded": False, "http": "", "services": services}
        assert record(bench) == expected

        done = bench.run("act", "Edit it.", "--model", "m", "--yolo", "--json")
        models = bench.run("models")
        doctor = bench.run("doctor")

        assert (done.returncode, loop_status(done.stdout)) == (0, 200)
        assert record(bench)["pid"] == server.popen.pid
        assert "scripted/m" in models.stdout
        assert "32,768 (assumed)" in models.stdout
        assert doctor.returncode == 0
        assert "executor: serves at " in doctor.stdout
        assert f"store: serves at {address_of(server, 'store')}" in doctor.stdout
        assert "but not sandboxed" in doctor.stdout
        assert server.stop() == 0
    assert not (bench.home / "run" / "stack.json").exists()


def test_a_second_executor_of_a_home_leaves_commands_with_the_first(bench) -> None:
    with bench.running("serve", *PORTS) as server:
        peers = [
            part for name in ("store", "assembler", "provider") for part in (f"--{name}", address_of(server, name))
        ]
        first = address_of(server)
        with bench.running("serve", "--only", "executor", "--listen", "127.0.0.1:0", *peers) as second:
            assert address_of(second) != first
            found = record(bench)
            assert found.pop("services")["executor"] == first
            assert found == {"executor": first, "pid": server.popen.pid, "embedded": False, "http": ""}
            assert second.stop() == 0
        assert record(bench)["executor"] == first
        assert server.stop() == 0
    assert not (bench.home / "run" / "stack.json").exists()


def test_a_second_stack_on_one_home_is_refused(bench) -> None:
    with bench.running("serve", *PORTS) as server:
        address_of(server)
        second = bench.run("serve", *PORTS)

        assert second.returncode == 5
        assert "in use" in second.stderr
        assert record(bench)["pid"] == server.popen.pid


def test_four_processes_work_as_one(bench) -> None:
    with contextlib.ExitStack() as stack:

        def started(name: str, *options: str) -> str:
            arguments = ("serve", "--only", name, "--listen", "127.0.0.1:0", *options)
            return address_of(stack.enter_context(bench.running(*arguments)), name)

        store, provider = started("store"), started("provider")
        assembler = started("assembler", "--store", store)
        executor = started("executor", "--store", store, "--assembler", assembler, "--provider", provider)

        done = bench.run("act", "Edit it.", "--model", "m", "--yolo", "--json", "--server", executor)
        stranger = bench.run(
            "act", "Edit it.", "--model", "m", "--json", "--server", executor, TURNWRIGHT_TOKEN="wrong"
        )

    assert (done.returncode, loop_status(done.stdout)) == (0, 200)
    assert (bench.project / "a.txt").read_text() == "new"
    assert (stranger.returncode, stranger.stdout) == (5, "")
    assert "TURNWRIGHT_TOKEN" in stranger.stderr


def test_doctor_beside_one_service_says_what_it_knows_without_a_token(bench, tmp_path) -> None:
    """As in a pod: each service has a home of its own, and the store alone has the secret."""
    store = {"TURNWRIGHT_HOME": str(tmp_path / "store"), "TURNWRIGHT_TOKEN": "s" * 40}

    def made(*words: str) -> str:
        return bench.run("token", *words, **store).stdout.strip()

    def own(name: str, *called: str) -> dict[str, str]:
        tokens = {
            other: made("create", "--offline", "--kind", "service", "--principal", name, "--audience", other)
            for other in called
        }
        pairs = ",".join(f"{other}={token}" for other, token in tokens.items())
        return {
            "TURNWRIGHT_HOME": str(tmp_path / name),
            "TURNWRIGHT_KEYS": made("key", name),
            "TURNWRIGHT_PEER_TOKENS": pairs,
        }

    with contextlib.ExitStack() as stack:

        def started(name: str, given: dict[str, str], *options: str) -> tuple[Process, str]:
            words = ("serve", "--only", name, "--listen", "127.0.0.1:0", *options)
            process = stack.enter_context(bench.running(*words, **given))
            return process, address_of(process, name)

        pods = {"store": store, "provider": own("provider"), "assembler": own("assembler", "store")}
        pods["executor"] = own("executor", "store", "assembler", "provider")
        store_process, store_address = started("store", store)
        addresses = {"store": store_address, "provider": started("provider", pods["provider"])[1]}
        addresses["assembler"] = started("assembler", pods["assembler"], "--store", store_address)[1]
        peers = [word for name, address in addresses.items() for word in (f"--{name}", address)]
        addresses["executor"] = started("executor", pods["executor"], *peers)[1]

        for name, given in pods.items():
            told = bench.run("doctor", **given)
            assert told.returncode == 0, (name, told)
            assert f"{name}: serves at {addresses[name]}" in told.stdout
            assert "not asked: vendors, models" in told.stdout
            assert "TURNWRIGHT_TOKEN=s" not in told.stdout
            # Nothing was started for the question.
            assert not list((tmp_path / name / "run").glob("*.sock"))
        told = json.loads(bench.run("doctor", "--json", **pods["executor"]).stdout)
        assert {one["name"] for one in told["services"] if one["serving"]} == {
            f"SERVICE_NAME_{name.upper()}" for name in addresses
        }
        # With the token of an operator there is more to say.
        bench.run("grant", "set", "operator", "user:ops", "--deployment", "--server", store_address, **store)
        token = made("create", "--offline", "--principal", "ops")
        told = bench.run("doctor", **{**pods["executor"], "TURNWRIGHT_TOKEN": token})
        assert (told.returncode, "not asked" in told.stdout) == (0, False), told
        assert "confinement: commands are limited" in told.stdout

        assert store_process.stop() == 0
        # It looks every two seconds, and believes the second look.
        for _ in range(60):
            told = bench.run("doctor", **pods["assembler"])
            if told.returncode:
                break
        assert told.returncode == 5
        assert "store: the address that the assembler calls: not ready" in told.stdout


def test_a_stack_that_others_use_stays_until_they_are_done(bench) -> None:
    bench.script("one", until("one"), DONE)
    bench.script("two", until("two"), DONE)
    with bench.running("act", "One.", "--model", "one", "--yolo", "--json") as first:
        first.wait_for("turn_started")
        with bench.running("act", "Two.", "--model", "two", "--yolo", "--json") as second:
            second.wait_for("turn_started")
            (bench.project / "one").touch()
            first.wait_for("still at work on other tasks", "err")
            assert loop_status("\n".join(first.lines["out"])) == 200
            (bench.project / "two").touch()

            assert (first.end(), second.end()) == (0, 0)

    assert loop_status("\n".join(second.lines["out"])) == 200
    assert not (bench.home / "run" / "stack.json").exists()


def test_a_command_goes_on_when_the_stack_it_joined_dies(bench) -> None:
    with bench.running("act", "One.", "--model", "slow", "--json") as first:
        first.wait_for("turn_started")
        with bench.running("act", "Two.", "--model", "slow", "--json") as second:
            second.wait_for("turn_started")
            first.kill()

            assert second.end() == 0, second.lines["err"]

    assert any("continuing with other services" in line for line in second.lines["err"])
    assert loop_status("\n".join(second.lines["out"])) == 200


def test_two_commands_that_start_together_share_one_stack(bench) -> None:
    with (
        bench.running("act", "One.", "--model", "m", "--yolo", "--json", "--run", "a") as first,
        bench.running("act", "Two.", "--model", "slow", "--json", "--run", "b") as second,
    ):
        assert (first.end(), second.end()) == (0, 0), (first.lines["err"], second.lines["err"])


@pytest.mark.asyncio
async def test_the_library_watches_across_a_restart_of_the_executor(bench) -> None:
    # The run of the executor that was killed is free when its lease has passed.
    bench.environment["TURNWRIGHT_LEASE_S"] = "1"
    with contextlib.ExitStack() as stack:

        def started(name: str, *options: str) -> str:
            arguments = ("serve", "--only", name, "--listen", "127.0.0.1:0", *options)
            return address_of(stack.enter_context(bench.running(*arguments)), name)

        store, provider = started("store"), started("provider")
        peers = ("--store", store, "--assembler", started("assembler", "--store", store), "--provider", provider)
        socket = f"unix:{bench.root}/e.sock"
        arguments = ("serve", "--only", "executor", "--listen", socket, *peers)
        loop = await _watch_across_a_restart(bench, socket, arguments)

    assert (loop.sequence, loop.status) == (1, 200)


async def _watch_across_a_restart(bench: Bench, socket: str, arguments: tuple[str, ...]) -> loop_pb2.Loop:
    token = (bench.home / "token").read_text().strip()
    with bench.running(*arguments) as executor:
        await asyncio.to_thread(address_of, executor)
        async with Client.connect(socket, token, policy=WatchPolicy(retries_max=60, backoff_s_max=0.5)) as client:
            project = await client.init_project(str(bench.project))
            queued = await client.act(project.name, "Wait.", settings=settings("slow"))
            ended = asyncio.create_task(
                client.wait_loop(project.name, queued.run, queued.sequence, after=queued.cursor)
            )
            events = client.watch(project.name, queued.run, queued.cursor)
            async with contextlib.aclosing(events):
                async for event in events:
                    if event.WhichOneof("event") == "turn_started":
                        break
            executor.signal(signal.SIGKILL)
            await asyncio.to_thread(executor.end)
            with bench.running(*arguments):
                async with asyncio.timeout(60):
                    return await ended


@pytest.mark.asyncio
async def test_the_library_folds_to_what_a_snapshot_says(bench) -> None:
    # RE08 over a real executor: the fold of all events equals a snapshot taken after them.
    with bench.running("serve", *PORTS) as server:
        address = await asyncio.to_thread(address_of, server)
        token = (bench.home / "token").read_text().strip()
        async with Client.connect(address, token) as client:
            project = (await client.init_project(str(bench.project))).name
            queued = await client.act(project, "Edit it.", settings=settings("m"))
            followed, compared = RunView(run=queued.state), 0
            async with contextlib.aclosing(client.watch(project, queued.run, queued.cursor)) as events:
                async for event in events:
                    followed.apply(event)
                    compared += await _compared_with_a_snapshot(client, project, queued.run, followed)
                    if followed.proposals and event.WhichOneof("event") == "run_state":
                        path = next(iter(followed.proposals))
                        await client.resolve(project, queued.run, path, accept=True)
                    if event.WhichOneof("event") == "run_state" and event.run_state.loop.status == 200:
                        break

            entry = await client.get_entry(project, queued.run, "assistant://1")
            answer = await client.get_run(project, queued.run, turns_max=10)
            models = [model.alias for model in await client.list_models()]
            runs = [run.run async for run in client.list_runs(project)]
            with pytest.raises(TurnwrightError) as unknown:
                await client.get_entry(project, queued.run, "log://none")

    # While the run waits for the decision, and when it has ended, nothing moves between the two.
    assert compared >= 2
    assert entry.body == EDIT
    assert [turn.number for turn in answer.turns] == [2, 1]
    assert (sorted(models), runs) == (["m", "slow"], [queued.run])
    assert unknown.value.reason is Reason.ENTRY_NOT_FOUND


async def _compared_with_a_snapshot(client: Client, project: str, run: str, followed: RunView) -> int:
    """Where a snapshot says the same moment, it says the same state; 1 when it did."""
    taken = RunView()
    async with contextlib.aclosing(client.watch(project, run)) as events:
        async for event in events:
            taken.apply(event)
            if taken.run is not None:
                break
    if taken.cursor != followed.cursor:
        return 0
    assert taken == followed
    return 1
