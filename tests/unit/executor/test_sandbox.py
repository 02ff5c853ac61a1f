"""Commands under bubblewrap, on hosts that have it. Decision C30; architecture 6.

`apt-get install bubblewrap`, or name its program in TURNWRIGHT_TEST_BWRAP.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from msgspec import structs
from turnwright.executor.v1 import query_pb2

from needs import needs
from services import running
from surroundings import CACHES
from turnwright_executor.shell.shell import LocalShell, ShellLimits
from turnwright_kit.sandbox import landlock
from turnwright_kit.sandbox.finding import SandboxMissingError, find_sandbox
from turnwright_kit.sandbox.readable import git_paths_outside
from turnwright_kit.sandbox.sandbox import Backend, Sandbox
from turnwright_kit.settings import SettingsError

pytestmark = pytest.mark.asyncio

PROGRAM = os.environ.get("TURNWRIGHT_TEST_BWRAP") or shutil.which("bwrap") or ""
with_bubblewrap = needs("bubblewrap", "install it, or name it in TURNWRIGHT_TEST_BWRAP", there=PROGRAM)
with_landlock = pytest.mark.skipif(bool(landlock.problem()), reason=f"no Landlock: {landlock.problem()}")
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


async def run(place, command, *, root="project", more=(), read_only=False, timeout_s=60.0, limits=LIMITS):
    sandbox = await find_sandbox("bubblewrap", place / "home", [str(place / "cache")], more, program=PROGRAM)
    texts = {1: "", 2: ""}

    async def keep(channel, text):
        texts[channel] += text

    shell = LocalShell(place / root, limits, sandbox=sandbox)
    end = await shell.run(command, timeout_s, keep, read_only=read_only)
    return end, texts[1], texts[2]


async def run_over_its_time(place, command, limits=LIMITS):
    """The end and the output of a command that is stopped after it has said something, however slow the machine."""
    for timeout_s in (0.7, 5.0, 50.0):
        end, out, _ = await run(place, command, timeout_s=timeout_s, limits=limits)
        if out:
            return end, out
    raise AssertionError("it says nothing")


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
async def test_a_command_cannot_change_which_workspace_its_project_is(place):
    marker = place / "project" / ".turnwright" / "workspace"
    marker.parent.mkdir()
    marker.write_text("its own")
    folder = ".turnwright"
    await run(place, f"echo another > {folder}/workspace; rm -rf {folder}; mv {folder} x; ln -sfn /tmp {folder}; true")
    assert (marker.read_text(), marker.parent.is_symlink()) == ("its own", False)


@with_bubblewrap
async def test_a_link_in_place_of_the_workspaces_id_shows_nothing(place):
    link = f"{'../' * len(place.parts)}{place}/home"
    await run(place, f"ln -s {link} .turnwright")
    assert (place / "project" / ".turnwright" / "token").read_text() == "hush"
    _, out, _ = await run(place, "cat .turnwright/token; echo looked")
    assert out == "looked\n"


@with_bubblewrap
@pytest.mark.parametrize("folder", ["project/.turnwright", "project", "repo"])
async def test_a_folder_that_becomes_a_link_after_the_look_shows_nothing(place, folder):
    """Another command replaces it when bubblewrap is about to start; in the place of the home there is the secret."""
    for name in ("project/.turnwright", "home/.turnwright", "repo"):
        (place / name).mkdir()
    link = f"{'../' * len(place.parts)}{place}/home"
    swapping = place / "swapping"
    swapping.write_text(
        f'#!/bin/sh\nmv {place}/{folder} {place}/moved && ln -s {link} {place}/{folder}\nexec {PROGRAM} "$@"\n'
    )
    swapping.chmod(0o700)
    sandbox = await find_sandbox("bubblewrap", place / "home", program=PROGRAM)
    sandbox = structs.replace(sandbox, program=str(swapping), inside=(f"{place}/repo",))
    said = []

    async def keep(_channel, text):
        said.append(text)

    shell = LocalShell(place / "project", LIMITS, sandbox=sandbox)
    await shell.run(f"cat {place}/{folder}/token", 60.0, keep)
    assert (place / folder / "token").read_text() == "hush"
    assert "hush" not in "".join(said)
    # It is what was looked at, or the command has not begun.
    assert any(words in "".join(said) for words in ("No such file", "Race condition")), said


@with_bubblewrap
async def test_a_command_has_no_descriptor_of_what_its_sandbox_is_made_of(place):
    (place / "project" / ".turnwright").mkdir()
    _, out, _ = await run(place, "echo /proc/self/fd/* /proc/1/fd/*")
    assert {one.rpartition("/")[2] for one in out.split() if "self" in one} <= {"0", "1", "2", "3"}, out


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


SECRETS = (
    ".ssh/id_ed25519", ".aws/credentials", ".netrc", ".npmrc", ".pypirc", ".git-credentials", ".gnupg/key", ".kube/config",
    ".config/gh/hosts.yml", ".config/gcloud/key.json", ".docker/config.json", ".cargo/credentials.toml", ".m2/settings.xml",
    ".gradle/gradle.properties", ".gem/credentials", ".bash_history", ".local/share/keyrings/login", "notes.txt",
    ".cache/huggingface/token",
)  # fmt: skip


@pytest.fixture
def user(place, monkeypatch):
    """The home of the executor's user, full of secrets and with a program of its own."""
    home = place / "people" / "user"
    for name in (*SECRETS, ".local/bin/tool"):
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text("#!/bin/sh\necho works\n" if name.endswith("tool") else "hush")
    (home / ".local/bin/tool").chmod(0o755)
    for name in ("bin", ".cargo/bin", "go/bin"):
        (home / name).mkdir(parents=True)
    folders = (".local/bin", "bin", ".cargo/bin", "go/bin", "")
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("CARGO_HOME", str(home / ".cargo"))
    monkeypatch.setenv("GOPATH", str(home))
    monkeypatch.setenv("PATH", ":".join([*(str(home / folder) for folder in folders), os.environ["PATH"]]))
    return home


