"""What people install: the built wheel describes itself, and works with nothing of the checkout beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from turnwright_core import __version__

ROOT = Path(__file__).parents[2]
SERVICES = ROOT / "services"
BUILT_FROM = ("clients/", *(f"turnwright_ui/{name}" for name in ("src/", "package.json", "tsconfig.json", "build.mjs")))
"""What the page is built from, and clients in other languages."""
WAIT_S = 110

pytest.importorskip("hatchling", reason="install the extra `test`: the wheel is built by hatchling")


def built(kind: str, source: Path, folder: Path) -> Path:
    """A `wheel` or an `sdist` of the source."""
    build = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, folder], cwd=source, check=True, capture_output=True, text=True, timeout=WAIT_S
    )
    return folder / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def package(tmp_path_factory) -> Path:
    """The wheel, built from the checkout."""
    return built("wheel", ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def wheel(package, tmp_path_factory) -> Path:
    """The wheel, unpacked as an installer does."""
    site = tmp_path_factory.mktemp("site")
    with zipfile.ZipFile(package) as archive:
        archive.extractall(site)
    return site


def test_whoever_builds_it_from_the_sdist_gets_the_same_bytes(package, tmp_path) -> None:
    """Elsewhere, later, by somebody whose files have other rights: what is published can be checked by anybody."""
    sources = [built("sdist", ROOT, tmp_path / each) for each in ("once", "again")]
    assert sources[0].read_bytes() == sources[1].read_bytes()
    with tarfile.open(sources[0]) as archive:
        archive.extractall(tmp_path, filter="data")
    source = tmp_path / sources[0].name.removesuffix(".tar.gz")
    for path in source.rglob("*.py"):
        path.chmod(0o600)
        os.utime(path, (1, 1))
    again = built("wheel", source, tmp_path)
    assert (again.name, again.read_bytes()) == (package.name, package.read_bytes())


def test_one_place_says_which_release_it_is(package) -> None:
    assert package.name == f"turnwright-{__version__}-py3-none-any.whl"
    images = (ROOT / "deploy" / "kubernetes" / "base" / "kustomization.yaml").read_text()
    assert f"newTag: {__version__}\n" in images
    assert f"\n## {__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_its_description_is_the_readme(wheel) -> None:
    about = message_from_bytes(next(wheel.glob("*.dist-info/METADATA")).read_bytes())
    assert about["Description-Content-Type"] == "text/markdown"
    assert about.get_payload(decode=True).decode().strip() == (ROOT / "README.md").read_text().strip()
    assert about["Summary"]


def test_it_holds_every_file_of_the_packages(wheel) -> None:
    tracked = subprocess.run(["git", "ls-files"], cwd=SERVICES, check=True, capture_output=True, text=True).stdout
    kept = [name for name in tracked.splitlines() if not name.startswith(BUILT_FROM)]
    assert [name for name in kept if not (wheel / name).is_file()] == []
    assert not list((wheel / "turnwright_ui").rglob("*.ts*"))


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
