"""`@turnwright/client` as npm packs it, installed in a folder with nothing but its peers."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tarfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from needs import needs
from polyglot.pages import FILE, REPO

SOURCE = REPO / "services" / "clients" / "ts"
MODULES = REPO / "node_modules"
PROGRAMS = Path(__file__).parent / "typescript"
PAGE = (REPO / "docs" / "clients" / "typescript.md").read_text()
OF_PAGE = dict(FILE.findall(PAGE))
COMMANDS = [
    line
    for block in re.findall(r"^```sh\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    for line in block.splitlines()
    if not line.startswith("#")
]
NPM_S = 300
NODE = shutil.which("node") or ""
needs_node = needs(
    "Node",
    "and its packages: `make node_modules/.installed`",
    there=NODE and (MODULES / "@connectrpc/connect-node").is_dir(),
)


@dataclass(frozen=True)
class Packed:
    """`folder` is that of whoever installed `archive`, with the programs of tests and of the page in it."""

    archive: Path
    folder: Path

    def names(self) -> list[str]:
        with tarfile.open(self.archive) as found:
            return [name.removeprefix("package/") for name in found.getnames()]


def run(command: list[str], folder: Path) -> str:
    # npm tells each program where it was called from, and the folder is none of the checkout's.
    environment = {name: value for name, value in os.environ.items() if not name.lower().startswith("npm_")}
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=NPM_S
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout


def packed(folder: Path, *peers: str) -> Packed:
    """Pack it and install it without a network: the peers are those that the checkout has."""
    told = json.loads(run(["npm", "pack", "--silent", "--json", "--pack-destination", str(folder)], SOURCE))
    archive = folder / told[0]["filename"]
    made = Packed(archive, folder / "of-somebody")
    made.folder.mkdir()
    given = [str(MODULES / peer) for peer in ("@bufbuild/protobuf", "@connectrpc/connect", *peers)]
    quiet = ["--offline", "--install-links", "--no-audit", "--no-fund"]
    run(["npm", "install", *quiet, str(archive), *given], made.folder)
    for name, text in (OF_PAGE | {file.name: file.read_text() for file in PROGRAMS.iterdir()}).items():
        (made.folder / name).write_text(text)
    return made


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    return packed(tmp_path_factory.mktemp("packed"), "@connectrpc/connect-node")
