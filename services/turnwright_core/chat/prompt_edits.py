"""Edits of a prompt: verbs that change what one model call is sent, and leave the messages of the run as they are.

    append, prepend, append_to, insert_after, insert_before

A list of edits is applied in order to a copy of the messages, and as a whole: if one fails, none is applied. What is
added has no id, no time and no settings, because it is sent once and stored nowhere but in the list of edits. Pure.
Source: seeds/opencode-message-shape (option 2); rows OM17-OM25, OM29, OM34; architecture 4.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from enum import Enum
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.replies import ThinkingBlock

from turnwright_core.chat.message import Image, Message, Part, Role, Text
from turnwright_core.checks import check_chars, check_count, invalid, over_limit
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import IMAGE_URL_CHARS_MAX, PATH_CHARS_MAX, PROMPT_EDITS_BYTES_MAX, PROMPT_EDITS_MAX


class Verb(Enum):
    """What an edit does; the value is the field of the contract."""

    APPEND = "append"
    PREPEND = "prepend"
    APPEND_TO = "append_to"
    INSERT_AFTER = "insert_after"
    INSERT_BEFORE = "insert_before"


TARGETS: Final = {"last-user": Role.USER, "last-assistant": Role.ASSISTANT}
"""What `append_to` can add to: the latest message of a role."""

BETWEEN: Final = "\n\n"
"""What stands between texts that are sent as one."""

_PLACE: Final = re.compile(r"(\d{1,9}):(\d{1,9})((?::\d{1,9})?)")
_INSERTS: Final = (Verb.INSERT_AFTER, Verb.INSERT_BEFORE)
_SPEAKERS: Final = (Role.USER, Role.ASSISTANT)


class PromptEdit(Struct, frozen=True, omit_defaults=True):
    """One edit. `role` is that of the new message; of `append_to` that of the message that is added to."""

    verb: Verb
    role: Role
    parts: tuple[Part, ...]
    message_id: str = ""
    """Path of the entry of the message that it inserts next to."""
    plugin: str = ""
    """The plugin that made it; empty: the client."""


class PromptMessage(Struct, frozen=True):
    """One message of a prompt. `id` is the path of its entry; empty: an edit added it.

    `role` says who speaks: events and plans are sent as messages of the user, and are none of theirs.
    """

    id: str
    role: Role
    message: Message

    @property
    def is_added(self) -> bool:
        return not self.id

    @property
    def text(self) -> str:
        return self.message.text


Parts = str | Part | Sequence[str | Part]
"""The content of a message: a text, an image, or several of them."""


def append(role: str, parts: Parts) -> PromptEdit:
    """Add a message of the `user` or the `assistant` at the end."""
    return PromptEdit(Verb.APPEND, _role(role), _listed(parts))


def prepend(role: str, parts: Parts) -> PromptEdit:
    """Add a message at the beginning; of several, the last one comes first."""
    return PromptEdit(Verb.PREPEND, _role(role), _listed(parts))


def append_to(target: str, parts: Parts) -> PromptEdit:
    """Add parts to the message `last-user` or `last-assistant`."""
    if target not in TARGETS:
        raise invalid("edits.target", f"{target!r} is not a message that parts can be added to: use {_or(TARGETS)}.")
    return PromptEdit(Verb.APPEND_TO, TARGETS[target], _listed(parts))


def insert_after(message_id: str, role: str, parts: Parts) -> PromptEdit:
    """Add a message directly after the one whose entry has this path."""
    return PromptEdit(Verb.INSERT_AFTER, _role(role), _listed(parts), message_id)


def insert_before(message_id: str, role: str, parts: Parts) -> PromptEdit:
    """Add a message directly before the one whose entry has this path."""
    return PromptEdit(Verb.INSERT_BEFORE, _role(role), _listed(parts), message_id)


def _role(word: str) -> Role:
    if word not in {role.value for role in _SPEAKERS}:
        raise invalid("edits.role", f"{word!r} is not the role of an added message: use user or assistant.")
    return Role(word)


def _listed(parts: Parts) -> tuple[Part, ...]:
    """A copy of the parts: changing the list later changes no edit (OM25)."""
    listed = (parts,) if isinstance(parts, str | Text | Image) else tuple(parts)
    for part in listed:
        if not isinstance(part, str | Text | Image):
            raise invalid("edits.parts", f"A part is a text or an image, not {type(part).__name__}.")
    return tuple(Text(part) if isinstance(part, str) else part for part in listed)


def check_edits(edits: Sequence[PromptEdit], field: str = "edits") -> None:
    """Refuse edits that no prompt could take. Raises INVALID_FIELD and LIMIT_EXCEEDED with the number of the edit."""
    check_count(field, len(edits), PROMPT_EDITS_MAX)
    for index, edit in enumerate(edits):
        _check_edit(f"{field}[{index}]", edit)
    size = sum(_size_bytes(edit) for edit in edits)
    if size > PROMPT_EDITS_BYTES_MAX:
        raise over_limit(field, PROMPT_EDITS_BYTES_MAX, size, "bytes")


def _check_edit(field: str, edit: PromptEdit) -> None:
    if edit.role not in _SPEAKERS:
        raise invalid(f"{field}.role", f"An edit cannot add a message of the role {edit.role.value}.")
    if not edit.parts or not all(map(_says_something, edit.parts)):
        raise invalid(f"{field}.parts", "An edit adds at least one part, and none of them may be empty or white space.")
    if edit.verb in _INSERTS and not edit.message_id:
        raise invalid(f"{field}.message_id", "Name the message that the new one stands next to.")
    check_chars(f"{field}.message_id", edit.message_id, PATH_CHARS_MAX)
    for part in edit.parts:
        if part.cache:
            raise invalid(f"{field}.parts", "The parts of edits take no cache breakpoints: edits are sent once.")
        if isinstance(part, Image):
            _check_image(f"{field}.parts", part, edit.role)


def _says_something(part: Part) -> bool:
    return bool(part.text.strip()) if isinstance(part, Text) else bool(part.url or part.path or part.data)


def _check_image(field: str, image: Image, role: Role) -> None:
    if role is not Role.USER:
        raise invalid(field, "Only messages of the user can have images.")
    if image.data or bool(image.url) == bool(image.path):
        raise invalid(field, "Give an image by its url, or by the path of a file or an entry.")
    if image.url and not image.url.startswith(("https://", "http://")):
        raise invalid(field, "The URL of an image must begin with https:// or http://.")
    check_chars(field, image.url, IMAGE_URL_CHARS_MAX)
    check_chars(field, image.path, PATH_CHARS_MAX)


def _size_bytes(edit: PromptEdit) -> int:
    texts = [part.text if isinstance(part, Text) else part.url + part.path for part in edit.parts]
    return sum(len(text.encode()) for text in (edit.message_id, *texts))


def image_paths_in(edits: Iterable[PromptEdit]) -> list[str]:
    return [part.path for edit in edits for part in edit.parts if isinstance(part, Image) and part.path]


def check_kept_images(edits: Iterable[PromptEdit]) -> None:
    """Refuse images by other paths than those of the entries that keep images, which alone can be sent."""
    for path in image_paths_in(edits):
        if not path.startswith("image://"):
            raise invalid("edits.parts", f"{path} is not an image of the run: name an entry of image://.")


def apply_prompt_edits(
    messages: Iterable[PromptMessage], edits: Iterable[PromptEdit], first: int = 0
) -> list[PromptMessage]:
    """The messages with the edits, in order (OM22). The edits are good by themselves: see check_edits.

    `first` is the number of the first edit in its list.

    Raises PROMPT_MESSAGE_UNKNOWN and PROMPT_TARGET_MISSING with the number of the edit, and its plugin.
    """
    found = list(messages)
    for index, edit in enumerate(edits, first):
        if edit.verb is Verb.APPEND_TO:
            at = _latest(found, edit, index)
            message = found[at].message
            found[at] = replace(found[at], message=replace(message, parts=(*message.parts, *edit.parts)))
            continue
        found.insert(_place(found, edit, index), PromptMessage("", edit.role, Message(edit.role, edit.parts)))
    return found


def _place(messages: Sequence[PromptMessage], edit: PromptEdit, number: int) -> int:
    if edit.verb is Verb.PREPEND:
        return 0
    if edit.verb is Verb.APPEND:
        return len(messages)
    for at, message in enumerate(messages):
        if message.id and message.id == edit.message_id:
            return at + (edit.verb is Verb.INSERT_AFTER)
    raise _failure(
        Reason.PROMPT_MESSAGE_UNKNOWN,
        f"there is no message {edit.message_id} in this prompt: it was removed or left out, or it is of another run",
        edit,
        number,
        message_id=edit.message_id,
    )


def _latest(messages: Sequence[PromptMessage], edit: PromptEdit, number: int) -> int:
    """The latest message of the role that an edit adds to."""
    for at in range(len(messages) - 1, -1, -1):
        if messages[at].role is edit.role:
            return at
    target = next(name for name, role in TARGETS.items() if role is edit.role)
    message = f"there is no message of the {edit.role.value} in this prompt that parts could be added to"
    raise _failure(Reason.PROMPT_TARGET_MISSING, message, edit, number, target=target)


def _failure(reason: Reason, message: str, edit: PromptEdit, number: int, **more: str) -> TurnwrightError:
    whose = f" of the plugin {edit.plugin}" if edit.plugin else ""
    return fault(
        reason, f"edits[{number}]{whose} ({edit.verb.value}): {message}.", edit=number, plugin=edit.plugin, **more
    )


def merge_assistant_texts(messages: Iterable[PromptMessage]) -> list[PromptMessage]:
    """The messages, in which those of the assistant have one text, as vendors expect."""
    return [_with_one_text(one) if one.role is Role.ASSISTANT else one for one in messages]


def _with_one_text(one: PromptMessage) -> PromptMessage:
    parts = one.message.parts
    if len(parts) <= 1:
        return one
    # Only users have images.
    after = BETWEEN.join(part.text for part in parts[1:] if isinstance(part, Text))
    return replace(one, message=with_text(replace(one.message, parts=parts[:1]), after=after))


def with_text(message: Message, *, before: str = "", after: str = "") -> Message:
    """A message of the assistant with more text; where its vendor placed pieces of it, they grow at the ends."""
    old = message.text
    text = BETWEEN.join(filter(None, (before, old, after)))
    shift = len(before + BETWEEN) if before and old else 0
    thinking = tuple(_moved(block, shift, len(old), len(text)) for block in message.thinking)
    return replace(message, parts=(Text(text),), thinking=thinking)


def _moved(block: ThinkingBlock, shift: int, old: int, new: int) -> ThinkingBlock:
    """A block that places a piece of the text, `start:end` in `data`; see the provider's blocks. All others stay."""
    placed = _PLACE.fullmatch(block.data) if block.type == "text" else None
    if not placed:
        return block
    start, end = int(placed[1]), int(placed[2])
    moved = (start + shift if start else 0, new if end == old else end + shift)
    return replace(block, data=f"{moved[0]}:{moved[1]}{placed[3]}")


def check_shape(messages: Sequence[PromptMessage], *, prefill: bool) -> None:
    """Refuse what edits have made of a prompt that no vendor takes (OM34). `messages` are in the order of sending.

    `prefill`: the model continues a message of the assistant at the end. Raises PROMPT_SHAPE_REFUSED.
    """
    added = [one.is_added and one.role is Role.ASSISTANT for one in messages]
    if added and added[0]:
        raise _shape("leading_assistant", "it begins with a message of the assistant")
    if added and added[-1] and not prefill:
        message = (
            "it ends with a message of the assistant, and the model is not known to continue one. If it does, say so: "
            "turnwright models set ALIAS --prefill"
        )
        raise _shape("trailing_assistant", message)


def _shape(shape: str, message: str) -> TurnwrightError:
    return fault(Reason.PROMPT_SHAPE_REFUSED, f"The edits make a prompt that cannot be sent: {message}.", shape=shape)


def _or(words: Iterable[str]) -> str:
    return " or ".join(words)
