"""What a command loads: the start of a process is the loading of its modules, so nothing is loaded that is not used."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

NEVER = (
    "rich.console",
    "pydantic",
    "structlog",
    "alembic",
    "psycopg",
    "httpx",
    "html_to_markdown",
    "lxml",
    "sqlalchemy.dialects.postgresql",
)
SERVICES = (
    "turnwright_store",
    "turnwright_executor",
    "turnwright_assembler",
    "turnwright_provider",
    "turnwright_grammar",
)
READY = "executor serves at"


def started(home: Path, *arguments: str) -> subprocess.Popen[str]:
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TURNWRIGHT_", "OPENAI_"))}
    return subprocess.Popen(
        [sys.executable, "-X", "importtime", "-m", "turnwright_cli", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**inherited, "TURNWRIGHT_HOME": str(home), "TURNWRIGHT_SH_SANDBOX": "limits"},
    )


def loaded(home: Path, *arguments: str) -> set[str]:
    """The modules that a command loads until it ends, or until it says that it serves."""
    modules: set[str] = set()
    with started(home, *arguments) as process:
        for line in process.stderr:
            if found := re.match(r"import time:.*\| +(\S+)$", line):
                modules.add(found[1])
            if line.startswith(READY):
                break
        process.terminate()
    return modules


@pytest.mark.parametrize(
    ("arguments", "unused"),
    [
        (["--help"], ("asyncio", "grpc", "sqlalchemy", "turnwright_core", *NEVER)),
        (["act", "x", "--json", "--server", "127.0.0.1:1"], ("sqlalchemy", *SERVICES, *NEVER[1:])),
        (["runs", "--server", "127.0.0.1:1"], ("sqlalchemy", *SERVICES, *NEVER[1:])),
        (
            ["serve", *(f"--listen={name}=127.0.0.1:0" for name in ("store", "provider", "assembler", "executor"))],
            set(NEVER) - {"structlog", "rich.console"},
        ),
    ],
    ids=["help", "act", "runs", "serve"],
)
def test_a_command_does_not_load_what_it_does_not_use(tmp_path, arguments, unused):
    modules = loaded(tmp_path, *arguments)

    assert "turnwright_cli.app" in modules
    assert modules & set(unused) == set()


READS_NOT = {
    *NEVER,
    "rich.text",
    "prompt_toolkit",
    "turnwright_assembler",
    "turnwright_cli.render",
    "turnwright_store.app.changes",
    "turnwright_store.wiring",
    "turnwright_executor.wiring",
}
"""What a command that only reads loads neither itself nor for the services that it starts."""


def test_reading_without_a_stack_loads_no_more_than_it_reads(tmp_path):
    # The first command in a home makes its database.
    assert "turnwright_store.wiring" in loaded(tmp_path, "runs")

    lists = loaded(tmp_path, "runs")
    assert "turnwright_store.edge.read_only" in lists
    assert lists & {*READS_NOT, "turnwright_provider"} == set()
    assert loaded(tmp_path, "inbox") & READS_NOT == set()
    assert loaded(tmp_path, "models") & READS_NOT == set()
