"""What people install: the built wheel describes itself, and works with nothing of the checkout beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SERVICES = ROOT / "services"
WAIT_S = 110

pytest.importorskip("hatchling", reason="install the extra `test`: the wheel is built by hatchling")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel, built from the checkout and unpacked as an installer does."""
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys; from hatchling.build import build_wheel; build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, folder], cwd=ROOT, check=True, capture_output=True, timeout=WAIT_S)
    site = folder / "site"
    with zipfile.ZipFile(next(folder.glob("*.whl"))) as archive:
        archive.extractall(site)
    return site


def test_its_description_is_the_readme(wheel) -> None:
    about = message_from_bytes(next(wheel.glob("*.dist-info/METADATA")).read_bytes())
    assert about["Description-Content-Type"] == "text/markdown"
    assert about.get_payload(decode=True).decode().strip() == (ROOT / "README.md").read_text().strip()
    assert about["Summary"]


def test_it_holds_every_file_of_the_packages(wheel) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=SERVICES, check=True, capture_output=True, text=True).stdout
    assert [name for name in tracked.splitlines() if not (wheel / name).is_file()] == []


def test_the_demo_runs_from_it(wheel, tmp_path) -> None:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWRIGHT_", "OPENAI_"))}
    found = "import turnwright_cli, turnwright_cli.__main__ as m; print(turnwright_cli.__file__, flush=True); m.run()"
    ended = subprocess.run(
        [sys.executable, "-c", found, "demo"],
        env={**inherited, "PYTHONPATH": str(wheel), "TURNWRIGHT_HOME": str(tmp_path / "home")},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WAIT_S,
        check=False,
    )
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.splitlines()[0] == str(wheel / "turnwright_cli" / "__init__.py")
    assert "The demo is complete" in ended.stdout
