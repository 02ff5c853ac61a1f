"""Shell commands in real processes. Row RU163; architecture 6, 11; research on sandboxing."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from turnwright_executor.edge.shell import LocalShell, ShellLimits, allowed_environment
from turnwright_executor.tools.ports import CommandEnd

QUICK = ShellLimits(term_grace_s=0.2, close_grace_s=0.2)


def is_alive(pid: int) -> bool:
    """Whether a process runs; one that only waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def gone(pid: int) -> bool:
    for _ in range(200):
        if not is_alive(pid):
            return True
        await asyncio.sleep(0.02)
    return False


async def run(root, command: str, timeout_s: float = 30.0, limits: ShellLimits = QUICK, **others):
    """The end of a command and its two outputs."""
    texts = {1: "", 2: ""}

    async def keep(channel: int, text: str) -> None:
        texts[channel] += text

    end = await LocalShell(root, limits, **others).run(command, timeout_s, keep)
    return end, texts[1], texts[2]


@pytest.mark.asyncio
async def test_output_and_exit_code_are_told_apart(tmp_path):
    times = iter([10.0, 12.5])
    end, out, err = await run(tmp_path, "pwd; echo problem >&2; exit 3", clock=lambda: next(times))
    assert end == CommandEnd(exit_code=3, duration_s=2.5, timed_out=False, output_cut=False)
    assert (out, err) == (f"{tmp_path.resolve()}\n", "problem\n")


@pytest.mark.parametrize(
    "command", ["echo 'a  b' \"$((1 + 1))\"", "printf '%s' \"it's\"", "cat <<'X'\n$HOME\nX", "echo '\"); exit 9'"]
)
@pytest.mark.asyncio
async def test_the_command_reaches_the_shell_as_it_was_written(tmp_path, command):
    process = await asyncio.create_subprocess_exec("/bin/sh", "-c", command, stdout=asyncio.subprocess.PIPE)
    expected, _ = await process.communicate()
    end, out, _ = await run(tmp_path, command)
    assert (out, end.exit_code) == (expected.decode(), process.returncode)


@pytest.mark.asyncio
async def test_there_is_no_input(tmp_path):
    end, out, _ = await run(tmp_path, "cat; echo end")
    assert (out, end.exit_code) == ("end\n", 0)


@pytest.mark.asyncio
async def test_secrets_of_the_executor_do_not_reach_a_command(tmp_path, monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "hush-1")
    monkeypatch.setenv("TURNWRIGHT_TOKEN", "hush-2")
    monkeypatch.setenv("LC_MESSAGES", "C")
    _, out, _ = await run(tmp_path, "env")
    assert "hush" not in out
    assert "LC_MESSAGES=C" in out
    assert "TERM=dumb" in out


def test_the_environment_is_a_list_of_what_is_allowed():
    kept = allowed_environment(
        {"PATH": "/bin", "HOME": "/h", "AWS_SECRET_ACCESS_KEY": "x", "MY_VAR": "y", "TERM": "xterm"}
    )
    assert {key: kept[key] for key in ("PATH", "HOME", "TERM")} == {"PATH": "/bin", "HOME": "/h", "TERM": "dumb"}
    assert not {"AWS_SECRET_ACCESS_KEY", "MY_VAR"} & kept.keys()


@pytest.mark.asyncio
async def test_a_command_over_its_time_is_stopped_with_all_its_children(tmp_path):
    end, out, _ = await run(tmp_path, "sleep 300 & echo $!; sleep 300", timeout_s=0.5)
    assert end.timed_out
    assert end.exit_code == -signal.SIGTERM
    assert await gone(int(out))


