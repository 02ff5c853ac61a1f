"""Commands under Landlock: what they can do, and what an executor does where there is none. Decision C30; ADR 69."""

from __future__ import annotations

import asyncio
import ctypes
import shutil
import tempfile
import threading

import pytest
from turnwright.executor.v1 import query_pb2

from services import running
from turnwright_executor.shell.shell import LocalShell, ShellLimits
from turnwright_kit.sandbox import landlock, seccomp
from turnwright_kit.sandbox.finding import SandboxMissingError, find_sandbox
from turnwright_kit.sandbox.sandbox import Backend
from turnwright_kit.settings import SettingsError

with_landlock = pytest.mark.skipif(bool(landlock.problem()), reason=f"no Landlock: {landlock.problem()}")
LIMITS = ShellLimits(term_grace_s=2.0, close_grace_s=0.2)
DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP = 38, 22


@pytest.fixture
def place(tmp_path, monkeypatch):
    """A project, a user's home with a cache, a toolchain and secrets, and our home."""
    for name in (
        "project",
        "home",
        "user/.cache/pip",
        "user/.cache/huggingface",
        "user/.rustup/bin",
        "user/.ssh",
        "temporary",
    ):
        (tmp_path / name).mkdir(parents=True)
    for name in ("home/token", "user/.ssh/id", "user/.cache/huggingface/token", "user/.gitconfig"):
        (tmp_path / name).write_text("hush")
    (tmp_path / "user/.rustup/settings").write_text("stable\n")
    (tmp_path / "project" / "a.txt").write_text("here\n")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    return tmp_path


async def run(place, command, *, root="project", read_only=False, network=True):
    sandbox = await find_sandbox("landlock", place / "home", ["~/.cache"])
    texts = {1: "", 2: ""}

    async def keep(channel, text):
        texts[channel] += text

    shell = LocalShell(place / root, LIMITS, sandbox=sandbox)
    end = await shell.run(command, 60.0, keep, read_only=read_only, network=network)
    return end, texts[1], texts[2]


@with_landlock
@pytest.mark.asyncio
async def test_a_command_writes_its_project_the_caches_and_a_home_of_its_own(place):
    command = "cat a.txt ~/.rustup/settings; echo b > b.txt; echo c > ~/.cache/pip/c; echo d > ~/d; mktemp > e; mkdir f; mv b.txt f"
    end, out, err = await run(place, f"{command} && ln -s a.txt g && chmod +x a.txt && git init -q && exit 7")
    assert (end.exit_code, out, err) == (7, "here\nstable\n", "")
    assert (place / "project/f/b.txt").read_text() == "b\n"
    assert (place / "user/.cache/pip/c").read_text() == "c\n"
    # What it kept in its own home and in its folder for temporary files is gone with it.
    assert not list((place / "temporary").iterdir())


@with_landlock
@pytest.mark.asyncio
async def test_a_command_that_only_looks_changes_nothing_and_has_no_network(place):
    command = "cat a.txt; echo x > b.txt; rm a.txt; echo x > ~/.cache/pip/x; echo x > ~/own && cat ~/own; git --version"
    _, out, _ = await run(place, f"{command}; python3 -c 'import socket; socket.socket()' || echo none", read_only=True)
    assert [line for line in out.splitlines() if "git version" not in line] == ["here", "x", "none"]
    assert [path.name for path in (place / "project").iterdir()] == ["a.txt"]
    assert not list((place / "user/.cache/pip").iterdir())


@with_landlock
@pytest.mark.asyncio
async def test_programs_meet_what_they_expect(place):
    """A pair of sockets, threads, a child, a subprocess, devices, and the addresses of a host."""
    program = (
        "import asyncio, os, socket, subprocess, threading\n"
        "asyncio.run(asyncio.sleep(0))\n"
        "one, other = socket.socketpair(); one.send(b'x'); assert other.recv(1) == b'x'\n"
        "threading.Thread(target=int).start()\n"
        "assert subprocess.run(['cat', '/proc/self/comm'], capture_output=True).stdout == b'cat\\n'\n"
        "assert len(open('/dev/urandom', 'rb').read(9)) == 9; open('/dev/null', 'w').write('x')\n"
        "assert socket.getaddrinfo('127.0.0.1', 80); socket.socket().bind(('127.0.0.1', 0))\n"
        "print('works')\n"
    )
    (place / "project" / "p.py").write_text(program)
    end, out, err = await run(place, "python3 p.py && echo a | grep -c a && bash -c 'cat <(echo b)'")
    assert (end.exit_code, out) == (0, "works\n1\nb\n"), err


@with_landlock
@pytest.mark.asyncio
async def test_a_project_that_contains_what_must_stay_hidden_is_refused(place):
    for root in (".", "user"):
        with pytest.raises(PermissionError, match="Landlock cannot leave out"):
            await run(place, "true", root=root)


