"""What tools of servers ask models while they work: what may be asked, and what is answered.

A server is another's program: whatever it asks beyond these rules is answered with what is wrong, and asked of nobody.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from turnwright_core.chat.message import Message, Role, text_message

MESSAGES_MAX: Final = 100
BYTES_MAX: Final = 256 * 1024
"""Most bytes of text of one question."""
TOKENS: Final = 4096
"""Tokens of output that are asked for where the server names no number."""
TOKENS_MAX: Final = 8192
STATE_BYTES_MAX: Final = 32 * 1024
"""Most that is kept of a server while it waits for an answer or a decision, in bytes."""


class ToolQuestion(Struct, frozen=True):
    """What a tool asks a model. `alias`: the only one that it may ask."""

    alias: str
    messages: tuple[Message, ...]
    output_tokens_max: int
    temperature: float | None = None


class ModelAnswer(Struct, frozen=True):
    """What a model has said to a tool, or in `problem` why none has been asked, or has answered."""

    text: str = ""
    alias: str = ""
    is_cut: bool = False
    problem: str = ""


class CallQuestion(Struct, frozen=True):
    """A call that wants a model to be asked. Without a question there is a problem: nobody is asked."""

    state: bytes
    question: ToolQuestion | None = None
    problem: str = ""


class Asked(Struct, frozen=True):
    """A message as a server has sent it. A part that is no text is None."""

    role: Role | None
    parts: tuple[str | None, ...]


def question_of(
    alias: str, asked: Sequence[Asked], output_tokens_max: int, temperature: float | None, state: bytes
) -> CallQuestion:
    """The question, or what is wrong with it. `alias`: of the model that the server may ask; empty: none."""
    messages = _messages(asked)
    if len(state) > STATE_BYTES_MAX:
        return CallQuestion(b"", problem=f"The state is {len(state)} bytes long, of at most {STATE_BYTES_MAX}.")
    if problem := _problem(alias, asked, messages, temperature):
        return CallQuestion(state, problem=problem)
    tokens = min(output_tokens_max or TOKENS, TOKENS_MAX)
    return CallQuestion(state, ToolQuestion(alias, tuple(messages), tokens, temperature))


def _messages(asked: Sequence[Asked]) -> list[Message]:
    """The conversation; vendors want the user and the model in turns."""
    found: list[Message] = []
    for one in asked:
        texts = [text for text in one.parts if text]
        role = one.role or Role.USER
        before = [found.pop().text] if found and found[-1].role is role else []
        found.append(text_message(role, "\n\n".join([*before, *texts])))
    return found


def _problem(alias: str, asked: Sequence[Asked], messages: Sequence[Message], temperature: float | None) -> str:
    roles = [one.role for one in messages]
    size = sum(len(one.text.encode()) for one in messages)
    if not alias:
        return "Nobody has allowed this server to ask a model: its registration names none."
    if len(asked) > MESSAGES_MAX or size > BYTES_MAX:
        return f"A model is asked at most {MESSAGES_MAX} messages with {BYTES_MAX} bytes of text together."
    if any(one.role not in _ROLES or None in one.parts for one in asked) or Role.SYSTEM in roles[1:]:
        return "A model is asked texts: of the system at first, then of the user and the model."
    if not messages or roles[-1] is not Role.USER or not messages[-1].text.strip():
        return "The last message has to be a text of the user."
    if temperature is not None and not 0 <= temperature <= 2:
        return f"The temperature must be 0 to 2; it is {temperature}."
    return ""


_ROLES: Final = (Role.SYSTEM, Role.USER, Role.ASSISTANT)
