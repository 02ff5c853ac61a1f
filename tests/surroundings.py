"""What surrounds the tests: nothing of the person who runs them, neither settings, keys and files of theirs, nor services."""

import atexit
import os
import shutil
import tempfile
from pathlib import Path

TOLD = tuple(
    f"TURNWRIGHT_{name}"
    for name in (
        "BENCH_",
        "CASES",
        "CHATS_",
        "DAMAGE",
        "FUZZ_",
        "LITELLM",
        "LLAMA_",
        "ORACLE_",
        "SHARED",
        "TEST_",
        "UPGRADE_",
    )
)
"""How the variables begin by which tests are told something."""
VENDORS = ("_API_KEY", "_API_KEY_FILE", "_BASE_URL")
ELSEWHERE = ("OTEL_", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "XDG_C", "XDG_DATA_HOME", "XDG_STATE")
"""How the variables begin that name places of the person; in a hook of git, those of its repository."""
LOOKS = {
    "CLICOLOR",
    "CLICOLOR_FORCE",
    "COLUMNS",
    "FORCE_COLOR",
    "LINES",
    "NO_COLOR",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
}
NOBODY = "127.0.0.1:1"
"""An address at which nobody listens."""
CACHES = {"GOPATH": "go", "GOCACHE": ".cache/go-build", "CARGO_HOME": ".cargo", "RUSTUP_HOME": ".rustup"}
"""Where build tools keep what they downloaded, in the home."""


def leave_the_person_out() -> None:
    """Give this process, and those that tests start, a home of their own, and peers that are nowhere."""
    for name in list(os.environ):
        is_setting = name.startswith("TURNWRIGHT_") and not name.startswith(TOLD)
        if is_setting or name in LOOKS or name.startswith(ELSEWHERE) or name.endswith(VENDORS):
            del os.environ[name]
    os.environ |= {f"TURNWRIGHT_{peer}": NOBODY for peer in ("STORE", "ASSEMBLER", "PROVIDER")}
    if "PYTEST_XDIST_WORKER" in os.environ:  # it has the home of the process that started it
        return
    for variable, folder in CACHES.items():
        os.environ.setdefault(variable, str(Path.home() / folder))
    os.environ["HOME"] = tempfile.mkdtemp(prefix="turnwright-tests-home-")
    atexit.register(shutil.rmtree, os.environ["HOME"], ignore_errors=True)
