"""Types of images by their content: names and headers may be wrong, and vendors check the content."""

from __future__ import annotations

import re
from typing import Final

_TYPES: Final = (
    ("image/png", re.compile(rb"\x89PNG\r\n\x1a\n")),
    ("image/jpeg", re.compile(rb"\xff\xd8\xff")),
    ("image/gif", re.compile(rb"GIF8[79]a")),
    ("image/webp", re.compile(rb"RIFF.{4}WEBP", re.DOTALL)),
)
"""By their magic numbers."""


def image_type(data: bytes) -> str:
    """The media type of an image that models accept; empty for any other data."""
    return next((name for name, begins in _TYPES if begins.match(data)), "")
