"""Commands under bubblewrap, on hosts that have it. Decision C30; architecture 6.

`apt-get install bubblewrap`, or name its program in TURNWRIGHT_TEST_BWRAP.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import stat

import pytest

from services import running
from turnwright_core.kit.settings import SettingsError
from turnwright_executor.edge.sandbox import Sandbox, SandboxMissingError, find_sandbox
from turnwright_executor.edge.shell import LocalShell, ShellLimits

pytestmark = pytest.mark.asyncio

PROGRAM = os.environ.get("TURNWRIGHT_TEST_BWRAP") or shutil.which("bwrap") or ""
IS_SKIPPED = not PROGRAM and not os.environ.get("CI")
with_bubblewrap = pytest.mark.skipif(IS_SKIPPED, reason="install bubblewrap, or name it in TURNWRIGHT_TEST_BWRAP")
LIMITS = ShellLimits(term_grace_s=2.0, close_grace_s=0.2)
GO_ON = '<update status="102">Going on.</update>'
DONE = '<update status="200">Done.</update>'


@pytest.fixture
def place(tmp_path):
    """A project, and beside it our home with a secret."""
    for name in ("project", "home", "cache"):
        (tmp_path / name).mkdir()
    (tmp_path / "home" / "token").write_text("hush")
    (tmp_path / "project" / "a.txt").write_text("here\n")
    return tmp_path


async def run(place, command, *, read_only=False, timeout_s=20.0):
    sandbox = await find_sandbox("bubblewrap", place / "home", [str(place / "cache")], program=PROGRAM)
    texts = {1: "", 2: ""}

    async def keep(channel, text):
        texts[channel] += text

    shell = LocalShell(place / "project", LIMITS, sandbox=sandbox)
    end = await shell.run(command, timeout_s, keep, read_only=read_only)
    return end, texts[1], texts[2]


@with_bubblewrap
async def test_a_command_writes_its_project_and_the_caches_and_nothing_else(place):
    outside = place / "outside"
    end, out, err = await run(
        place, f"cat a.txt; echo b > b.txt; echo c > {place}/cache/c; echo x > {outside}; echo x > /etc/x; exit 7"
    )
    assert (end.exit_code, out) == (7, "here\n")
    assert ((place / "project" / "b.txt").read_text(), (place / "cache" / "c").read_text()) == ("b\n", "c\n")
    assert not outside.exists()
    assert "Read-only" in err


@with_bubblewrap
async def test_a_command_that_only_looks_changes_nothing_and_has_no_network(place):
    command = (
        f"cat a.txt; echo x > b.txt; rm a.txt; echo x > {place}/cache/x; cat /proc/net/dev | tail -n +3 | cut -d: -f1"
    )
    _, out, _ = await run(place, command, read_only=True)
    assert out.split() == ["here", "lo"]
    assert [path.name for path in (place / "project").iterdir()] == ["a.txt"]
    assert not list((place / "cache").iterdir())


@with_bubblewrap
async def test_our_home_is_empty_to_a_command(place):
    end, out, _ = await run(place, f"ls {place}/home; cat {place}/home/token")
    assert (out, end.exit_code != 0) == ("", True)


@with_bubblewrap
async def test_a_home_inside_the_project_is_empty_too(place):
    (place / "home").rename(place / "project" / "home")
    sandbox = await find_sandbox("bubblewrap", place / "project" / "home", program=PROGRAM)
    texts = []

    async def keep(_channel, text):
        texts.append(text)

    await LocalShell(place / "project", LIMITS, sandbox=sandbox).run("ls home; ls", 20, keep)
    assert "".join(texts) == "a.txt\nhome\n"


@with_bubblewrap
async def test_a_superuser_cannot_open_the_sandbox(place):
    _, out, _ = await run(place, "mount -o remount,rw / 2>/dev/null && echo open; grep CapEff /proc/self/status")
    rights = int(out.split()[-1], 16)
    assert "open" not in out
    assert rights & ~0b11011 == 0


@with_bubblewrap
async def test_what_leaves_the_session_ends_with_its_command_all_the_same(place):
    await run(place, "setsid sh -c 'sleep 1; touch survived' & sleep 0.2")
    await asyncio.sleep(1.5)
    assert not (place / "project" / "survived").exists()


@with_bubblewrap
async def test_a_command_has_its_grace_in_the_sandbox(place):
    command = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    end, out, _ = await run(place, command, timeout_s=0.7)
    assert (end.timed_out, out) == (True, "up\nbye\n")


@with_bubblewrap
async def test_a_command_that_ignores_the_request_is_killed_in_the_sandbox(place):
    end, _, _ = await run(place, "trap '' TERM; while :; do sleep 0.05; done", timeout_s=0.3)
    assert (end.timed_out, end.exit_code) == (True, -signal.SIGKILL)


@with_bubblewrap
async def test_env_needs_no_decision_where_it_can_change_nothing(tmp_path, monkeypatch):
    # C30
    tools = tmp_path / "tools"
    tools.mkdir()
    (tools / "bwrap").symlink_to(PROGRAM)
    monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
    monkeypatch.setenv("TURNWRIGHT_MODEL_m", "scripted/m")
    async with running(tmp_path, sh_sandbox="auto") as services:
        (services.files / "a.txt").write_text("here\n")
        assert (await services.client.get_status()).confinement == "bubblewrap"
        services.script(f"<env>cat a.txt; touch b.txt</env>{GO_ON}", f"<env>cat a.txt</env>{GO_ON}", DONE)
        loop = await services.until(await services.act(yolo=False))
        assert (loop.status, loop.turns) == (200, 3)
        record = await services.entry("log://turn_1/env/cat_a.txt;_touch_b.txt".replace(";", "%3B"))
        assert record.outcome == "exit_1:500"
        assert (await services.entry("env://turn_2/cat_a.txt_1")).body == "here\n"
        assert not (services.files / "b.txt").exists()


async def test_without_a_sandbox_there_are_limits(tmp_path):
    sandbox = await find_sandbox("auto", tmp_path, program="no-such-program")
    assert (sandbox, sandbox.name, sandbox.keeps_read_only) == (Sandbox(), "limits", False)
    assert await find_sandbox("limits", tmp_path) == Sandbox()


async def test_a_sandbox_that_does_not_work_is_none(tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no user namespaces >&2\nexit 1\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    assert await find_sandbox("auto", tmp_path, program=str(broken)) == Sandbox()
    with pytest.raises(SandboxMissingError, match="no user namespaces"):
        await find_sandbox("bubblewrap", tmp_path, program=str(broken))


async def test_a_command_that_must_only_look_is_not_run_where_nothing_keeps_it_from_more(tmp_path):
    async def keep(_channel, _text):
        raise AssertionError

    with pytest.raises(PermissionError):
        await LocalShell(tmp_path, LIMITS).run("touch ran", 10, keep, read_only=True)
    assert not (tmp_path / "ran").exists()


async def test_an_executor_that_shall_have_a_sandbox_does_not_start_without_one(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(SettingsError, match="TURNWRIGHT_SH_SANDBOX"):
        async with running(tmp_path, sh_sandbox="bubblewrap"):
            raise AssertionError
