"""What a session completes, and which images a message names."""

from __future__ import annotations

import pytest
from prompt_toolkit.application import create_app_session
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from turnwright_cli.chat import ChatCompleter, ChatInput
from turnwright_cli.chat_commands import ChatState
from turnwright_core.errors import Reason, fault


@pytest.fixture
def root(tmp_path):
    for name in ("a b.png", "plain.py", "ünï.txt", "line\nfeed.txt", "esc\x1b[31m.txt", "sub/deep.py"):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.touch()
    return tmp_path


async def models():
    return [("local", "openai/one"), ("long", "openai/two")]


async def unreachable():
    raise fault(Reason.SERVICE_UNAVAILABLE, "The store does not answer.", service="store")


@pytest.mark.parametrize(
    ("typed", "completed"),
    [
        ("see @pl", ["see @plain.py"]),
        ('@"a b', ['@"a b.png"']),
        ("@a", ['@"a b.png"', "@plain.py"]),
        ("@Ün", ["@ünï.txt"]),
        ("@deep", ["@sub/deep.py"]),
        ("@feed", []),
        ("@esc", []),
        ("me@pl", []),
        ("/mod", ["/model"]),
        ("/model lo", ["/model local", "/model long"]),
        ("/model ", ["/model local", "/model long"]),
        ("/run a", []),
        ("see /model l", []),
        ("", []),
    ],
)
@pytest.mark.asyncio
async def test_names_are_completed_those_of_files_in_quotes_if_they_have_spaces(root, typed, completed) -> None:
    completer = ChatCompleter(root, {"/model": models, "/run": unreachable})
    found = [one async for one in completer.get_completions_async(Document(typed), CompleteEvent())]
    assert [typed[: len(typed) + one.start_position] + one.text for one in found] == completed


def test_an_image_is_named_with_spaces_in_quotes_and_before_a_full_stop(root) -> None:
    (root / "c.PNG").touch()
    state = ChatState("p", root)
    assert state.images_in('Compare @"a b.png" with @c.PNG. Not @d.png, nor @plain.py') == ["a b.png", "c.PNG"]


@pytest.mark.asyncio
async def test_bytes_of_another_encoding_become_question_marks(tmp_path) -> None:
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        line = ChatInput(tmp_path / "history", lambda: "", ChatCompleter(tmp_path, {}))
        keys.send_bytes("é".encode("latin-1") + b"t\xff " + "é\r".encode())
        assert await line.read() == "?t? é"
