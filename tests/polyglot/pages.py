"""The programs of docs/clients: each page has the files of one, under their names, and the tests build and run these."""

from __future__ import annotations

import functools
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
FILE = re.compile(r"^```\w+ ([\w./-]+\.\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BUILD_S = 1800
"""Rust compiles some two hundred crates the first time."""


@dataclass(frozen=True)
class Program:
    """`page` is in docs/clients; `builds` are run where its files are, with those of tests/polyglot/{name} beside them."""

    name: str
    page: str
    needs: str
    """A program on the path; empty: nothing but what the tests themselves have."""
    builds: tuple[str, ...]
    command: tuple[str, ...]
    """How it is run there; its arguments follow."""
    scheme: tuple[str, str] = ("", "")
    """What stands before an address in plaintext and with TLS."""

    @property
    def folder(self) -> Path:
        return REPO / "build" / "clients" / self.name

    def missing(self) -> str:
        """What keeps it from being built here; empty if nothing does."""
        if self.needs and not shutil.which(self.needs):
            return f"needs {self.needs}: it builds the program"
        is_node = self.needs == "node"
        return (
            "needs Node: `make node_modules/.installed`"
            if is_node and not (REPO / "node_modules/esbuild").is_dir()
            else ""
        )


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
            command, shell=True, cwd=program.folder, capture_output=True, text=True, check=False, timeout=BUILD_S
        )
        assert made.returncode == 0, f"{command}\n{made.stdout}{made.stderr}"


# Maven's protoc comes without the messages of google.protobuf; the generator of gen/python has them.
PROTOC = (
    "PROTOC=../../tools/protoc PROTOC_INCLUDE=$(echo ../../../.gen-venv/lib/python3*/site-packages/grpc_tools/_proto)"
)
BUNDLE = "../../../node_modules/.bin/esbuild --log-level=warning --bundle"
PYTHON = Program("python", "python.md", "", (), (sys.executable, "client.py"))
GO = Program("go", "go.md", "go", ("go build -o client .",), ("./client",))
NODE = Program(
    "node", "typescript.md", "node", (f"{BUNDLE} node.ts --platform=node --outfile=node.cjs",), ("node", "node.cjs"),
    ("http://", "https://"),
)  # fmt: skip
WEB = Program(
    "web", "typescript.md", "node", (f"{BUNDLE} web.ts --outfile=web.js", "../../../node_modules/.bin/tsc"), ()
)
JAVA = Program(
    "java", "java.md", "mvn",
    ("mvn --quiet --batch-mode package dependency:copy-dependencies -Dprotos=../../../protos",),
    ("java", "-cp", "target/classes:target/dependency/*", "Client"),
)  # fmt: skip
RUST = Program(
    "rust",
    "rust.md",
    "cargo",
    (f"{PROTOC} PROTOS=../../../protos cargo build --quiet --locked",),
    ("target/debug/client",),
    ("http://", "https://"),
)
