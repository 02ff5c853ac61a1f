"""`turnwright demo`: red, repaired, green through the real services, and red when the repair does not fit."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import turnwright_cli
from e2e.cli_process import Bench

BUNDLED = Path(turnwright_cli.__file__).parent / "demo" / "project"


@pytest.fixture
def bench(tmp_path) -> Bench:
    return Bench(tmp_path)


def test_the_demo_is_red_then_green_and_leaves_nothing(bench) -> None:
    before = {path: path.read_bytes() for path in BUNDLED.rglob("*") if path.is_file()}

    done = bench.run("demo", TMPDIR=str(bench.root))

    assert done.returncode == 0, done.stderr
    assert done.stdout.index("FAILED (failures=1)") < done.stdout.index("Ran 2 tests", done.stdout.index("Done (200"))
    assert "+        if pieces >= BULK_PIECES:" in done.stdout
    assert done.stderr == ""
    assert {path: path.read_bytes() for path in BUNDLED.rglob("*") if path.is_file()} == before
    assert sorted(path.name for path in bench.root.iterdir()) == ["home", "project", "scripts"]
    assert list(bench.home.iterdir()) == []


def test_the_demo_fails_when_the_repair_no_longer_fits(bench) -> None:
    changed = bench.root / "changed"
    shutil.copytree(BUNDLED, changed)
    basket = changed / "basket.py"
    basket.write_text(basket.read_text().replace("if pieces > BULK_PIECES:", "if not pieces <= BULK_PIECES:"))

    done = bench.run("demo", "--source", str(changed))

    assert done.returncode == 5
    assert "turnwright: " in done.stderr
    assert "Traceback" not in done.stderr
    assert "The demo is complete" not in done.stdout


def test_the_demo_fails_when_there_is_nothing_to_repair(bench) -> None:
    changed = bench.root / "changed"
    shutil.copytree(BUNDLED, changed)
    basket = changed / "basket.py"
    basket.write_text(basket.read_text().replace("pieces > BULK", "pieces >= BULK"))

    done = bench.run("demo", "--source", str(changed))

    assert done.returncode == 5
    assert "passes already" in done.stderr


def test_the_demo_needs_no_home_and_heeds_no_server(bench) -> None:
    done = bench.run("demo", TURNWRIGHT_SERVER="127.0.0.1:1", TURNWRIGHT_HOME="/proc/nowhere")

    assert done.returncode == 0, done.stderr
