"""Known cases of histories, linearized, summarized and repaired, as transcripts have them. RL02, RL04-RL07."""

from __future__ import annotations

from typing import Any

import pytest
from turnwright_values.replies import ToolCall
from turnwright_values.types import Cursor, Entry, MessageKind, Visibility

from cases import NEEDS_SHARED, Case, expect, load_cases, params
from transcripts import transcript
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.eviction import Room, WeighedMessage, evict
from turnwright_assembler.ports import ViewPart
from turnwright_core.chat.message import Message, Role
from turnwright_core.chat.transcript import from_json_lines
from turnwright_core.events import COMPRESSION_SOURCE
from unit.assembler.entries import entry
from unit.core.test_transcript import run_of, user

HIDDEN = ("summarization", "compression_report")
"""Roles of what only clients read: reports of compressions here."""

OURS = {
    "range_over_single_user_summary_skipped": "a summary here lists what it replaces; one of nothing is a reply",
    "archival_goal_pursuit_dropped": "there are no goals; events of unknown subkinds are refused when they are written",
    "goal_survives_range": "there are no goals",
    "derived_summary_text_extra_wins_for_ranges": "a summary has one text",
    "derived_ui_only_summary_not_authoritative": "what only clients read is never sent",
}
"""Cases whose form differs on purpose."""


def listed(place: int, message: dict[str, Any], of: list[dict[str, Any]]) -> list[str]:
    """The messages that a summary replaces, by path."""
    told = message.get("compression") or {}
    kept = told.get("preserved_source_message_ids", ())
    ids = [one for one in told.get("summarized_source_message_ids", ()) if one not in kept]
    first, last = message.get("summarized_range", (0, -1))
    places = [at for at, one in enumerate(of) if one.get("message_id") in ids or first <= at <= last]
    return [f"assistant://{at + 1}" for at in places if of[at]["role"] == "assistant" and at != place]


def entries_of(messages: list[dict[str, Any]]) -> list[Entry]:
    found: list[Entry] = []
    gone: set[str] = set()
    for place, message in enumerate(messages):
        turn, text = place + 1, str(message["content"])
        role = message["role"]
        if role == "assistant":
            replaced = listed(place, message, messages) if "compression" in message else []
            gone |= set(replaced)
            told = {"summarizes": replaced} if replaced else {}
            found.append(entry(f"assistant://{turn}", text, position=turn, turn=turn, **told))
        elif role in (*HIDDEN, "event", "plan"):
            event = message.get("event") or {
                "subkind": "summarization_marker",
                "source": COMPRESSION_SOURCE,
                "payload": 1,
            }
            path = f"event://turn_{turn}/{event['subkind']}/a"
            if role == "plan":
                event = {"subkind": "system_notice", "source": "plan", "payload": {}}
            found.append(entry(path, text, position=turn, turn=turn, event=event))
        elif role != "system":
            found.append(entry(f"log://turn_{turn}/inject/a", text, position=turn, turn=turn, tool="inject"))
    return [
        entry(
            one.path, one.body, position=one.position, turn=one.turn, visibility=Visibility.ARCHIVED, **one.attributes
        )
        if one.path in gone
        else one
        for one in found
    ]


@pytest.mark.parametrize("case", params("refact/linearize.jsonl"))
def test_a_case_of_a_linearized_history(case: Case) -> None:
    rows = TranscriptRows()
    rows.apply(ViewPart(tuple(entries_of(case["input"]["messages"])), (), Cursor("i", 1, 0, 0)))
    made = "\n".join(one.text for one in from_json_lines("".join(dict(rows.messages())["conversation"])))
    wanted = [one for one in case["expected"]["messages"] if one["role"] != "system"]
    at, found = 0, True
    for message in wanted:
        at = made.find(str(message["content"]), at)
        found = found and at >= 0
    absent = [
        one
        for one in case["input"]["messages"]
        if one["role"] != "system" and not any(one["content"] == other["content"] for other in wanted)
    ]
    passed = found and not any(str(one["content"]) in made for one in absent)
    expect(case["id"], passed=passed, exceptions=OURS)


CASES = load_cases("refact/compression.jsonl")


def of_kind(kind: str) -> list[Any]:
    return [pytest.param(case, id=case["id"]) for case in CASES if case["input"]["kind"] == kind]


def reads(*lines: tuple[float, float]) -> list[WeighedMessage]:
    """Results of reads of one file, each of its own turn, and turns of nothing behind them."""
    found = [WeighedMessage("p", MessageKind.PROMPT, 10, 1)]
    for number, each in enumerate(lines, 1):
        found.append(WeighedMessage(f"a{number}", MessageKind.REPLY, 10, number, results=(f"r{number}",)))
        found.append(WeighedMessage(f"r{number}", MessageKind.RESULT, 1000, number, 900, "f", each))
    return [*found, *(WeighedMessage(f"a{n}", MessageKind.REPLY, 1, n) for n in range(20, 31))]


