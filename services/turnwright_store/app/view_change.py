"""What one write has changed of a run's view, for the assembler: told with the answer, so that it need not read.

It is made of the same commit delta as the change feed (see app.commit_delta); where the feed would have to read the
database, there is none.
Source: architecture 12.4; docs/adr/0022.
"""

from __future__ import annotations

from typing import Final

from msgspec.structs import replace

from turnwright_core.owner_calls import ViewChange
from turnwright_store.app.commit_delta import CommitDelta, UnknownError, merge_views
from turnwright_store.domain.store_rules import StoreRules
from turnwright_store.sql.views import ViewFilter, Wanted

INSTRUCTIONS_PATH: Final = "instructions://system"
"""What the assembler reads beside what a packet shows."""

_WANTED: Final = Wanted(ViewFilter.PACKET, (INSTRUCTIONS_PATH,))


def view_change(rules: StoreRules, delta: CommitDelta | None) -> ViewChange | None:
    """What a commit has changed of the view that packets are made of; None where only the database can tell."""
    if delta is None:
        return None
    try:
        entries, removed = merge_views([delta], _WANTED, rules.hidden_schemes)
    except UnknownError:
        return None
    after = delta.run.cursor(rules.incarnation)
    return ViewChange(replace(after, run_revision=delta.before), after, entries, removed)
