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


def collected(folders: list[str], cwd: Path) -> list[list[str]]:
    """The ids of two collections at once, with clocks and hash seeds of their own."""
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", COLLECT, str(ahead_s), *folders],
            cwd=cwd, env={**os.environ, "PYTHONHASHSEED": seed}, stdout=subprocess.PIPE, text=True,
        )
        for ahead_s, seed in ((0, "1"), (86_400, "2"))
    ]  # fmt: skip
    outputs = [process.communicate()[0] for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    return [[line for line in output.splitlines() if "::" in line] for output in outputs]


@pytest.mark.timeout(600)
def test_every_id_is_the_same_whatever_the_clock_and_the_hash_seed() -> None:
    one, two = collected([], REPO)
    assert len(one) > 1000
    assert [pair for pair in zip(one, two, strict=True) if pair[0] != pair[1]] == []


@pytest.mark.parametrize("source", [CLOCK_BY_ID, SET_BY_ID], ids=["clock", "set"])
def test_an_id_made_of_the_clock_or_of_a_set_is_found(tmp_path: Path, source: str) -> None:
    (tmp_path / "test_a.py").write_text(source)
    one, two = collected(["test_a.py"], tmp_path)
    assert one != two
