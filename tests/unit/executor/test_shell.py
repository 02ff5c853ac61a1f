"""Shell commands in real processes. Row RU163; architecture 6, 11; research on sandboxing."""

import asyncio
import os
import resource
import signal
import sys
import time
from pathlib import Path

import pytest

from living import is_alive
from turnwright_executor.files.scan import DiskScanner
from turnwright_executor.shell.output import PIECE_WAIT_S
from turnwright_executor.shell.shell import LocalShell, ShellLimits
from turnwright_executor.tools.ports import ChangedFile, CommandEnd
from turnwright_kit.sandbox.environment import allowed_environment

QUICK = ShellLimits(term_grace_s=0.2, close_grace_s=0.2)


def descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


async def gone(pid: int) -> bool:
    for _ in range(3000):
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


async def run_over_its_time(root, command: str, limits: ShellLimits = QUICK):
    """The end and the output of a command that is stopped after it has said something, however slow the machine."""
    for timeout_s in (0.5, 5.0, 50.0):
        end, out, _ = await run(root, command, timeout_s, limits)
        if out:
            return end, out
    raise AssertionError("it says nothing")


@pytest.mark.asyncio
async def test_output_and_exit_code_are_distinguished(tmp_path):
    times = iter([10.0, 12.5])
    end, out, err = await run(tmp_path, "pwd; echo problem >&2; exit 3", clock=lambda: next(times))
    assert end == CommandEnd(exit_code=3, duration_s=2.5, timed_out=False, output_cut=False)
    assert (out, err) == (f"{tmp_path.resolve()}\n", "problem\n")


@pytest.mark.parametrize("has_git", [True, False])
@pytest.mark.asyncio
async def test_the_files_that_a_command_changed_are_reported(tmp_path, has_git):
    if has_git:
        await run(tmp_path, "git init -q")
    (tmp_path / "folder").mkdir()
    for file in ("same", "new_text", "as_long", "gone", "folder/moved"):
        (tmp_path / file).write_text("text\n")
    (tmp_path / ".hidden").mkdir()
    files = DiskScanner(tmp_path, file_bytes_max=1000, files_max=100)
    command = (
        "echo more >> new_text; printf 'texT\n' > as_long; rm gone; mv folder other; ln -s same link; mkfifo pipe;"
        "mkdir -p deep/er; echo > deep/er/made; cat same; exit 1"
    )
    end, _, _ = await run(tmp_path, command, files=files)
    assert end.changed == (
        ChangedFile("as_long", "change"),
        ChangedFile("deep/er/made", "create"),
        ChangedFile("folder/moved", "remove"),
        ChangedFile("gone", "remove"),
        ChangedFile("new_text", "change"),
        ChangedFile("other/moved", "create"),
    )
    assert (await run(tmp_path, "cat same", files=files))[0].changed == ()


@pytest.mark.asyncio
async def test_nobody_looks_where_nothing_can_be_said(tmp_path):
    files = DiskScanner(tmp_path / "gone", file_bytes_max=1000, files_max=100)
    assert (await run(tmp_path, "touch a", files=files))[0].changed is None
    assert (await run(tmp_path, "touch a"))[0].changed is None


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
    end, out = await run_over_its_time(tmp_path, "sleep 300 & echo $!; sleep 300")
    assert end.timed_out
    assert end.exit_code == -signal.SIGTERM
    assert await gone(int(out))


@pytest.mark.asyncio
async def test_a_command_that_ignores_the_request_to_end_is_killed(tmp_path):
    end, _ = await run_over_its_time(tmp_path, "trap '' TERM; echo up; while :; do sleep 0.05; done")
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


ESCAPES = {
    "session": "setsid sh -c 'echo $$; exec sleep 300' &",
    "orphan": "(setsid sh -c 'echo $$; exec sleep 300' &);",
    "bare": "(env -i setsid sh -c 'echo $$; exec >/dev/null 2>&1; exec sleep 300' &);",
    "group": "(setsid timeout 300 sh -c 'echo $$; exec sleep 300' &);",
}
"""Ways out of a command's session and out of its family; each tells its number."""


@pytest.mark.parametrize("escape", ESCAPES.values(), ids=ESCAPES)
@pytest.mark.asyncio
async def test_a_process_that_left_the_session_ends_with_its_command(tmp_path, escape):
    # architecture 11
    end, out, _ = await run(tmp_path, f"{escape} sleep 0.3; echo done")
    assert (end.exit_code, out.endswith("done\n")) == (0, True)
    assert await gone(int(out.split()[0]))