@with_bubblewrap
@pytest.mark.parametrize("read_only", [True, False])
async def test_a_command_reads_nothing_of_homes_and_of_other_peoples_folders(place, user, read_only):
    for name in ("other/project/key", "people/another/.ssh/id_rsa", "backups/store.db"):
        (place / name).parent.mkdir(parents=True)
        (place / name).write_text("hush")
    sandboxed = f"tool; grep -rs hush {place} ~ ; ls -A {place}/people/another {place}/backups"
    _, out, _ = await run(place, sandboxed, read_only=read_only)
    assert out == "works\n"


@with_bubblewrap
@pytest.mark.parametrize("read_only", [True, False])
async def test_a_command_reads_nothing_of_what_the_host_keeps_to_itself(place, read_only):
    files = ("shadow", "gshadow", "sudoers", "ssh", "ssl/private", "security", "cron.d", "environment", "machine-id")
    listed = f"cd /etc; ls -d {' '.join(files)}; ls -A /srv /mnt /media /opt/secret /run /tmp /var/log"
    _, out, _ = await run(
        place, f"{listed} /var/lib/postgresql /var/backups /boot; cat /etc/shadow", read_only=read_only
    )
    # The project, the place of the home, and the programs of an environment or of build tools, where they stand in one of
    # these folders.
    tools = [os.environ[name] for name in CACHES if name in os.environ]
    stands = (place, Path.home(), sys.prefix, sys.base_prefix, *tools)
    open_ = {part for path in stands for part in Path(path).parts[2:3]}
    assert {line for line in out.splitlines() if line and not line.endswith(":")} <= open_


@with_bubblewrap
async def test_a_command_reaches_no_socket_and_no_process_of_the_host(place):
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place / "socket"))
        listening.listen()
        _, out, _ = await run(place, f"ls {place}/socket; ls -d /proc/[0-9]* | wc -l; cat /proc/{os.getppid()}/environ")
    assert int(out) < 10


@with_bubblewrap
async def test_programs_on_the_path_run_wherever_they_are_installed(place, monkeypatch):
    """A link to a program of an installation, whose version is another link: it finds what stands beside it."""
    version = place / "opt" / "tool" / "v1"
    for name in ("bin", "lib"):
        (version / name).mkdir(parents=True)
    (version / "lib" / "text").write_text("installed\n")
    (version / "bin" / "tool").write_text('#!/bin/sh\ncat "$(dirname "$(readlink -f "$0")")/../lib/text"\n')
    (version / "bin" / "tool").chmod(0o755)
    (place / "opt" / "tool" / "current").symlink_to("v1")
    (place / "links").mkdir()
    (place / "links" / "tool").symlink_to(place / "opt" / "tool" / "current" / "bin" / "tool")
    monkeypatch.setenv("PATH", f"{place}/links:{os.environ['PATH']}")
    end, out, _ = await run(
        place, "tool; python3 -c 'import ssl, sqlite3, json; print(json.dumps(1))'; id -un; git --version"
    )
    assert (end.exit_code, out.splitlines()[:2]) == (0, ["installed", "1"])


@pytest.mark.parametrize("folder", ["/dev/shm", "/run", "/var/tmp"])
@with_bubblewrap
async def test_what_a_command_keeps_in_memory_outside_of_its_processes_is_bounded(place, folder):
    end, _, err = await run(place, f"head -c 300000000 /dev/zero > {folder}/x")
    assert (end.exit_code > 0, "No space left on device" in err) == (True, True)


