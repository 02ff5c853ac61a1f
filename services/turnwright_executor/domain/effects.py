"""Effects as data: what a command wants to do outside the store, shown in a proposal, recorded, carried out later.

An effect is stored in the command's record, so that any executor can carry it out. File effects have hashes of the
content before and after: if the file already has the target hash, the work is done; if it has neither, there is a
conflict (architecture 6, 11).
"""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct, field
from turnwright_values.types import AgentsEffect, ClientToolEffect, CommandEffect, FileEffect, QuestionEffect

from turnwright_core.json_text import JsonMapping


class EffectClass(StrEnum):
    """Whether a command can be run again after an interruption that left its result unknown.

    An unspecified one counts as OUTSIDE as soon as it is read: the tables of the machine have a row for each class.
    """

    PURE = "pure"
    """It only writes entries, together with its result: run it again."""
    IDEMPOTENT = "idempotent"
    """It can detect that it was carried out, by hashes or by its key: run it again."""
    OUTSIDE = "outside"
    """It might happen twice: never run it again without a decision."""


class CallEffect(Struct, frozen=True):
    """Something that a tool does itself outside the project; `data` has everything it needs, as JSON."""

    data: JsonMapping = field(default_factory=dict)


Effect = FileEffect | CommandEffect | QuestionEffect | CallEffect | ClientToolEffect | AgentsEffect
