"""Events that the executor writes: an aborted loop, a verdict changed by a plugin, a command with an unknown result.

Each is written in the transaction of its cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from turnwright_core.events import RunEvent, Subkind, slug_of
from turnwright_core.text import slugify
from turnwright_executor.domain.verdict import VerdictOverride, Vote

_LOOP: Final = "loop"
_RECOVERY: Final = "recovery"


def loop_aborted(loop: int, cancelled: Sequence[str]) -> RunEvent:
    """Somebody aborted a loop, and thereby these commands, given by their records."""
    sentence = f"Somebody stopped the loop before it was done; {_count(cancelled)} cancelled."
    payload = {"loop": loop, "cancelled": list(cancelled)}
    return RunEvent(Subkind.CANCELLATION_NOTE, _LOOP, payload, sentence, f"loop_{loop}")


def crashes_given_up(loop: int, cancelled: Sequence[str]) -> RunEvent:
    """A turn that repeatedly crashed its executors was given up, and thereby these commands."""
    sentence = f"The runtime was interrupted again and again in this turn and gave up; {_count(cancelled)} cancelled."
    payload = {"reason": "given_up", "loop": loop, "cancelled": list(cancelled)}
    return RunEvent(Subkind.SYSTEM_NOTICE, _RECOVERY, payload, sentence, f"loop_{loop}-given-up")


def command_lost(record: str, tool: str, outcome: str, cancelled: Sequence[str]) -> RunEvent:
    """The result of a command is unknown, so those after it are not carried out."""
    sentence = f"The runtime was interrupted while {tool} ran ({record}): nobody knows whether it happened."
    if cancelled:
        sentence += f" {_count(cancelled).capitalize()} cancelled because of it."
    payload = {"reason": "taken_over", "path": record, "tool": tool, "outcome": outcome, "cancelled": list(cancelled)}
    return RunEvent(Subkind.SYSTEM_NOTICE, _RECOVERY, payload, sentence, slug_of(record))


def _count(records: Sequence[str]) -> str:
    if not records:
        return "no command was"
    return "one command was" if len(records) == 1 else f"{len(records)} commands were"


def verdict_changed(override: VerdictOverride, vote: Vote) -> RunEvent:
    """A plugin's voter changed the verdict of a turn."""
    plugin = override.plugin
    reason = f": {vote.reason}" if vote.reason else ""
    became = "has the loop go on" if vote.continue_ else f"ends the loop with {vote.status}"
    payload = {"plugin": plugin, "voter": override.voter, "from": _vote(override.before), "to": _vote(vote)}
    sentence = f"The plugin {plugin} {became}{reason}."
    return RunEvent(Subkind.VERIFIER_REPORT, plugin or _LOOP, payload, sentence, slugify(plugin) or _LOOP)


def _vote(vote: Vote) -> dict[str, object]:
    return {"continue": vote.continue_, "status": vote.status, "reason": vote.reason}
