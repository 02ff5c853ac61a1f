"""The programs of docs/clients: each page has the files of one, under their names, and the tests build and run these."""

from __future__ import annotations

import functools
import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^```\w+ ([\w./-]+\.\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MODULE = REPO / "services/clients/go"
BUILD_S = 1800
"""Rust compiles some two hundred crates the first time."""


@dataclass(frozen=True)
class Program:
    """`page` is in docs/clients; `builds` are run where its files are, with those of tests/polyglot/{name} beside them."""

    name: str
    page: str
    needs: str = ""
    """A program on the path; empty: nothing but what the tests themselves have."""
    builds: tuple[str, ...] = ()
    instead_of: tuple[str, ...] = ()
    """How the page's commands begin in whose place `builds` are run: those that download what the repository has."""
    reads_on: bool = True
    """Whether it also reads entries, branches on the reason of an error, and forks the run."""
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    """What else its commands need here."""

    @property
    def run(self) -> str:
        """The page's commands that run it, as they stand there."""
        text = (REPO / "docs" / "clients" / self.page).read_text()
        lines = [
            line
            for block in re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
            for line in block.splitlines()
        ]
        return "\n".join(line for line in lines if not line.startswith(self.instead_of))

    @property
    def folder(self) -> Path:
        return REPO / "build" / "clients" / self.name

    def missing(self) -> str:
        """What keeps it from being built here; empty if nothing does."""
        if self.needs == "go":
            return missing_go(MODULE)
        if self.needs and not shutil.which(self.needs):
            return f"needs {self.needs}: it builds the program"
        return ""


@functools.cache
def missing_go(module: Path) -> str:
    """What keeps a module for Go from being built here; empty if nothing does. It names the oldest version that will do."""
    if not shutil.which("go"):
        return "needs go: it builds the program"
    least = re.search(r"^go (\d+)\.(\d+)", (module / "go.mod").read_text(), re.MULTILINE)
    told = subprocess.run(["go", "version"], capture_output=True, text=True, check=True).stdout
    found = re.search(r"go(\d+)\.(\d+)", told)
    assert least, "go.mod names no version"
    is_new = bool(found) and tuple(map(int, found.groups())) >= tuple(map(int, least.groups()))
    return "" if is_new else f"needs Go {'.'.join(least.groups())}: it builds the program"


@functools.cache
def build(program: Program) -> None:
    """Write its files where they differ, and compile them."""
    own = Path(__file__).parent / program.name
    files = {str(file.relative_to(own)): file.read_text() for file in own.rglob("*") if file.is_file()}
    files |= dict(FILE.findall((REPO / "docs" / "clients" / program.page).read_text()))
    for name, text in files.items():
        file = program.folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        if not file.exists() or file.read_text() != text:
            file.write_text(text)
    for command in program.builds:
        made = subprocess.run(
            command,
            shell=True,
            cwd=program.folder,
            env=os.environ | program.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=BUILD_S,
        )
        assert made.returncode == 0, f"{command}\n{made.stdout}{made.stderr}"


PYTHON = Program("python", "python.md")
GO = Program("go", "go.md", "go", ("go build -o client .",), ("go mod init",), reads_on=False)
JAVA = Program(
    "java",
    "java.md",
    "mvn",
    ("mvn --quiet --batch-mode package dependency:copy-dependencies -Dprotos=../../../protos",),
    ("mvn package",),
    reads_on=False,
)
RUST = Program(
    "rust",
    "rust.md",
    "cargo",
    ("cargo build --quiet --locked",),
    reads_on=False,
    environment={
        "PROTOS": str(REPO / "protos"),
        "PROTOC": str(REPO / "build/tools/protoc"),
        # Maven's protoc comes without the messages of google.protobuf; the generator of gen/python has them.
        "PROTOC_INCLUDE": str(next(REPO.glob(".gen-venv/lib/python3*/site-packages/grpc_tools/_proto"), "")),
    },
)