@pytest.mark.parametrize(
    "escape",
    [pytest.param(way, marks=() if name == "group" else pytest.mark.soak, id=name) for name, way in ESCAPES.items()],
)
@pytest.mark.asyncio
async def test_a_process_that_left_the_session_is_stopped_with_a_command_over_its_time(tmp_path, escape):
    end, out = await run_over_its_time(tmp_path, f"{escape} sleep 300")
    assert end.timed_out
    assert await gone(int(out.split()[0]))


@pytest.mark.parametrize(
    "command",
    [
        *(f"{escape} sleep 300" for escape in ESCAPES.values()),
        'trap "" TERM; echo $$; sleep 300; sleep 300',
        "timeout 300 sh -c 'trap : TERM; echo $$; sleep 300'; sleep 300",
    ],
    ids=[*ESCAPES, "deaf", "grandchild"],
)
@pytest.mark.asyncio
async def test_no_process_of_a_command_outlives_its_executor(tmp_path, command):
    program = (
        "import asyncio\n"
        "from turnwright_executor.shell.shell import LocalShell\n"
        "async def keep(channel, text): print(text, end='', flush=True)\n"
        f"asyncio.run(LocalShell({str(tmp_path)!r}).run({command!r}, 600, keep))\n"
    )
    executor = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    pid = int(await executor.stdout.readline())
    assert is_alive(pid)
    executor.kill()
    await executor.wait()
    assert await gone(pid)


@pytest.mark.asyncio
async def test_a_command_that_signals_its_group_or_kills_who_holds_it_leaves_nothing(tmp_path):
    end, _, _ = await run(tmp_path, "kill -9 0; sleep 300")
    assert end.exit_code == -signal.SIGKILL
    end, out, _ = await run(tmp_path, "sleep 300 & echo $!; kill -9 $PPID; sleep 300")
    assert end.exit_code == -signal.SIGKILL
    assert await gone(int(out.split()[0]))


@pytest.mark.parametrize(
    ("escape", "blow"),
    [*((escape, "kill -9 $PPID") for escape in ESCAPES.values()), (ESCAPES["bare"], "kill -STOP $PPID; exit")],
    ids=[*ESCAPES, "stopped"],
)
@pytest.mark.asyncio
async def test_a_process_that_left_the_session_of_a_supervisor_that_is_gone_ends_all_the_same(tmp_path, escape, blow):
    # architecture 11
    limits = ShellLimits(term_grace_s=0.1, close_grace_s=0.1, kill_s=0.3)
    end, out = await run_over_its_time(tmp_path, f"{escape} sleep 0.2; {blow}; sleep 300", limits)
    assert end.exit_code
    assert await gone(int(out.split()[0]))


@pytest.mark.asyncio
async def test_a_command_sees_the_environment_that_it_was_given(tmp_path):
    _, out, _ = await run(tmp_path, "env", environment={"PATH": os.defpath})
    assert {line.partition("=")[0] for line in out.splitlines()} <= {"PATH", "PWD", "OLDPWD", "SHLVL", "_"}


@pytest.mark.asyncio
async def test_waiting_for_all_children_does_not_wait_for_the_runtime(tmp_path):
    script = "import os\ntry:\n  os.wait()\nexcept ChildProcessError:\n  print('no children')"
    _, out, _ = await run(tmp_path, f'wait; exec {sys.executable} -c "{script}"')
    assert out == "no children\n"


@pytest.mark.asyncio
async def test_of_a_long_output_beginning_and_end_are_kept_and_the_command_goes_on(tmp_path):
    limits = ShellLimits(output_bytes=1000, close_grace_s=0.2)
    end, out, err = await run(tmp_path, "seq -w 100000; echo last >&2; touch ran", limits=limits)
    every = "".join(f"{number:06}\n" for number in range(1, 100001))
    assert (end.exit_code, end.output_cut) == (0, True)
    assert out == f"{every[:500]}\n[{len(every) - 1000} bytes were left out here]\n{every[-500:]}"
    assert err == "last\n"
    assert (tmp_path / "ran").exists()


