"""Wrapping of content, so that it cannot imitate the markup of a packet (prompt injection).

An entry is a tag with its body between two sentinel lines:

    <known path="known://a" status="200" tokens="9">
    <<:::known://a
    the body, byte for byte
    :::known://a
    </known>

Everything between these sentinels is content, which a model must not obey. What it must obey (the task, what users say
later, the instructions of the project) stands between sentinels of another kind, `<<!!!prompt://1` and `!!!prompt://1`.
Of two frames, one within the other, the outer one counts: so content cannot imitate an order. A body that contains its
own closing sentinel gets another one with a part of its digest, which no body can contain, because it would have to
contain a digest of itself. Sentinels differ from edit markers, which are bare capitals. Source: RU192; C1, C65.
"""

from __future__ import annotations

import re
from collections.abc import Container, Mapping
from hashlib import sha256
from typing import Final

from turnwright_values.types import Entry, MessageKind, Tier

from turnwright_core.chat.timeline import kind_of
from turnwright_core.wire.command_records import decision_in

_CONTROLS: Final = (*range(0x20), 0x7F, 0x85, 0x2028, 0x2029)
_ESCAPES: Final = str.maketrans(
    {chr(code): f"&#{code};" for code in _CONTROLS} | {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;"}
)
_TO_ESCAPE: Final = re.compile(f"[{''.join(map(re.escape, map(chr, _ESCAPES)))}\ud800-\udfff]")
_NO_NAME: Final = re.compile(r"[^A-Za-z0-9_.-]")
_DIGEST_STEP: Final = 8
_CONTENT: Final = ":::"
_ORDER: Final = "!!!"
_OPENERS: Final = (f"<<{_CONTENT}", f"<<{_ORDER}")

RESERVED: Final = frozenset(
    {
        "prompt", "summary", "visible", "plans", "plan", "plan-update", "log", "event", "unknowns", "instructions",
        "project-instructions", "budget",
    }
)  # fmt: skip
"""Tags of the packet itself; an entry with such a name gets another one."""


def well_formed(text: str) -> str:
    """The text without unpaired surrogates, which JSON can contain and UTF-8 cannot."""
    return text if text.isascii() else text.encode("utf-8", "replace").decode()


def escape(text: str) -> str:
    """The text escaped for an attribute: one line, no markup."""
    return well_formed(text).translate(_ESCAPES) if _TO_ESCAPE.search(text) else text


def tag_name(name: str, reserved: Container[str] = RESERVED) -> str:
    """A valid tag name; other characters become `_`. `reserved` are the tags of sections."""
    clean = _NO_NAME.sub("_", name)
    if not clean or not (clean[0].isalpha() or clean[0] == "_"):
        clean = f"_{clean}"
    return f"{clean}_" if clean.lower() in reserved else clean


def attributes_text(attributes: Mapping[str, str | int]) -> str:
    """` key="value"` for each of them in order; empty values are left out."""
    if _TO_ESCAPE.search("".join(map(str, attributes.values()))):
        attributes = {key: escape(str(value)) for key, value in attributes.items()}
    return "".join([f' {key}="{value}"' for key, value in attributes.items() if value != ""])


def element(name: str, attributes: Mapping[str, str | int], content: str) -> str:
    """A tag around content on lines of its own; an empty one is self-closing."""
    return wrapped(name, attributes_text(attributes), content)


def wrapped(name: str, attributes: str, content: str) -> str:
    """The same, with attributes that are already text."""
    return f"<{name}{attributes}>\n{content}\n</{name}>" if content else f"<{name}{attributes}/>"


def fenced(path: str, body: str) -> str:
    """Content between its sentinels; empty for an empty body."""
    return _between(_CONTENT, path, body)


def ordered(path: str, body: str) -> str:
    """What a model must obey, between its sentinels; empty for an empty body."""
    return _between(_ORDER, path, body)


def imitates_frames(text: str) -> bool:
    """Whether a text that stands without a frame could be read as one."""
    return any(opener in text for opener in _OPENERS)


def _between(kind: str, path: str, body: str) -> str:
    if not body:
        return ""
    mark = f"{kind}{escape(path)}"
    if mark in body:
        mark = _marked(mark, body)
    return f"<<{mark}\n{body}\n{mark}"


def _marked(label: str, body: str) -> str:
    """A mark that a body with the label does not contain."""
    digest = sha256(body.encode("utf-8", "replace")).hexdigest()
    length = _DIGEST_STEP
    while (mark := f"{label}#{digest[:length]}") in body and length < len(digest):
        length += _DIGEST_STEP
    return mark


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