@with_landlock
@pytest.mark.asyncio
async def test_a_repository_around_the_project_is_read(place):
    (place / "project" / "part").mkdir()
    commit = "git -c user.name=x -c user.email=x@y commit -qm First --allow-empty"
    await run(place, f"git init -q && {commit}")
    end, out, err = await run(place, "git log --format=%s; cat ../a.txt; echo x > ../x", root="project/part")
    assert (out, end.exit_code != 0) == ("First\nhere\n", True), err


@with_landlock
@pytest.mark.asyncio
async def test_env_needs_no_decision_under_landlock(tmp_path, monkeypatch):
    # C30
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, sh_sandbox="landlock") as services:
        (services.files / "a.txt").write_text("here\n")
        assert (await services.client.get_status()).confinement == query_pb2.CONFINEMENT_LANDLOCK
        services.script(f"<env>cat a.txt; touch b.txt</env>{GO_ON}", DONE)
        loop = await services.until(await services.act(yolo=False))
        assert (loop.status, loop.turns) == (200, 2)
        assert not (services.files / "b.txt").exists()


# ---- Where there is none


def without_landlock(work):
    """Do this where the kernel knows no Landlock, as before Linux 5.13: a filter of this thread and its children."""
    denied = b"".join(
        code.to_bytes(2, "little") + bytes((yes, no)) + constant.to_bytes(4, "little")
        for code, yes, no, constant in (
            (0x20, 0, 0, 0), (0x35, 0, 2, 444), (0x35, 1, 0, 447), (0x06, 0, 0, 0x00050000 | 38), (0x06, 0, 0, 0x7FFF0000),
        )
    )  # fmt: skip
    problems = []

    def in_thread():
        code = ctypes.create_string_buffer(denied)
        header = len(denied).__floordiv__(8).to_bytes(8, "little") + ctypes.addressof(code).to_bytes(8, "little")
        library = ctypes.CDLL(None)
        try:
            assert library.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            assert library.prctl(PR_SET_SECCOMP, 2, header, 0, 0) == 0
            asyncio.run(work())
        except BaseException as problem:  # noqa: BLE001 - it belongs to the test's thread
            problems.append(problem)

    thread = threading.Thread(target=in_thread)
    thread.start()
    thread.join()
    if problems:
        raise problems[0]


def test_without_bubblewrap_and_landlock_commands_are_refused_and_told_why(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "git").symlink_to(shutil.which("git"))
    monkeypatch.setenv("PATH", str(tools))

    async def work():
        async with running(tmp_path, sh_sandbox="auto") as services:
            assert (await services.client.get_status()).confinement == query_pb2.CONFINEMENT_NONE
            services.script(f"<sh>touch ran</sh>{GO_ON}", f"<env>touch ran</env>{GO_ON}", DONE)
            loop = await services.until(await services.act(yolo=True))
            assert (loop.status, loop.turns) == (200, 3)
            for turn, tool in enumerate(("sh", "env"), 1):
                record = await services.entry(f"log://turn_{turn}/{tool}/touch_ran")
                assert record.outcome == "permission:403"
                for word in (
                    "it is not installed",
                    "this kernel has none",
                    "Install bubblewrap",
                    "TURNWRIGHT_SH_SANDBOX=limits",
                ):
                    assert word in record.body
            assert not (services.files / "ran").exists()

    without_landlock(work)


def test_an_executor_that_shall_use_landlock_does_not_start_without_it(tmp_path):
    async def work():
        with pytest.raises(SandboxMissingError, match="this kernel has none"):
            await find_sandbox("landlock", tmp_path)
        with pytest.raises(SettingsError, match="TURNWRIGHT_SH_SANDBOX"):
            async with running(tmp_path, sh_sandbox="landlock"):
                raise AssertionError

    without_landlock(work)


@with_landlock
@pytest.mark.asyncio
async def test_auto_takes_landlock_where_bubblewrap_does_not_work(tmp_path):
    assert (await find_sandbox("auto", tmp_path, program="no-such-program")).backend is Backend.LANDLOCK


# ---- The filter


@pytest.mark.parametrize("machine", seccomp.ARCHITECTURES)
@pytest.mark.parametrize("network", [True, False])
def test_every_way_through_the_filter_ends(machine, network):
    """Jumps are within the program, and the last step returns: a kernel refuses any other, but for its own machine only."""
    code = seccomp.program(network=network, machine=machine)
    steps = [code[at : at + 8] for at in range(0, len(code), 8)]
    assert len(steps) < 4096
    for at, step in enumerate(steps):
        kind = int.from_bytes(step[:2], "little")
        if kind & 7 == 5:
            assert at + 1 + max(step[2], step[3]) < len(steps)
    assert int.from_bytes(steps[-1][:2], "little") == 6


def test_there_is_no_filter_for_other_machines():
    assert (seccomp.is_known("riscv64"), seccomp.is_known("aarch64")) == (False, True)
