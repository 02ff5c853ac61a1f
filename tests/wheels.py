"""The wheels of a release, built from a source, and an environment that has nothing but the client's."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
CLIENT = Path("services", "clients", "python")
WAIT_S = 110


def built(kind: str, source: Path, folder: Path) -> Path:
    """A `wheel`, an `editable` one or an `sdist` of the source."""
    build = f"import sys; from hatchling.build import build_{kind}; print(build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", build, folder], cwd=source, check=True, capture_output=True, text=True, timeout=WAIT_S
    )
    return folder / done.stdout.split()[-1]


def about(wheel: Path):
    """What a wheel says of itself."""
    with zipfile.ZipFile(wheel) as archive:
        return message_from_bytes(archive.read(next(name for name in archive.namelist() if name.endswith("/METADATA"))))


def brought(wheel: Path) -> dict[str, Distribution]:
    """What else an installer brings with a wheel, as it is installed here."""
    found: dict[str, Distribution] = {}
    wanted = [Requirement(one) for one in about(wheel).get_all("Requires-Dist")]
    while wanted:
        need = wanted.pop()
        name = canonicalize_name(need.name)
        if name in found or (need.marker and not need.marker.evaluate({"extra": ""})):
            continue
        found[name] = distribution(name)
        assert found[name].version in need.specifier
        wanted += map(Requirement, found[name].requires or ())
    return found


def empty_environment(folder: Path, wheel: Path) -> Path:
    """The folder of programs of an environment with a wheel and what that brings, without asking an index."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True, timeout=WAIT_S)
    site = next(folder.glob("lib/python3*/site-packages"))
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(site)
    for one in brought(wheel).values():
        for file in one.files or ():
            if ".." not in file.parts and "__pycache__" not in file.parts:
                (site / file).parent.mkdir(parents=True, exist_ok=True)
                (site / file).symlink_to(str(file.locate()))
    return folder / "bin"
