"""The result of parsing a reply: commands, warnings, narration.

Spans are half-open `(start, end)` offsets in code points into the text that was read.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct, field

Span = tuple[int, int]

COMMANDS_MAX = 99
WARNINGS_MAX = 99


class Command(Struct, frozen=True):
    """One thing the model asks for.

    `name` is as written for an unknown tool, in lower case for a known one. `attributes` are
    decoded and, for known tools, canonical (see `resolve`); `body` is raw text, never decoded. Of a native call
    `json_names` are the attributes, `body` among them, that were JSON of another type than text, and `body_name` is the
    argument that the body was where that is not `body`.
    """

    name: str
    attributes: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    body: str = ""
    span: Span = (0, 0)
    known: bool = True
    json_names: tuple[str, ...] = ()
    body_name: str = ""


class ReadWarning(Struct, frozen=True):
    """A repair, or a call that could not be read. `kind` is one word, `message` speaks to the model.

    `ignored` is the number of commands that were not run because of where they stand, although they are no quotation;
    `lost` are those that were not run because they are broken or cut off, as far as they could be read: with the
    arguments that are certainly complete. A name that is not known is empty.
    """

    kind: str
    message: str
    span: Span
    ignored: int = 0
    lost: tuple[Command, ...] = ()


class Reply(Struct, frozen=True):
    """A reply as read: `dropped` counts the commands over the cap.

    `narration_spans` are where the narration stands in the text, in order.
    `thought_ends` are the closes of thoughts that were never opened: what stands before the last is reasoning, and is
    in nothing else here. Source: RU284, RU293, C59.
    """

    commands: tuple[Command, ...] = ()
    warnings: tuple[ReadWarning, ...] = ()
    narration: str = ""
    dropped: int = 0
    thought_ends: tuple[Span, ...] = ()
    narration_spans: tuple[Span, ...] = ()

    def split_thought(self, text: str) -> tuple[str, str]:
        """The reasoning without its closes, and the reply itself, of the text that was read."""
        begins = [0, *(end for _, end in self.thought_ends)]
        stops = [start for start, _ in self.thought_ends]
        return "".join(text[begin:stop] for begin, stop in zip(begins, stops, strict=False)), text[begins[-1] :]
