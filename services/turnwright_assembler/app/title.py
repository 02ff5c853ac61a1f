"""The request for a title of a run: what it is about, in one short message, whatever the run has become since."""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace
from turnwright_values.types import MessageKind, Visibility

from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections.contract import text_of
from turnwright_core.chat.timeline import run_message
from turnwright_core.wire.command_records import recorded_call

PROMPT_CHARS: Final = 2000
"""Code points of the first prompt that the model is shown."""

REPLY_CHARS: Final = 1000
"""Code points of the prose of the first reply."""

_RULES: Final = text_of("title-request")


def title_rows(rows: TranscriptRows) -> TranscriptRows:
    """A transcript of one message: the beginnings of the first prompt and of the first reply."""
    entries, first = rows.entries, dict[MessageKind, str]()
    for path in sorted(rows.kinds, key=lambda path: entries[path].position):
        first.setdefault(rows.kinds[path], path)
    made = TranscriptRows(_RULES)
    if path := first.get(MessageKind.PROMPT, ""):
        shown = entries[path].body[:PROMPT_CHARS]
        if reply := first.get(MessageKind.REPLY):
            text = run_message(entries[reply], entries, None, recorded_call).message.text
            shown += f"\n\nThe agent: {text[:REPLY_CHARS]}"
        made.apply(ViewPart((replace(entries[path], body=shown, visibility=Visibility.VISIBLE),), (), rows.cursor))
    return made
