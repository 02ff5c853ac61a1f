"""Reading a reply, and where that happens."""

from __future__ import annotations

import threading

import pytest

from turnwright_executor.app.generation import Draft
from turnwright_executor.app.recording import READ_ASIDE_CHARS, read_aside, read_draft
from turnwright_executor.domain.toolset import TOOL_ORDER
from turnwright_executor.ports.models import ToolCall


class Names(list):
    """Names of tools that know who looked at them."""

    def __init__(self) -> None:
        super().__init__(TOOL_ORDER)
        self.readers: set[int] = set()

    def __iter__(self):
        self.readers.add(threading.get_ident())
        return super().__iter__()


@pytest.mark.parametrize(
    ("draft", "is_aside"),
    [
        (Draft(["<get path='a.txt'/>"]), False),
        (Draft(["<get path='a.txt'/>", "x" * READ_ASIDE_CHARS]), True),
        (Draft(calls=(ToolCall("think", "x" * READ_ASIDE_CHARS),)), True),
    ],
    ids=["short", "text", "calls"],
)
@pytest.mark.asyncio
async def test_a_long_reply_is_read_beside_the_event_loop(draft, is_aside) -> None:
    names = Names()
    reading = await read_aside(draft, 9, names)
    assert (threading.get_ident() not in names.readers, reading) == (is_aside, read_draft(draft, 9))
