"""A test has the same id in every collection, or workers that share the tests out disagree on them and none is run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]

# Collects as `make test` does, with a clock that is `sys.argv[1]` seconds ahead, and prints one id a line.
COLLECT = """
import sys, time
now, now_ns, ahead_s = time.time, time.time_ns, int(sys.argv[1])
time.time, time.time_ns = lambda: now() + ahead_s, lambda: now_ns() + ahead_s * 10**9
import pytest
sys.exit(pytest.main(["--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", *sys.argv[2:]]))
"""
CLOCK_BY_ID = (
    "import time, pytest\n@pytest.mark.parametrize('x', [str(time.time() // 1000)])\ndef test_a(x): assert x\n"
)
SET_BY_ID = "import pytest\n@pytest.mark.parametrize('x', {str(n) for n in range(99)})\ndef test_a(x): assert x\n"


def collected(folders: list[str], cwd: Path, ahead_s: int, seed: str) -> list[str]:
    """The ids of a collection with a clock and a hash seed of its own."""
    process = subprocess.run(
        [sys.executable, "-c", COLLECT, str(ahead_s), *folders],
        cwd=cwd, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [line for line in process.stdout.splitlines() if "::" in line]


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_every_id_is_the_same_whatever_the_clock_and_the_hash_seed() -> None:
    """In each run of the suite the workers are held to this too, with a hash seed for each, but with one clock."""
    one = collected([], REPO, 0, "1")
    assert one
    assert one == collected([], REPO, 86_400, "2")


@pytest.mark.parametrize("source", [CLOCK_BY_ID, SET_BY_ID], ids=["clock", "set"])
def test_an_id_made_of_the_clock_or_of_a_set_is_found(tmp_path: Path, source: str) -> None:
    (tmp_path / "test_a.py").write_text(source)
    assert collected(["test_a.py"], tmp_path, 0, "1") != collected(["test_a.py"], tmp_path, 86_400, "2")
