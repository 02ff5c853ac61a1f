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


def read_cut(text: str, *calls: tuple[str, str]) -> tuple[list[str], list[str]]:
    """What runs of a reply that its vendor cut, and what is said to be lost."""
    reading = read_draft(Draft([text], calls=tuple(ToolCall(*call) for call in calls), is_cut=True), 9)
    return [command.name for command in reading.commands], [warning.kind for warning in reading.losses]


GET, RM = ("get", '{"path": "a"}'), ("rm", '{"path": "b"}')


@pytest.mark.parametrize(
    ("text", "calls", "run", "lost"),
    [
        ("I read.", [GET, RM], ["get", "rm"], []),
        ("I read.", [GET, ("rm", '{"path": "b')], ["get"], ["cut_reply"]),
        ("I read.", [GET, ("rm", '{"path": "b"')], ["get"], ["cut_reply"]),
        ("I read.", [GET, ("rm", "")], ["get"], ["cut_reply"]),
        ("I read.", [("rm", "{'path': 'b'}"), GET], ["rm", "get"], []),
        ("I read.", [("sh", '{"command": "echo </tool_call>')], [], ["cut_reply"]),
        ("", [("get", '{"path": "a"}{"path": "b')], ["get"], ["cut_reply"]),
        ('<set path="a">half', [GET], [], ["cut_reply", "cut_reply"]),
    ],
)
def test_of_native_calls_that_the_vendor_cut_those_run_that_are_complete(text, calls, run, lost) -> None:
    # C54
    assert read_cut(text, *calls) == (run, lost)
