"""One value out of a text: as strict JSON if it is that, else by the tolerant rules.

| need | take |
|---|---|
| a value that begins at an offset | `read_value`, or `read_strict` and `read_loose` apart |
| the value of a whole text | `repair_json` |
| all values of a text | `values.repair.read_all` |
"""

from __future__ import annotations

from turnwright_grammar.values.loose import DEPTH_MAX, read_loose
from turnwright_grammar.values.repair import repair_json
from turnwright_grammar.values.strict import NotStrict, ReadValue, Value, read_strict

__all__ = ["DEPTH_MAX", "NotStrict", "ReadValue", "Value", "read_loose", "read_strict", "read_value", "repair_json"]


def read_value(text: str, start: int = 0, limit: int | None = None, *, is_patient: bool = False) -> ReadValue | None:
    """Return the value that begins at `start` and ends before `limit`, or None when there is none.

    Blanks before it are skipped; `is_patient` as in `read_loose`. Never raises; the cost is linear in
    `limit - start`.
    """
    part = text[start:limit]
    strict = read_strict(part)
    if isinstance(strict, ReadValue):
        return ReadValue(strict.value, start + strict.end) if start else strict
    read = read_loose(part, is_patient=is_patient)
    if read is None:
        return None
    cut = read.cut and (limit is None or limit >= len(text))
    return ReadValue(read.value, start + read.end, repaired=True, cut=cut, over=read.over)
