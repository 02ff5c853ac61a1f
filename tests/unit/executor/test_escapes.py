"""One table of escapes: what a command tries that wants out, under each sandbox, as root and as nobody.

Each is really tried (`escapes`). With limits alone, which are no sandbox, the same program gets out: so no row passes for
want of trying. Architecture 6; decision C30; ADR 69.
"""

import functools
import json
import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

import escapes
from needs import needs
from turnwright_kit.sandbox import landlock

NOBODY = 65534
BWRAP = shutil.which("bwrap")
HELD = (*(f"/{name}" for name in ("usr/local/bin", "usr/bin", "bin")), str(Path(sys.executable).parent))

# Only the superuser can do these without a sandbox, or only where the host is set up so.
OF_ROOT = {
    "opens_a_file_by_its_handle", "makes_a_device", "mounts", "makes_a_file_system", "changes_the_host",
    "enters_a_namespace_of_the_executor", "keeps_a_superusers_capabilities",
}  # fmt: skip
OF_SOME_HOSTS = {
    "makes_a_user_namespace", "clones_into_a_user_namespace", "clones_by_the_newer_call", "uses_keys", "makes_a_ring",
    "handles_page_faults", "loads_a_program_into_the_kernel", "measures_the_kernel", "calls_as_32_bits", "calls_as_x32",
    "traces_the_executor", "takes_a_descriptor_of_the_executor",
}  # fmt: skip
OF_LANDLOCK = {
    "makes_a_user_namespace", "clones_into_a_user_namespace", "clones_by_the_newer_call", "uses_keys", "makes_a_ring",
    "handles_page_faults", "loads_a_program_into_the_kernel", "measures_the_kernel", "calls_as_32_bits", "calls_as_x32",
}  # fmt: skip
"""What reaches nothing outside of bubblewrap's namespaces, and is left to commands in there."""

with_bubblewrap = needs("bubblewrap", "install it", there=BWRAP)
with_landlock = pytest.mark.skipif(bool(landlock.problem()), reason=f"no Landlock: {landlock.problem()}")
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="it takes root to try it as root and as nobody")


@functools.cache
def interpreter(user):
    """A Python that the user can start; empty: there is none."""
    for python in (sys._base_executable, "/usr/local/bin/python3", "/usr/bin/python3"):
        if (
            not user
            or not subprocess.run(
                ["/bin/sh", "-c", 'exec "$0" -I -S -c ""', python],
                user=user,
                group=user,
                extra_groups=(),
                check=False,
                capture_output=True,
            ).returncode
        ):
            return python
    return ""


@functools.cache
def told(backend, user):
    """What became of each escape."""
    if not (python := interpreter(user)):
        pytest.skip("no Python that nobody could start")
    place = Path(tempfile.mkdtemp(prefix="escapes-", dir="/tmp"))
    try:
        place.chmod(0o755)
        for name in (*escapes.SECRETS, "other/movable", "other/removable", "other/written", "tmp/another"):
            (place / name).parent.mkdir(parents=True, exist_ok=True)
            (place / name).write_text("hush")
        (place / "project").mkdir()
        environment = {
            "HOME": str(place / "people" / "user"),
            "PATH": ":".join(HELD[: 3 if user else 4]),
            "HUSH": "HUSH",
            "TMPDIR": str(place / "tmp"),
            "PYTHONPATH": os.pathsep.join(sys.path),
        }
        program = Path(escapes.__file__).with_name("escaping.py")
        words = (sys.executable, program, backend, str(user), place, python)
        done = subprocess.run(words, env=environment, cwd="/", capture_output=True, text=True, check=False, timeout=300)
        found = json.loads(done.stdout or "{}")
        assert found.keys() == escapes.ESCAPES.keys(), (found, done.stderr)
        return found
    finally:
        shutil.rmtree(place)


USERS = {"root": 0, "nobody": NOBODY}
KILLED = {"calls_as_32_bits", "calls_as_x32"} if platform.machine() == "x86_64" else set()
TRIED = {
    "landlock": [name for name in escapes.ESCAPES if name in KILLED or not name.startswith("calls_as_")],
    "bubblewrap": [name for name in escapes.ESCAPES if name not in OF_LANDLOCK],
}
MARKS = {"landlock": with_landlock, "bubblewrap": with_bubblewrap}
FREE = {
    "root": [name for name in escapes.ESCAPES if name not in OF_SOME_HOSTS],
    "nobody": [name for name in escapes.ESCAPES if name not in OF_SOME_HOSTS | OF_ROOT],
}


@as_root
@pytest.mark.parametrize(
    ("backend", "user", "name"),
    [
        pytest.param(backend, user, name, marks=MARKS[backend])
        for backend, names in TRIED.items()
        for user in USERS
        for name in names
    ],
)
def test_no_command_gets_out(backend, user, name):
    outcome = told(backend, USERS[user])[name]
    assert outcome != "out"
    assert (outcome == "ended by 31") == (name in KILLED), outcome


@as_root
@pytest.mark.parametrize(("user", "name"), [(user, name) for user, names in FREE.items() for name in names])
def test_without_a_sandbox_the_same_gets_out(user, name):
    assert told("limits", USERS[user])[name] == "out"