@pytest.mark.parametrize("case", of_kind("content_duplicate"))
def test_a_case_of_what_a_later_read_has(case: Case) -> None:
    given = case["input"]
    ranges = sorted((given["first_lines"], given["current_lines"]), key=lambda one: one[1] - one[0])
    messages = reads(*[(float(first), float(last)) for first, last in ranges])
    made = evict(messages if given["first"] else messages[:3], Room(1900, 40)).stages.get("duplicates", [])
    assert bool(made) == case["expected"]


@pytest.mark.parametrize("case", [one for one in of_kind("tier0") if one.id == "tier0/dedup_keeps_last"])
def test_a_case_of_a_file_that_was_read_again_and_again(case: Case) -> None:
    made = evict(reads(*[(1, 10)] * 3), Room(2000, 40))
    assert len(made.stages["duplicates"]) == case["expected"]["context_files_deduped"]
    assert "r3" not in made.stage_of


STRENGTHS = {0: "ABSENT", 2: "LOW", 6: "HIGH"}
"""Ours for the stage of the eight known ones: results are the second of ours, what users said the last."""


@pytest.mark.parametrize("case", of_kind("legacy_strength"))
def test_a_case_of_a_strength(case: Case) -> None:
    stage = case["input"]["highest_stage_that_ran"]
    messages = [*reads((1, 10), (1, 10)), WeighedMessage("q", MessageKind.PROMPT, 10, 31)]
    room = {0: 10**6, 2: 1900, 6: 60}[stage]
    strength = evict(messages, Room(room, 40)).strength.name
    assert strength == STRENGTHS[stage] == case["expected"].upper()


FIXES = {
    "history_fix/unanswered_assistant_removed_only": "the reply stays, and its call gets a result that says so",
    "history_fix/orphan_context_file_removed": "a result of no call is told as text",
    "history_fix/no_anchor_error": "a conversation that would begin with a reply begins with a line of the user",
    "history_fix/broken_args_to_cd": "the call stays, and its error is its result",
    "history_fix/broken_args_length_stop_boost": "the call stays, and its error is its result",
}
SPEAKERS = {"user": Role.USER, "assistant": Role.ASSISTANT}


@pytest.mark.parametrize("case", of_kind("history_fix"))
def test_a_case_of_a_repaired_history(case: Case) -> None:
    messages = []
    for one in case["input"]["messages"]:
        calls = tuple(
            ToolCall(call["function"]["name"], call["function"]["arguments"], place, call_id=call["id"])
            for place, call in enumerate(one.get("tool_calls", ()))
        )
        role = Role.TOOL if one.get("tool_call_id") else SPEAKERS.get(one["role"], Role.USER)
        parts = user(str(one["content"])).parts if one["content"] else ()
        messages.append(Message(role, parts, calls=calls, call_id=one.get("tool_call_id", "")))
    made = transcript(run_of(messages))
    # Whoever speaks for the user, or answers a call, is one of three here.
    expected = case["expected"]
    roles = expected.get("roles") or [one["role"] for one in expected.get("messages", ())] or ["error"]
    plain = {"diff": "tool", "context_file": "tool", "cd_instruction": "user", "error": "error"}
    wanted = [plain.get(role, role) for role in roles]
    expect(case["id"], passed=[one.role.value for one in made] == wanted, exceptions=FIXES)


NOT_RUN = {
    "pressure": "used tokens over the window are a figure of the account, not a word",
    "token_estimate": "tokens are counted by the vendor, a tokenizer, or an estimate that is calibrated",
    "auto_cap": "the smaller of the model's window and the run's limit counts: tests of turn requests",
    "provider_pressure": "usage calibrates the estimate, whatever its parts: tests of token rates",
    "segments": "a summary replaces messages by path, not segments",
    "dedup_context_files": "files are results of reads here: content_duplicate and tier0/dedup_keeps_last",
    "legacy_budget": "windows are given by vendors and the reserve for the reply",
    "legacy_model_params": "no constants of models: the calibration is by model",
}
"""Kinds of cases that are no question of a transcript here, and why."""


@NEEDS_SHARED
def test_every_kind_of_case_is_run_or_named() -> None:
    run = {"content_duplicate", "tier0", "legacy_strength", "history_fix", "exemption"}
    assert {case["input"]["kind"] for case in CASES} == run | NOT_RUN.keys()
