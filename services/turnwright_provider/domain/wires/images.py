"""The images of a message, for wires that take the media type and the data as separate fields."""

from __future__ import annotations

import base64
import re
from typing import Final

from turnwright_core.chat.message import Image, Message, Text

_DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def images_of(message: Message) -> list[Image]:
    parts = message.parts
    # A message of one text, as most are, is looked at no further.
    return [] if len(parts) == 1 and isinstance(parts[0], Text) else [one for one in parts if isinstance(one, Image)]


def inline_image(image: Image) -> tuple[str, str] | None:
    """Media type and base64 data of an image; None if it is given by its URL."""
    if not image.url:
        return image.mime, base64.b64encode(image.data).decode()
    found = _DATA_URL.fullmatch(image.url)
    return (image.mime or found[1], found[2]) if found else None
