"""View changes: what one write changed in a run's view, returned with the answer, so that the assembler need not read.

It is made from the same commit delta as the change feed (see app.commit_delta); if the feed would have to read the
database, there is none. Source: architecture 12.4; docs/adr/0022.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from turnwright_core.instructions import INSTRUCTION_PATHS
from turnwright_core.owner_calls import ReturnView, ViewChange
from turnwright_store.app.commit_delta import CommitDelta, ContentMissingError, merge_views
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.sql.views import ViewFilter, Wanted

_WANTED: Final = {
    ReturnView.PACKET: Wanted(ViewFilter.PACKET, INSTRUCTION_PATHS),
    ReturnView.MESSAGES: Wanted(ViewFilter.MESSAGES, INSTRUCTION_PATHS),
}


def view_change(rules: StoreRules, delta: CommitDelta | None, wanted: ReturnView) -> ViewChange | None:
    """What a commit changed in the view that packets or transcripts are built from.

    None if it was not asked for, or has to be read from the database.
    """
    if delta is None or wanted is ReturnView.NONE:
        return None
    try:
        entries, removed = merge_views([delta], _WANTED[wanted], rules.hidden_schemes)
    except ContentMissingError:
        return None
    after = delta.run.cursor(rules.incarnation)
    is_messages = wanted is ReturnView.MESSAGES
    return ViewChange(replace(after, run_revision=delta.before), after, entries, removed, messages=is_messages)