@with_bubblewrap
async def test_devices_and_shared_memory_work_and_nothing_is_kept_beside_them(place):
    shared = "from multiprocessing import Lock, shared_memory as s; Lock(); m = s.SharedMemory(create=True, size=9)"
    end, _, err = await run(
        place,
        f"echo x > /dev/null && head -c 9 /dev/urandom > a && python3 -c '{shared}; m.unlink()' && echo x > /dev/x",
    )
    assert (end.exit_code > 0, err.count("\n"), "/dev/x: Read-only file system" in err) == (True, 1, True)


LINKS = {
    "to a file": "ln -s {keys}/key bin/tool",
    "to what is not there": "ln -s {keys}/bin/anything bin/tool",
    "over another link": "ln -s {keys} keys; ln -s ../keys/key bin/tool",
    "in the place of the folder": "mv bin old; ln -s {keys} bin",
    "in the place of what it is installed in": "cd ..; mv env old; ln -s {keys} env",
}


@pytest.mark.slow
@pytest.mark.parametrize("link", LINKS.values(), ids=LINKS.keys())
@pytest.mark.parametrize("folder", ["project", "cache"])
@with_bubblewrap
async def test_no_link_that_a_command_puts_on_the_path_shows_what_it_leads_to(place, monkeypatch, folder, link):
    """The path has a folder in a project or a cache, as an activated environment has."""
    keys = place / "opt" / "keys"
    (keys / "bin").mkdir(parents=True)
    (keys / "key").write_text("hush")
    (keys / "bin" / "key").write_text("hush")
    for name in ("project/.turnwright", "other", f"{folder}/env/bin"):
        (place / name).mkdir(parents=True)
    monkeypatch.setenv("PATH", f"{place}/{folder}/env/bin:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", f"{place}/{folder}/env")
    end, _, _ = await run(place, f"cd {place}/{folder}/env && {link.format(keys=keys)}")
    # What is shown of a shared cache is read-only.
    assert (end.exit_code == 0) == (folder == "project")
    # The sandbox is looked for again, as at another start; and another project's commands are let into it.
    everywhere = f"cat {keys}/key {keys}/bin/key {place}/{folder}/env/key {place}/{folder}/env/bin/key; true"
    for root in ("project", "other"):
        assert (await run(place, everywhere, root=root))[1] == ""


@with_bubblewrap
async def test_what_a_setting_names_is_read(place):
    (place / "beside").mkdir()
    (place / "beside" / "a").write_text("seen")
    _, out, _ = await run(place, f"cat {place}/beside/a; echo x > {place}/beside/b", more=[str(place / "beside")])
    assert (out, [path.name for path in (place / "beside").iterdir()]) == ("seen", ["a"])


def git(folder, *words):
    named = ("-c", "user.name=x", "-c", "user.email=x@y")
    subprocess.run(["git", *named, *words], cwd=folder, check=True, capture_output=True)


@pytest.fixture
def repository(place):
    """A repository with two folders and a linked work tree beside it."""
    folder = place / "repository"
    for name in ("part", "other"):
        (folder / name).mkdir(parents=True)
        (folder / name / "a.txt").write_text(f"{name}\n")
    git(folder, "init", "-q")
    git(folder, "add", ".")
    git(folder, "commit", "-qm", "First")
    git(folder, "worktree", "add", "-q", "../linked")
    return folder


@with_bubblewrap
@pytest.mark.parametrize("root", ["repository/part", "linked"])
async def test_git_works_in_a_part_of_a_repository_and_in_a_linked_work_tree(place, repository, root):
    end, out, err = await run(place, "git status --short && git log --format=%s", root=root, read_only=True)
    assert (end.exit_code, out, err) == (0, "First\n", "")


@with_bubblewrap
async def test_a_repository_that_a_stranger_names_is_not_shown(place, repository):
    (place / "project" / ".git").write_text(f"gitdir: {repository}/.git/worktrees/linked\n")
    _, out, _ = await run(place, f"git log; ls -A {repository}", read_only=True)
    assert out == ""


@with_bubblewrap
@pytest.mark.parametrize("own", ["own", "worktrees/own"])
async def test_a_project_that_brings_its_own_repository_is_shown_none_elsewhere(place, repository, own):
    folder = place / "project" / own
    folder.mkdir(parents=True)
    (place / "project" / ".git").write_text(f"gitdir: {own}\n")
    (folder / "gitdir").write_text(f"{place}/project/.git\n")
    (folder / "commondir").write_text(f"{repository}\n")
    _, out, _ = await run(place, f"ls -A {repository}", read_only=True)
    assert out == ""


