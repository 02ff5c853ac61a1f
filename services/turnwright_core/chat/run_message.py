"""A message of a run, made from an entry. Meanings are in types/v1/run_message.proto."""

from __future__ import annotations

from msgspec import Struct


class RecordedCall(Struct, frozen=True):
    """The tool call in the record of a command; `arguments` are JSON text."""

    tool: str
    arguments: str
    call_id: str = ""
    vendor_call_id: str = ""
