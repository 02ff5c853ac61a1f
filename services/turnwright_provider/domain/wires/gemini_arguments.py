"""Arguments of a call that Gemini streams: a value for a JSONPath each, texts in pieces.

    {"jsonPath": "$.items[0].name", "stringValue": "app", "willContinue": true}

Source: cases wire/gemini; Google's reference of `FunctionCall.partialArgs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any, Final

from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.tool_calls import ARGUMENTS_CHARS_MAX

_STEP: Final = re.compile(r"""\.([^.\[\]]+)|\[(\d{1,6})\]|\['((?:[^'\\]|\\.)*)'\]|\["((?:[^"\\]|\\.)*)"\]""")
_VALUES: Final = ("numberValue", "boolValue", "nullValue")

STEPS_MAX: Final = 64
"""Deepest value; those below are ignored."""


class PartialArguments:
    """Assembles the arguments of one call from its pieces."""

    def __init__(self) -> None:
        self._whole: Mapping[str, Any] = {}
        self._values: dict[str, Any] = {}
        self._chars = 0

    def add(self, piece: Mapping[str, Any]) -> None:
        """Add one piece. Raises VendorError if the total is too long."""
        path, text = piece.get("jsonPath"), piece.get("stringValue")
        if not isinstance(path, str):
            return
        self._chars += len(path) + (len(text) if isinstance(text, str) else 0)
        if self._chars > ARGUMENTS_CHARS_MAX:
            raise failed(FailureClass.PROTOCOL, f"the arguments of a call are over {ARGUMENTS_CHARS_MAX} characters")
        if isinstance(text, str):
            held = self._values.setdefault(path, [])
            if isinstance(held, list):
                held.append(text)
            return
        for name in _VALUES:
            if name in piece:
                self._values[path] = None if name == "nullValue" else piece[name]

    def set(self, arguments: Mapping[str, Any]) -> None:
        """Set arguments that came in one piece."""
        self._whole = arguments

    def text(self) -> str:
        root: dict[str, Any] = dict(self._whole)
        for path, value in self._values.items():
            steps = _steps(path)
            if steps:
                _set(root, steps, "".join(value) if isinstance(value, list) else value)
        return json.dumps(root, ensure_ascii=False, separators=(",", ":"))


def _steps(path: str) -> list[str | int]:
    """The names and indexes on the way to a value; empty for an invalid path."""
    steps: list[str | int] = []
    at = 1
    while at < len(path) and len(steps) < STEPS_MAX:
        step = _STEP.match(path, at)
        if step is None:
            return []
        name, place, *quoted = step.groups()
        steps.append(int(place) if place else name or re.sub(r"\\(.)", r"\1", quoted[0] or quoted[1] or ""))
        at = step.end()
    return steps if path.startswith("$") and at >= len(path) else []


def _set(root: dict[str, Any], steps: list[str | int], value: Any) -> None:
    """Set a value at a path; values out of order or contradicting others are left out."""
    holder: Any = root
    for step, following in zip(steps, [*steps[1:], None], strict=True):
        inner = value if following is None else [] if isinstance(following, int) else {}
        if isinstance(holder, list) and isinstance(step, int) and step <= len(holder):
            if step == len(holder):
                holder.append(inner)
            elif following is None:
                holder[step] = inner
            holder = holder[step]
        elif isinstance(holder, dict) and isinstance(step, str):
            holder = holder.setdefault(step, inner)
        else:
            return
