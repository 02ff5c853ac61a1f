"""`undo RUN [TURN]` and `/undo`: take back what a turn changed in project files."""

from __future__ import annotations

import secrets

from rich.console import Console
from rich.text import Text
from turnwright.types.v1 import entry_pb2

from turnwright_cli.exit_codes import DIFFERENT, DONE, FAILED
from turnwright_cli.invocation import Invocation
from turnwright_cli.json_lines import show_lines
from turnwright_cli.output import console, put
from turnwright_cli.plain import safe_text
from turnwright_cli.records import attributes_of
from turnwright_cli.run_names import full_alias
from turnwright_cli.session import open_project
from turnwright_client import Client


async def undo(call: Invocation, *, run: str, turn: int) -> int:
    """Exits with 1 if some files stay as they are, and with 5 if all do."""
    async with open_project(call) as (client, project):
        run = await full_alias(client, project, run)
        record = await undone(client, project, run, turn)
    if call.as_json:
        show_lines([record])
    else:
        show_undone(console(), record)
    if record.outcome:
        return FAILED
    return DIFFERENT if attributes_of(record).get("left") else DONE


async def undone(client: Client, project: str, run: str, turn: int = 0) -> entry_pb2.Entry:
    """The record of taking back a turn; 0: the latest one that changed files."""
    attributes = {"turn": str(turn)} if turn else {}
    return await client.call_tool(project, run, "undo", attributes, request_id=secrets.token_hex(16))


def show_undone(out: Console, record: entry_pb2.Entry) -> None:
    first, *rest = safe_text(record.body).split("\n")
    put(out, Text(first, style="yellow" if record.outcome else "bold"))
    for line in rest:
        put(out, Text(f"  {line}", style="yellow" if "stays as it is" in line or "not taken back" in line else ""))
