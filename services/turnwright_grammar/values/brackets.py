"""A partly read object, list or tuple."""

from __future__ import annotations

from msgspec import Struct, field

from turnwright_grammar.values.strict import Value

CLOSERS = {"{": "}", "[": "]", "(": ")"}
ELLIPSES = ("...", "\u2026")


class Bracket(Struct):
    """An open bracket and its content so far. `key` is without its value yet; `keyless` are values without a key."""

    opener: str
    members: dict[str, Value] = field(default_factory=dict)
    items: list[Value] = field(default_factory=list)
    key: str | None = None
    keyless: list[tuple[Value, bool]] = field(default_factory=list)
    commas: int = 0

    def add(self, value: Value) -> None:

        if self.opener != "{":
            self.items.append(value)
        elif self.key is not None:
            self.members[self.key] = value
            self.key = None
        else:
            self._add_keyless(value)

    def _add_keyless(self, value: Value) -> None:
        last = next(reversed(self.members), None)
        if isinstance(value, dict) and self.members:
            self.members.update(value)
        elif isinstance(value, list) and last is not None:
            held = self.members[last]
            if isinstance(held, list):
                held.extend(value)
        else:
            self.keyless.append((value, True))

    def add_key(self, name: Value, *, quoted: bool) -> None:
        """Add a key without a value: an item of a set, or a member without a value; a bare word is then noise."""
        if not self.members:
            self.keyless.append((name, quoted))
        elif quoted and isinstance(name, str):
            self.members.setdefault(name, "")

    def value(self) -> Value:
        if self.opener == "{":
            return self._object()
        if self.opener == "(" and not self.commas and self.items:
            if len(self.items) == 1:
                return self.items[0]
            if all(isinstance(item, str) for item in self.items):
                return "".join(map(str, self.items))
        return self.items

    def _object(self) -> Value:
        if self.key is not None:
            self.add("")
        if self.members:
            for name, quoted in self.keyless:
                if quoted and isinstance(name, str):
                    self.members.setdefault(name, "")
            return self.members
        found = [value for value, _ in self.keyless if value not in ELLIPSES]
        if len(found) == 1 and isinstance(found[0], dict | list) and not self.commas:
            # `{{"a": 1}}`: braces doubled as in templates.
            return found[0]
        # Python's set: `{'a', 'b'}` has items and no keys.
        return found or self.members
