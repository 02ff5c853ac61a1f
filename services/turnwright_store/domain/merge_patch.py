"""JSON merge patches for the attributes of entries.

Source: RFC 7386; row RU023.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import Any

import msgspec

from turnwright_core.checks import invalid
from turnwright_core.entries import to_attributes_json


def merge_attributes(attributes_json: str, patch_json: str) -> str:
    """Attributes after a merge patch; the same text if the patch changes nothing. Both are JSON objects."""
    before = _document(attributes_json)
    after = apply_merge_patch(before, _document(patch_json))
    text = attributes_text(after)
    # Values that are equal may be written differently, as 1 and true.
    return attributes_json if after == before and text == attributes_text(before) else text


def _document(text: str) -> Any:
    try:
        # It takes a quarter of the time, but refuses numbers that are too large, and unpaired surrogates.
        return msgspec.json.decode(text)
    except ValueError:
        return json.loads(text, parse_float=_finite)


def _finite(text: str) -> float:
    """A number that can be serialized again: JSON cannot represent infinity."""
    number = float(text)
    if not isfinite(number):
        raise invalid("merge_attributes_json", f"The number {text:.20} is too large to be merged.")
    return number


def apply_merge_patch(target: Any, patch: Any) -> Any:
    """A document after a merge patch: null removes a member, an object is merged, anything else replaces.

    The arguments are not modified.
    """
    if not isinstance(patch, dict):
        return patch
    result: dict[str, Any] = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = apply_merge_patch(result.get(name), value)
    return result


def attributes_text(attributes: dict[str, Any]) -> str:
    """Attributes as text, with escapes if an unpaired surrogate could not be stored otherwise."""
    text = to_attributes_json(attributes)
    try:
        text.encode()
    except UnicodeEncodeError:
        return json.dumps(attributes, separators=(",", ":"))
    return text
