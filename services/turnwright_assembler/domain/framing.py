"""Who speaks in the body of an entry: somebody whom a model must obey, or anybody else.

Prompts, injected messages and the comments of decisions are people's; only clients and the runtime write them. Source:
C65.
"""

from __future__ import annotations

from turnwright_values.types import Entry, MessageKind, Tier

from turnwright_assembler.domain.envelope import fenced, imitates_frames, ordered
from turnwright_core.chat.timeline import kind_of
from turnwright_core.wire.command_records import decision_in


def framed(entry: Entry, text: str, category: str) -> str:
    """What is shown of an entry's body, in its frames. A model cannot give orders, whatever schemes are registered."""
    if entry.record:
        return framed_result(entry.path, *divided(entry, text))
    is_prompt = category == "prompt" and entry.writer is not Tier.MODEL
    if is_prompt or kind_of(entry) is MessageKind.STEERING:
        return ordered(entry.path, text)
    return fenced(entry.path, text)


def divided(entry: Entry, text: str) -> tuple[str, str]:
    """What is shown of a result, without and with what somebody said who decided on the command."""
    decision = decision_in(entry.record) if entry.record else None
    comment = decision.comment.strip() if decision else ""
    if not comment:
        return text, ""
    if entry.body.strip() == comment:
        return "", text
    return (text.removesuffix(comment), comment) if text.endswith(comment) else (text, "")


def framed_result(path: str, content: str, comment: str) -> str:
    """A result with what somebody said about it."""
    return "\n".join(filter(None, (fenced(path, content), ordered(path, comment))))


def answer_text(path: str, content: str, comment: str) -> str:
    """The same as the answer to a call, which is content by itself: framed only where it could be read as more."""
    return framed_result(path, content, comment) if comment or imitates_frames(content) else content


def user_text(path: str, text: str) -> str:
    """What a user says in a message of theirs: framed only where content is quoted that could be read as a frame."""
    return ordered(path, text) if imitates_frames(text) else text
