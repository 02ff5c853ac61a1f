"""Knowledge of the project for a loop: entries that the words of its prompt find in the store's full-text search.

Searched once, when the loop begins. What was found is written as an entry of the log before the prompt: a message of
transcripts, and in packets a part of `<log>`, as long as there is room for it. The hits are stored on the turn.
Source: architecture 4; row RL01; issue 15.6.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwright_core.chat.timeline import KNOWLEDGE_TOOL
from turnwright_core.entries import EntryWrite, SetEntry, State, Tier, Visibility, to_attributes_json
from turnwright_core.errors import TurnwrightError
from turnwright_core.limits import SEARCH_QUERY_CHARS_MAX
from turnwright_core.runs import KnowledgeHit, Loop
from turnwright_core.text import count_tokens
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import FoundEntry, Ledger
from turnwright_kit.logs import get_logger

KNOWLEDGE_PATH: Final = "log://turn_{turn}/knowledge"

HITS_MAX: Final = 20
"""Maximum number of entries that are searched for."""

SCORE_SHARE_MIN: Final = 0.25
"""Entries are left out whose score is below this share of the best one's: they have only words that many have."""

HEAD: Final = "Found in the project by words of the prompt, best first. `get` a path to read all of it.\n"

_log = get_logger("knowledge")


async def find_knowledge(
    ledger: Ledger, address: RunAddress, loop: Loop, tokens_max: int, divisor: int
) -> tuple[tuple[KnowledgeHit, ...], list[EntryWrite]]:
    """The hits for a loop, and the write that shows them; as many as fit into this many tokens. Raises nothing."""
    query = loop.prompt[:SEARCH_QUERY_CHARS_MAX]
    if not tokens_max or not query.strip():
        return (), []
    try:
        found = await ledger.search(address.project, query, HITS_MAX)
    except TurnwrightError as error:
        # A loop that begins without knowledge is better than none.
        _log.warning("knowledge_search_failed", run=address.run, reason=error.reason.name)
        return (), []
    shown = _fitting(found, tokens_max, divisor)
    if not shown:
        return (), []
    hits = tuple(KnowledgeHit(one.path, one.revision, one.score) for one, _ in shown)
    change = SetEntry(
        body=HEAD + "".join(text for _, text in shown),
        attributes_json=to_attributes_json({"tool": KNOWLEDGE_TOOL, "target": f"{len(hits)} found"}),
        visibility=Visibility.VISIBLE,
        state=State.RESOLVED,
    )
    return hits, [EntryWrite(KNOWLEDGE_PATH, change, Tier.PLUGIN)]


def _fitting(found: Sequence[FoundEntry], tokens_max: int, divisor: int) -> Sequence[tuple[FoundEntry, str]]:
    """The entries, best first, with their texts, as long as these fit."""
    left = tokens_max - count_tokens(HEAD, divisor)
    score_min = SCORE_SHARE_MIN * max((one.score for one in found), default=0.0)
    shown: list[tuple[FoundEntry, str]] = []
    for one in (one for one in found if one.score >= score_min):
        passage = " ".join(one.snippet.split())
        text = f"* {one.path}: {passage}\n"
        left -= count_tokens(text, divisor)
        if left < 0:
            break
        shown.append((one, text))
    return shown
