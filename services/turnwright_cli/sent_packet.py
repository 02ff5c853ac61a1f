"""`runs show RUN --packet N`: what the model was sent in a turn, byte for byte as it is stored."""

from __future__ import annotations

from rich.text import Text
from turnwright.types.v1 import entry_pb2

from turnwright_cli.exit_codes import DONE, usage
from turnwright_cli.invocation import Invocation
from turnwright_cli.json_lines import show_lines
from turnwright_cli.output import console, put
from turnwright_cli.plain import safe_text
from turnwright_client import Client
from turnwright_core.errors import MissingError

ROLES = ("system", "user")
"""Schemes of the messages of a packet."""


async def sent_packet(client: Client, project: str, run: str, turn: int) -> list[entry_pb2.Entry]:
    """The messages of the packet. Raises FailureError if none is stored."""
    try:
        return [await client.get_entry(project, run, f"{role}://{turn}") for role in ROLES]
    except MissingError:
        raise usage(
            f"No packet of turn {turn} is stored. `turnwright runs show {run} --turns` lists the turns."
        ) from None


def show_packet(call: Invocation, messages: list[entry_pb2.Entry]) -> int:
    """Titled on a terminal; in a pipe the texts alone."""
    if call.as_json:
        return show_lines(messages)
    out = console()
    for role, message in zip(ROLES, messages, strict=True):
        if out.is_terminal:
            put(out, Text(f"{role} message, {message.body_size_bytes:,} bytes", style="bold"))
            put(out, Text(safe_text(message.body)))
        else:
            out.file.write(message.body)
    return DONE