@pytest.mark.asyncio
async def test_a_command_that_leaves_nothing_behind_ends_at_once(tmp_path):
    """The time for background processes is for those only: whatever holds the command holds no output of it."""
    end, out, _ = await run(tmp_path, "echo x", limits=ShellLimits(close_grace_s=600.0))
    assert (end.exit_code, out) == (0, "x\n")


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

    end = await LocalShell(tmp_path, QUICK).run("for n in $(seq 500); do echo $n; done", 60, keep)
    assert "".join(pieces) == "".join(f"{number}\n" for number in range(1, 501))
    assert len(pieces) <= end.duration_s / PIECE_WAIT_S + 2


@pytest.mark.parametrize(
    ("limits", "letter", "shown"),
    [
        (ShellLimits(cpu_s=7), "t", "7"),
        (ShellLimits(files=64), "n", "64"),
        (ShellLimits(file_mb=1), "f", "2048"),
        (ShellLimits(), "c", "0"),
    ],
)
@pytest.mark.asyncio
async def test_limits_hold_for_the_command(tmp_path, limits, letter, shown):
    _, out, _ = await run(tmp_path, f"ulimit -{letter}; ulimit -H -{letter}", limits=limits)
    assert out.split() == [shown, shown]


@pytest.mark.asyncio
async def test_a_command_whose_processes_together_hold_too_much_memory_is_stopped(tmp_path):
    limits = ShellLimits(memory_mb=300, close_grace_s=0.2)
    hold = f"{sys.executable} -c \"import time; kept = b'x' * (120 << 20); time.sleep(60)\""
    end, _, _ = await run(tmp_path, f"{hold} & {hold} & {hold} & wait", 60.0, limits)
    assert (end.out_of_memory, end.timed_out, end.exit_code) == (True, False, -signal.SIGKILL)


@pytest.mark.asyncio
async def test_memory_that_is_reserved_and_not_used_is_free(tmp_path):
    limits = ShellLimits(memory_mb=300, weigh_s=0.05, close_grace_s=0.2)
    reserve = "import mmap, time; kept = mmap.mmap(-1, 8 << 30); time.sleep(0.5); print(len(kept) >> 30)"
    end, out, _ = await run(tmp_path, f"{sys.executable} -c '{reserve}'", 60.0, limits)
    assert (end.out_of_memory, out) == (False, "8\n")


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


@pytest.mark.asyncio
async def test_a_process_that_made_a_group_of_its_own_ends_with_its_command(tmp_path):
    # `timeout` does that; it stays in the session.
    made = "timeout 300 sleep 301 & echo $!; sleep 0.2; pgrep -P $! || true; sleep 300"
    end, out = await run_over_its_time(tmp_path, made)
    assert end.timed_out
    for pid in map(int, out.split()):
        assert await gone(pid)


@pytest.mark.slow
@pytest.mark.asyncio
async def test_a_command_goes_on_for_as_long_as_its_executor_has_the_run(tmp_path):
    """The first moment is long past at its end: the supervisor was told of later ones."""
    end, _, _ = await run(tmp_path, "sleep 6", ends_s=lambda: boot_s() + 5)
    assert end.exit_code == 0
    over, _, _ = await run(tmp_path, "sleep 60", timeout_s=50.0, ends_s=lambda: boot_s() - 1)
    assert (over.timed_out, over.exit_code) == (False, -signal.SIGKILL)


def boot_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


@pytest.mark.asyncio
async def test_what_a_command_started_has_the_grace_too(tmp_path):
    # The shell ends at once; the program behind it writes its last words.
    command = "sh -c 'trap \"sleep 0.3; echo bye; exit\" TERM; echo up; while :; do sleep 0.05; done' & wait"
    end, out = await run_over_its_time(tmp_path, command, ShellLimits(term_grace_s=60.0, close_grace_s=0.2))
    assert (end.timed_out, out) == (True, "up\nbye\n")


@pytest.mark.asyncio
async def test_a_cancelled_command_hears_of_it_at_once_and_what_it_wrote_arrives(tmp_path):
    pieces, started = [], asyncio.Event()

    async def keep(channel, text):
        pieces.append((channel, text))
        started.set()

    command = "trap 'echo last; exit' TERM; echo first; while :; do sleep 0.01; done"
    limits = ShellLimits(term_grace_s=60.0, close_grace_s=0.2)
    task = asyncio.create_task(LocalShell(tmp_path, limits).run(command, 60, keep))
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert "".join(text for channel, text in pieces if channel == 1) == "first\nlast\n"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux says who is killed where memory runs out")
@pytest.mark.asyncio
async def test_where_memory_runs_out_commands_are_killed_before_anything_else(tmp_path):
    _, out, _ = await run(tmp_path, "cat /proc/self/oom_score_adj")
    assert out == "1000\n"


