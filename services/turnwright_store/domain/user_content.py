"""The content of a user's message: parts of text and images, and the files that it refers to. Source: row RC01."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from turnwright_values.store import EntryWrite, SetEntry
from turnwright_values.types import State, Tier

from turnwright_core.chat.message import Image, Part, Text
from turnwright_core.checks import check_bytes, check_count, invalid, over_limit
from turnwright_core.limits import IMAGE_BYTES_MAX, IMAGES_BYTES_MAX, PROMPT_BYTES_MAX
from turnwright_core.value_methods import to_attributes_json
from turnwright_store.domain.write_rules import check_path

PARTS_MAX: Final = 100
"""Most parts, and most context files, of a message."""


class UserContent(Struct, frozen=True):
    """A message as a task: its text, and the paths of its images."""

    text: str
    images: tuple[str, ...]
    brought: tuple[EntryWrite, ...] = ()
    """The entries of those images that the message brings along."""


def user_content(parts: Sequence[Part | None], context_files: Sequence[str], command_id: str = "") -> UserContent:
    """Check a message. Raises INVALID_FIELD, LIMIT_EXCEEDED.

    The entries of images that it brings along are named by `command_id`; without one they are refused.
    """
    check_count("parts", len(parts), PARTS_MAX)
    check_count("context_files", len(context_files), PARTS_MAX)
    texts: list[str] = []
    images: list[str] = []
    brought: list[EntryWrite] = []
    for index, part in enumerate(parts):
        match part:
            case Text():
                texts.append(part.text)
            case Image(path=path) if path:
                check_path(path, field=f"parts[{index}].image.path")
                images.append(path)
            case Image(data=data) if data and command_id:
                if len(data) > IMAGE_BYTES_MAX:
                    raise over_limit(f"parts[{index}].image.data", IMAGE_BYTES_MAX, len(data), "bytes")
                brought.append(_image_write(command_id, len(brought) + 1, part))
                images.append(brought[-1].path)
            case Image():
                message = f"The image of part {index} needs a path: write it into a file or an entry, and name that."
                raise invalid(f"parts[{index}].image", message)
            case None:
                raise invalid(f"parts[{index}]", f"Part {index} has neither a text nor an image.")
    _check_images(parts)
    for index, path in enumerate(context_files):
        check_path(path, field=f"context_files[{index}]")
    if not any(text.strip() for text in texts):
        raise invalid("parts", "The message is empty. Say what to do.")
    named = f"Files that this is about: {', '.join(context_files)}" if context_files else ""
    text = "\n\n".join(filter(None, [*texts, named]))
    check_bytes("parts", text, PROMPT_BYTES_MAX)
    return UserContent(text, tuple(images), tuple(brought))


def _check_images(parts: Sequence[Part | None]) -> None:
    size = sum(len(part.data) for part in parts if isinstance(part, Image))
    if size > IMAGES_BYTES_MAX:
        raise over_limit("parts", IMAGES_BYTES_MAX, size, "bytes of images")


def _image_write(command_id: str, number: int, image: Image) -> EntryWrite:
    """Keep an image as the runtime keeps those of loops: in base64, in an entry that nobody else writes."""
    key = hashlib.sha256(command_id.encode()).hexdigest()[:16]
    attributes = to_attributes_json({"mime": image.mime, "bytes": len(image.data)})
    body = base64.b64encode(image.data).decode()
    return EntryWrite(f"image://given_{key}/{number}", SetEntry(body, attributes, state=State.RESOLVED), Tier.SYSTEM)