@pytest.mark.parametrize("hostile", ["circle", "pipe", "endless"])
async def test_a_repository_that_cannot_be_read_keeps_no_command_waiting(place, hostile):
    project, own = place / "project", place / "project" / "worktrees" / "own"
    own.mkdir(parents=True)
    (project / ".git").write_text("gitdir: worktrees/own\n")
    if hostile == "circle":
        (own / "gitdir").symlink_to(own / "gitdir")
    elif hostile == "pipe":
        os.mkfifo(own / "gitdir")
    else:
        with (project / ".git").open("r+b") as git:
            git.truncate(1 << 40)
    assert await asyncio.wait_for(asyncio.to_thread(git_paths_outside, str(project)), 60) == ()


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
@pytest.mark.skipif(os.geteuid() != 0, reason="the system itself keeps the limit for other users")
@pytest.mark.parametrize("session", ["", "setsid "])
async def test_processes_of_the_superuser_are_counted_in_the_sandbox_over_all_sessions(place, session):
    limits = ShellLimits(processes=20, close_grace_s=0.2)
    many = f"for n in $(seq 60); do {session}sleep 60 & sleep 0.05; done; sleep 60"
    end, _, _ = await run(place, many, limits=limits)
    assert (end.too_many_processes, end.exit_code) == (True, -signal.SIGKILL)
    few, _, _ = await run(place, f"for n in $(seq 15); do {session}sleep 0.3 & done; wait", limits=limits)
    assert (few.too_many_processes, few.exit_code) == (False, 0)


@with_bubblewrap
async def test_a_command_has_its_grace_in_the_sandbox(place):
    command = "trap 'echo bye; exit 3' TERM; echo up; while :; do sleep 0.05; done"
    patient = ShellLimits(term_grace_s=30.0, close_grace_s=30.0)
    end, out = await run_over_its_time(place, command, patient)
    assert (end.timed_out, out) == (True, "up\nbye\n")


@with_bubblewrap
async def test_a_command_that_ignores_the_request_is_killed_in_the_sandbox(place):
    end, _ = await run_over_its_time(place, "trap '' TERM; echo up; while :; do sleep 0.05; done")
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
        assert (await services.client.get_status()).confinement == query_pb2.CONFINEMENT_BUBBLEWRAP
        services.script(f"<env>cat a.txt; touch b.txt</env>{GO_ON}", f"<env>cat a.txt</env>{GO_ON}", DONE)
        loop = await services.until(await services.act(yolo=False))
        assert (loop.status, loop.turns) == (200, 3)
        record = await services.entry("log://turn_1/env/cat_a.txt;_touch_b.txt".replace(";", "%3B"))
        assert record.outcome == "exit_1:500"
        assert (await services.entry("env://turn_2/cat_a.txt_1")).body == "here\n"
        assert not (services.files / "b.txt").exists()


@pytest.mark.parametrize(
    "backend", [pytest.param("bubblewrap", marks=with_bubblewrap), pytest.param("landlock", marks=with_landlock)]
)
async def test_commands_of_others_share_no_caches_with_other_projects(place, user, backend):
    """What one team leaves in a cache, another's build would run."""
    shared = user / ".cache" / "tool"
    shared.mkdir()
    (shared / "kept").write_text("the owner's")
    sandbox = await find_sandbox(backend, place / "home", ["~/.cache"])
    (place / "other").mkdir()

    async def said(root, command, **options):
        texts = []

        async def keep(_channel, text):
            texts.append(text)

        caches = str(place / "home" / "caches" / root)
        shell = LocalShell(place / root, LIMITS, sandbox=sandbox, caches=caches)
        await shell.run(command, 60.0, keep, **options)
        return "".join(texts)

    look = "cat ~/.cache/tool/kept 2>/dev/null || echo nothing"
    leave = "mkdir -p ~/.cache/tool; echo poison > ~/.cache/tool/kept"
    assert await said("project", look) == "the owner's"
    assert await said("project", look, is_owners=False) == "nothing\n"
    await said("project", leave, is_owners=False)
    # It is there for the next command of the same project, and for nobody else.
    assert await said("project", look, is_owners=False) == "poison\n"
    assert await said("other", look, is_owners=False) == "nothing\n"
    kept = f"{place}/home/caches/project{user}/.cache/tool/kept"
    assert "poison" not in await said("other", f"cat {kept}; ls -R {place}/home", is_owners=False)
    assert await said("other", look) == "the owner's"


async def test_a_bubblewrap_that_does_not_work_is_not_used(tmp_path):
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\necho no user namespaces >&2\nexit 1\n")
    broken.chmod(broken.stat().st_mode | stat.S_IXUSR)
    assert (await find_sandbox("auto", tmp_path, program=str(broken))).backend is not Backend.BUBBLEWRAP
    with pytest.raises(SandboxMissingError, match="no user namespaces"):
        await find_sandbox("bubblewrap", tmp_path, program=str(broken))


async def test_limits_alone_are_somebodys_choice(tmp_path):
    assert await find_sandbox("limits", tmp_path) == Sandbox()
    assert not Sandbox().keeps_read_only


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
