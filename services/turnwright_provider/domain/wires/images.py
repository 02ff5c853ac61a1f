"""Images as wires take them that want type and bytes apart."""

from __future__ import annotations

import base64
import re
from typing import Final

from turnwright_core.chat.message import Image

_DATA_URL: Final = re.compile(r"data:([^;,]*);base64,(.*)", re.DOTALL)


def inline(image: Image) -> tuple[str, str] | None:
    """Media type and base64 of an image in the request; None for one at an address."""
    if not image.url:
        return image.mime, base64.b64encode(image.data).decode()
    found = _DATA_URL.fullmatch(image.url)
    return (image.mime or found[1], found[2]) if found else None
