"""The content of a user's message: parts of text and images, and the files that it refers to. Source: row RC01."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from turnwright_core.chat.message import Image, Part, Text
from turnwright_core.checks import check_bytes, check_count, invalid
from turnwright_core.limits import PROMPT_BYTES_MAX
from turnwright_store.domain.write_rules import check_path

PARTS_MAX: Final = 100
"""Most parts, and most context files, of a message."""


class UserContent(Struct, frozen=True):
    """A message as a task: its text, and the paths of its images."""

    text: str
    images: tuple[str, ...]


def user_content(parts: Sequence[Part | None], context_files: Sequence[str]) -> UserContent:
    """Check a message. Raises INVALID_FIELD, LIMIT_EXCEEDED."""
    check_count("parts", len(parts), PARTS_MAX)
    check_count("context_files", len(context_files), PARTS_MAX)
    texts, images = [], []
    for index, part in enumerate(parts):
        match part:
            case Text():
                texts.append(part.text)
            case Image(path=path) if path:
                check_path(path, field=f"parts[{index}].image.path")
                images.append(path)
            case Image():
                message = f"The image of part {index} needs a path: write it into a file or an entry, and name that."
                raise invalid(f"parts[{index}].image", message)
            case None:
                raise invalid(f"parts[{index}]", f"Part {index} has neither a text nor an image.")
    for index, path in enumerate(context_files):
        check_path(path, field=f"context_files[{index}]")
    if not any(text.strip() for text in texts):
        raise invalid("parts", "The message is empty. Say what to do.")
    named = f"Files that this is about: {', '.join(context_files)}" if context_files else ""
    text = "\n\n".join(filter(None, [*texts, named]))
    check_bytes("parts", text, PROMPT_BYTES_MAX)
    return UserContent(text, tuple(images))
