"""JSON-like values in the texts of models: parsed strictly if valid, else leniently.

| need | take |
|---|---|
| a value that begins at an offset | `read_value`, or `read_strict` or `read_lenient` alone |
| the value of a whole text | `repair_json` |
| all values of a text | `values.repair.read_all` |
"""

from __future__ import annotations

from turnwright_grammar.values.lenient import DEPTH_MAX, read_lenient
from turnwright_grammar.values.repair import repair_json
from turnwright_grammar.values.strict import NotStrict, ReadValue, Value, read_strict

__all__ = ["DEPTH_MAX", "NotStrict", "ReadValue", "Value", "read_lenient", "read_strict", "read_value", "repair_json"]


def read_value(
    text: str, start: int = 0, limit: int | None = None, *, full_lookahead: bool = False
) -> ReadValue | None:
    """The value that begins at `start` (blanks skipped) and ends before `limit`, or None if there is none.

    `full_lookahead` as in `read_lenient`. Never raises; linear in `limit - start`.
    """
    part = text[start:limit]
    strict = read_strict(part)
    if isinstance(strict, ReadValue):
        return ReadValue(strict.value, start + strict.end) if start else strict
    read = read_lenient(part, full_lookahead=full_lookahead)
    if read is None:
        return None
    cut = read.cut and (limit is None or limit >= len(text))
    return ReadValue(read.value, start + read.end, repaired=True, cut=cut, over=read.over)
