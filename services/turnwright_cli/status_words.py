"""The status of runs and loops in words, for lists, ends of commands and advice.

Once its latest loop has ended, a run is shown with the status of that loop, as in exit codes and events: the run itself
is then ready for its next task, however the last one ended.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.types.v1 import loop_pb2, run_pb2, turn_pb2, usage_pb2

from turnwright_cli.plain import safe_line
from turnwright_core import runs

RULE_CHARS_MAX: Final = 72
_ENDINGS: Final[Mapping[str, str]] = {
    "change_failed": "a change failed, and no later command made it",
    "nothing_run": "no command was run",
    "text_after_failure": "commands failed in the previous turn, and after that the model only wrote text",
    "rejected": "a proposal was rejected",
    "expired": "nobody decided on a proposal in time",
    "cycles": "the model repeated itself without progress: the same commands, or empty replies",
    "strikes": "too many turns in a row failed, or could not be read",
    "loop_turns": "it reached the maximum number of turns for one task",
    "workspace_unavailable": "the project's directory cannot be read",
    "crash_loop": "several executors in a row died in the middle of a turn",
}
"""Explanations for one-word reasons of loops; others come with a sentence, or need none."""


def status_words(status: int) -> str:
    return f"{status} {runs.STATUSES[status].word}" if status in runs.STATUSES else str(status)


def run_words(run: run_pb2.Run, *, knows_holder: bool = True) -> str:
    """The status of a run. `knows_holder`: whether the message says if an executor holds it."""
    if run.status == runs.QUEUED and not run.loops_queued and not run.HasField("loop"):
        return f"{run.status} idle"
    if run.status == runs.RUNNING and knows_holder and not run.held:
        return f"{run.status} interrupted"
    if run.loop.status in runs.LOOP_ENDED and not run.loops_queued:
        return loop_words(run.loop)
    return status_words(run.status)


def loop_words(loop: loop_pb2.Loop) -> str:
    word = reason_word(loop.reason)
    has_reason = word and (loop.status in (runs.ABORTED, runs.FAILED, runs.TOO_LARGE) or word in _ENDINGS)
    return f"{status_words(loop.status)} ({word})" if has_reason else status_words(loop.status)


def is_undone(loop: loop_pb2.Loop) -> bool:
    """Whether the loop ended by its record, although the model claimed success."""
    return loop.status == runs.UNPROCESSABLE and reason_word(loop.reason) in ("change_failed", "nothing_run")


def title_of(run: run_pb2.Run) -> str:
    """The text for a run in a list: its first prompt; where nobody says it, that of its latest loop."""
    return run.title or run.loop.prompt or run.summary


def reason_word(reason: str) -> str:
    return safe_line(reason.partition(":")[0])


def reason_sentence(reason: str) -> str:
    """Why a loop ended, for people; empty if its status says it all."""
    word, _, sentence = reason.partition(":")
    if word == "budget_exhausted":
        _, _, sentence = sentence.partition(":")
    return safe_line(sentence) or _ENDINGS.get(word, "")


def turns_words(turns: int) -> str:
    return f"{turns} turn{'' if turns == 1 else 's'}"


def usage_words(usage: usage_pb2.Usage) -> list[str]:
    words = []
    if usage.prompt_tokens or usage.completion_tokens:
        share = usage.cached_tokens / usage.prompt_tokens if usage.prompt_tokens else 0.0
        cached = f" ({share:.0%} cached)" if usage.cached_tokens else ""
        words.append(f"{usage.prompt_tokens:,} tokens in{cached}, {usage.completion_tokens:,} out")
    if usage.HasField("cost_usd"):
        words.append(f"${usage.cost_usd:.4f}")
    return words


def turn_heading(number: int, width: int, *, icons: bool) -> str:
    """The line above a turn, with a rule where a terminal has this width; 0: none has."""
    title = f"turn {number} "
    rule = ("─" if icons else "-") * max(2, min(width, RULE_CHARS_MAX) - len(title))
    return title + rule if width else title.strip()


def turn_words(turn: turn_pb2.Turn) -> list[str]:
    return [*usage_words(turn.result.usage), f"{_between(turn.begin_time, turn.end_time):.1f} s"]


def seconds_words(loop: loop_pb2.Loop) -> list[str]:
    return [f"{_between(loop.create_time, loop.end_time):.1f} s"] if loop.HasField("end_time") else []


def _between(begin: Timestamp, end: Timestamp) -> float:
    return max(0.0, (end.ToNanoseconds() - begin.ToNanoseconds()) / 1e9)


def went_well(loop: loop_pb2.Loop) -> bool:
    """Whether it ended with an answer of the model, and nothing else is to be said."""
    return loop.status == runs.COMPLETED and reason_word(loop.reason) in ("", "update", "text")
