"""Images for wires that take the media type and the data as separate fields."""

from __future__ import annotations

import base64
import re
from typing import Final

from turnwright_core.chat.message import Image

_DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def inline_image(image: Image) -> tuple[str, str] | None:
    """Media type and base64 data of an image; None if it is given by its URL."""
    if not image.url:
        return image.mime, base64.b64encode(image.data).decode()
    found = _DATA_URL.fullmatch(image.url)
    return (image.mime or found[1], found[2]) if found else None