@pytest.mark.asyncio
async def test_a_command_that_ignores_the_request_to_end_is_killed(tmp_path):
    end, _, _ = await run(tmp_path, "trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.3)
    assert (end.timed_out, end.exit_code) == (True, -signal.SIGKILL)


@pytest.mark.asyncio
async def test_a_cancelled_command_is_stopped_with_all_its_children(tmp_path):
    started = asyncio.Event()
    pids = []

    async def keep(_channel, text):
        pids.append(int(text))
        started.set()

    task = asyncio.create_task(LocalShell(tmp_path, QUICK).run("sleep 300 & echo $!; wait", 60, keep))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert await gone(pids[0])


@pytest.mark.asyncio
async def test_a_reader_that_fails_stops_the_command(tmp_path):
    async def fail(_channel, _text):
        raise RuntimeError("the store is gone")

    with pytest.raises(RuntimeError, match="the store is gone"):
        await LocalShell(tmp_path, QUICK).run("echo a; sleep 300", 60, fail)


@pytest.mark.asyncio
async def test_background_processes_end_with_their_command(tmp_path):
    end, out, _ = await run(tmp_path, "sleep 300 & echo $!")
    assert end.exit_code == 0
    assert await gone(int(out))


@pytest.mark.asyncio
async def test_a_process_that_left_the_group_is_not_waited_for(tmp_path):
    end, out, _ = await run(tmp_path, "setsid sh -c 'echo $$; exec sleep 60' & sleep 0.2; echo done")
    os.kill(int(out.split()[0]), signal.SIGKILL)
    assert end.exit_code == 0
    assert out.endswith("done\n")


@pytest.mark.asyncio
async def test_waiting_for_all_children_does_not_wait_for_the_runtime(tmp_path):
    script = "import os\ntry:\n  os.wait()\nexcept ChildProcessError:\n  print('no children')"
    _, out, _ = await run(tmp_path, f'wait; exec {sys.executable} -c "{script}"')
    assert out == "no children\n"


@pytest.mark.asyncio
async def test_a_command_does_not_outlive_its_executor(tmp_path):
    program = (
        "import asyncio\n"
        "from turnwright_executor.edge.shell import LocalShell\n"
        "async def keep(channel, text): print(text, end='', flush=True)\n"
        f"asyncio.run(LocalShell({str(tmp_path)!r}).run('trap \"\" TERM; echo $$; sleep 300; sleep 300', 600, keep))\n"
    )
    executor = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    pid = int(await executor.stdout.readline())
    assert is_alive(pid)
    executor.kill()
    await executor.wait()
    assert await gone(pid)


@pytest.mark.asyncio
async def test_output_over_the_limit_is_cut_and_the_command_goes_on(tmp_path):
    limits = ShellLimits(output_bytes=1000, close_grace_s=0.2)
    end, out, err = await run(tmp_path, "yes | head -c 3000000; echo last >&2; touch ran", limits=limits)
    assert (end.exit_code, end.output_cut) == (0, True)
    assert out.startswith("y\n" * 500)
    assert out[1000:] == "\n[the rest of the output was cut]\n"
    assert err == "last\n"
    assert (tmp_path / "ran").exists()


@pytest.mark.asyncio
async def test_output_of_exactly_the_limit_is_not_cut(tmp_path):
    limits = ShellLimits(output_bytes=1000, close_grace_s=0.2)
    end, out, _ = await run(tmp_path, "head -c 1000 /dev/zero | tr '\\0' x", limits=limits)
    assert (end.output_cut, out) == (False, "x" * 1000)


@pytest.mark.asyncio
async def test_all_output_arrives_when_the_reader_is_slow(tmp_path):
    pieces = []

    async def keep(_channel, text):
        await asyncio.sleep(0.3)
        pieces.append(text)

    await LocalShell(tmp_path, QUICK).run("seq 60000", 30, keep)
    assert "".join(pieces) == "".join(f"{number}\n" for number in range(1, 60001))


@pytest.mark.asyncio
async def test_characters_are_not_torn_and_bytes_that_are_none_are_replaced(tmp_path):
    _, out, _ = await run(tmp_path, r"printf '\303'; sleep 0.3; printf '\244 \377 a\000b \342'")
    assert out == "ä \ufffd a\ufffdb \ufffd"


@pytest.mark.asyncio
async def test_small_output_arrives_while_the_command_runs(tmp_path):
    arrived = asyncio.Event()

    async def keep(_channel, text):
        assert text == "early\n"
        arrived.set()
        (tmp_path / "go").touch()

    # The command ends only once its output has been seen.
    await LocalShell(tmp_path, QUICK).run("echo early; until [ -e go ]; do sleep 0.02; done", 30, keep)
    assert arrived.is_set()


@pytest.mark.asyncio
async def test_few_pieces_carry_many_lines(tmp_path):
    pieces = []

    async def keep(_channel, text):
        pieces.append(text)

    await LocalShell(tmp_path, QUICK).run("for n in 1 2 3 4 5; do echo $n; done", 30, keep)
    assert pieces == ["1\n2\n3\n4\n5\n"]


@pytest.mark.parametrize(
    ("limits", "letter", "shown"),
    [
        (ShellLimits(cpu_s=7), "t", "7"),
        (ShellLimits(files=64), "n", "64"),
        (ShellLimits(memory_mb=256), "v", str(256 * 1024)),
        (ShellLimits(file_mb=1), "f", "2048"),
        (ShellLimits(), "c", "0"),
    ],
)
@pytest.mark.asyncio
async def test_limits_hold_for_the_command(tmp_path, limits, letter, shown):
    _, out, _ = await run(tmp_path, f"ulimit -{letter}; ulimit -H -{letter}", limits=limits)
    assert out.split() == [shown, shown]


@pytest.mark.asyncio
async def test_a_process_that_wants_too_much_memory_fails(tmp_path):
    limits = ShellLimits(memory_mb=512, close_grace_s=0.2)
    end, _, err = await run(tmp_path, f"{sys.executable} -c 'bytes(2**30)'", limits=limits)
    assert end.exit_code != 0
    assert "MemoryError" in err


@pytest.mark.asyncio
async def test_a_root_that_is_gone_is_an_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        await run(tmp_path / "nowhere", "true")


@pytest.mark.asyncio
async def test_no_descriptor_is_left_open(tmp_path):
    await run(tmp_path, "true")
    before = descriptors()
    for command in ("true", "sleep 60 & true", "exit 1"):
        await run(tmp_path, command)
    assert descriptors() == before