@pytest.mark.asyncio
async def test_a_fork_bomb_is_stopped(tmp_path):
    limits = ShellLimits(processes=60, term_grace_s=0.2, close_grace_s=0.2)
    # It ends by itself after 256 processes: a test that fails must not take the machine along.
    bomb = "bomb() { [ $1 -gt 0 ] || exec sleep 60; bomb $(($1 - 1)) & bomb $(($1 - 1)) & wait; }; bomb 7"
    end, _, _ = await run(tmp_path, bomb, 60.0, limits)
    assert end.too_many_processes or end.exit_code != 0
    assert not end.timed_out


@pytest.mark.skipif(os.geteuid() != 0, reason="the system itself keeps the limit for other users")
@pytest.mark.asyncio
async def test_processes_of_the_superuser_are_counted(tmp_path):
    limits = ShellLimits(processes=20, close_grace_s=0.2)
    many = "for n in $(seq 40); do sleep 60 & [ $n -ne 1 ] || echo $!; done; sleep 60"
    end, out, _ = await run(tmp_path, many, 60.0, limits)
    assert (end.too_many_processes, end.exit_code) == (True, -signal.SIGKILL)
    assert await gone(int(out))
    few, _, _ = await run(tmp_path, "for n in 1 2 3; do sleep 0.3 & done; wait", 60.0, limits)
    assert (few.too_many_processes, few.exit_code) == (False, 0)


@pytest.mark.asyncio
async def test_a_hundred_megabytes_of_output_pass_through_little_memory(tmp_path):
    kept = 0

    async def keep(_channel, text):
        nonlocal kept
        kept += len(text)

    before_kb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    end = await LocalShell(tmp_path, QUICK).run("yes 'a line of output' | head -c 100000000", 100, keep)
    grown_mb = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before_kb) / 1024
    assert (end.exit_code, end.output_cut) == (0, True)
    assert 2**20 <= kept < 2**20 + 100
    assert grown_mb < 20


@pytest.mark.asyncio
async def test_a_slow_reader_slows_the_command(tmp_path):
    read = 0

    async def keep(_channel, text):
        nonlocal read
        read += len(text)
        await asyncio.sleep(0.2)

    (tmp_path / "written").touch()
    # The command says how much it could write; the pipe and the reader hold a part of a megabyte.
    command = "i=0; while [ $i -lt 4000 ]; do head -c 4096 /dev/zero | tr '\\0' x; i=$((i+1)); echo >> written; done"
    limits = ShellLimits(output_bytes=8 * 2**20, term_grace_s=0.2, close_grace_s=0.2, drain_s=0.1)
    end, _, _ = await run_with(tmp_path, command, keep, 1.0, limits)
    assert end.timed_out
    assert (tmp_path / "written").read_text().count("\n") * 4096 < read + 2**20


async def run_with(root, command, keep, timeout_s, limits):
    return await LocalShell(root, limits).run(command, timeout_s, keep), "", ""


@pytest.mark.asyncio
async def test_binary_output_is_text_that_can_be_stored(tmp_path):
    (tmp_path / "noise").write_bytes(bytes(range(256)) * 1000)
    _, out, _ = await run(tmp_path, "cat noise")
    assert "\0" not in out
    assert len(out.encode()) > 256_000
    assert out[1:9] == "".join(map(chr, range(1, 9)))


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("ä" * 499 + "x", "ä" * 499 + "x"),
        ("ä" * 500 + "x", "ä" * 250 + "\n[1 bytes were left out here]\n" + "ä" * 249 + "x"),
        ("a" + "ä" * 600, "a" + "ä" * 249 + "\n[201 bytes were left out here]\n" + "ä" * 250),
    ],
)
@pytest.mark.asyncio
async def test_the_cut_tears_no_character(tmp_path, written, kept):
    (tmp_path / "text").write_text(written)
    limits = ShellLimits(output_bytes=1000, close_grace_s=0.2)
    _, out, _ = await run(tmp_path, "cat text", limits=limits)
    assert out == kept
