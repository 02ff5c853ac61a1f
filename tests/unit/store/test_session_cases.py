"""Cases of chats from another agent: gates of the queue, previews, contents of messages, defaults of commands, settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from google.protobuf.json_format import ParseDict, ParseError
from turnwright.types.v1 import message_pb2, settings_pb2
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright_values.types import RunSettings, SessionState

from cases import load_shared, params
from turnwright_core.errors import InvalidError
from turnwright_store.app.session_commands import content_of, kind_of, patch_of, preview_of
from turnwright_store.domain.session_gates import GATES, CommandKind, Gate
from turnwright_store.domain.settings_patch import changed_settings

TESTS = Path(__file__).resolve().parents[2]
EXECUTOR = "contract/executor"


def text(content: str) -> pb.UserMessage:
    return pb.UserMessage(parts=[message_pb2.Part(text=content)] if content else [])


def decisions(command: dict) -> dict:
    given = command.get("decisions") or [command]
    calls = [one["tool_call_id"] for one in given]
    return {"approve_tools": pb.ApproveTools(calls=calls)}


BUILD = {
    "user_message": lambda c: {"user_message": text(c["content"])},
    "set_params": lambda c: {"set_params": pb.SetParams(patch=settings_pb2.RunSettingsPatch(**_known(c["patch"])))},
    "abort": lambda _: {"abort": pb.AbortSession()},
    "tool_decision": decisions,
    "tool_decisions": decisions,
    "ide_tool_result": lambda c: {"ide_tool_result": pb.IdeToolResult(call=c["tool_call_id"], content=c["content"])},
    "remove_message": lambda c: {"remove_message": pb.RemoveMessage(message_id=c["message_id"])},
    "update_message": lambda c: {"update_message": pb.UpdateMessage(message_id=c["message_id"], content=c["content"])},
    "retry_from_index": lambda c: {
        "retry_from_index": pb.RetryFromIndex(from_index=c["index"], message=text(c["content"]))
    },
    "regenerate": lambda _: {"regenerate": pb.Regenerate()},
    "branch_from_chat": lambda c: {
        "branch_from_chat": pb.BranchFromChat(source=c["source_chat_id"], up_to_message_id=c["up_to_message_id"])
    },
}
"""A command of the cases as one of ours."""


def _known(patch: dict) -> dict:
    return {
        name: value for name, value in patch.items() if name in settings_pb2.RunSettingsPatch.DESCRIPTOR.fields_by_name
    }


def command(case: dict):
    return pb.SessionCommand(**BUILD[case["type"]](case))


# ---- The queue

QUEUE = {
    "priority/": "contract/store/test_chat_cases.py::test_a_case_of_priority_is_read_in_its_order",
    "dedupe/": "contract/store/test_chat_cases.py::test_a_case_of_the_queues_bound_comes_to_what_it_expects",
    "enqueue/": "contract/store/test_chat_cases.py::test_a_case_of_the_queues_bound_comes_to_what_it_expects",
    "injection/": f"{EXECUTOR}/test_session_queue.py::test_priority_messages_are_read_in_the_next_turn_in_their_order",
}
"""Where a case is proven that the table of gates cannot prove, by the beginnings of their names.

A priority message is read in the next turn, so when every call has its result (RC12).
"""

NOT_PICKED = {
    "gate/error_fifo": "a decision is refused when it comes (RS07), so it is never in the queue; the message runs first",
}


@pytest.mark.parametrize("case", params("refact/queue.jsonl"))
def test_a_case_of_the_queue_holds(case):
    # RS07, RC11, RC12
    if where := next((where for begin, where in QUEUE.items() if case["id"].startswith(begin)), ""):
        path, _, name = where.partition("::")
        assert f"def {name}(" in (TESTS / path).read_text()
        return
    state = SessionState[case["input"]["state"].upper()]
    gates = [GATES[kind_of(command(one))][state] for one in case["input"]["queue"]]
    runs = [place for place, gate in enumerate(gates) if gate is Gate.RUN]
    wanted = case["expected"]["index"]
    if wanted is None:
        # Where nothing is picked ours have one exception: an abort acts at once (RC06).
        kinds = {kind_of(command(one)) for place, one in enumerate(case["input"]["queue"]) if place in runs}
        assert kinds <= {CommandKind.ABORT}
    else:
        assert runs[0] == wanted, NOT_PICKED.get(case["id"])


# ---- Previews

PREVIEWS = {
    "restore": "RC08: a run is restored from its own history, by the number of a turn",
    "goal_budget": "we have no goals",
    "clean_bg": "processes are entries of their own",
}


@pytest.mark.parametrize("case", params("refact/queue_preview.jsonl"))
def test_a_case_of_previews_holds(case):
    # RC11
    if case["id"] in PREVIEWS:
        assert case["input"]["type"] not in BUILD
        return
    assert preview_of(command(case["input"])) == case["expected"]["preview"]


# ---- Contents

CONTENTS = {
    "empty_array": "a message says something (RC01)",
    "null": "the same",
    "empty_string": "the same",
    "object": "parts are typed in the contract",
}


@pytest.mark.parametrize("case", params("refact/content_validation.jsonl"))
def test_a_case_of_contents_holds(case):
    # RC01: an error names the first bad part
    content, attachments = case["input"]["content"], case["input"]["attachments"]
    given = content if isinstance(content, list) else [{"type": "text", "text": content}] if content else []
    parts = [message_pb2.Part(text=one["text"]) if one.get("type") == "text" and "text" in one else message_pb2.Part()
             for one in given if isinstance(one, dict) and not isinstance(one.get("text"), dict)]  # fmt: skip
    parts += [message_pb2.Part(image=message_pb2.Image()) for _ in attachments]
    message = pb.UserMessage(parts=parts)
    if "ok" in case["expected"] and case["id"] not in CONTENTS:
        assert content_of(message).text == case["expected"]["ok"]
        return
    with pytest.raises(InvalidError) as refused:
        content_of(message)
    if case["id"] not in CONTENTS:
        assert refused.value.metadata["field"].startswith("parts[")


# ---- Defaults

OTHERS = {"roundtrip_goal_control", "roundtrip_clean_background_processes"}
"""Commands that we do not have."""


@pytest.mark.parametrize("case", params("refact/commands_serde.jsonl"))
def test_a_case_of_commands_reads_back(case):
    if case["id"] in OTHERS:
        assert case["input"]["type"] not in BUILD
        return
    message = pb.SessionCommand(**BUILD[case["input"]["type"]](case["input"]))
    assert pb.SessionCommand.FromString(message.SerializeToString()) == message
    said = getattr(message, message.WhichOneof("kind"))
    assert not getattr(said, "regenerate", False)
    assert not getattr(said, "failed", False)


# ---- Settings

FIELDS = {"model": "model", "context_tokens_cap": "context_limit", "temperature": "temperature"}
"""Fields of threads that are settings of a run here."""

FIELDS_APART = {
    "mode": "modes are ask and act, of a loop (LoopSettings.mode)",
    "boost_reasoning": "reasoning is a setting of a loop (LoopSettings.reasoning)",
    "reasoning_effort": "the same; absent or unspecified leaves it to the vendor",
    "auto_compression_cap": "compression follows the context window",
    "worktree": "projects have no work trees of runs",
    "previous_response_id": "no state is kept at vendors: the whole conversation is sent",
}


@pytest.mark.parametrize("case", params("refact/setparams.jsonl"))
def test_a_case_of_settings_holds(case):
    # RC02
    given = case["input"]
    if "mode" in given:
        assert FIELDS_APART["mode"]
        return
    patch, thread = given["patch"], given["thread"]
    if not isinstance(patch, dict):
        with pytest.raises(ParseError):
            ParseDict(patch, settings_pb2.RunSettingsPatch())
        return
    assert patch.keys() <= FIELDS.keys() | FIELDS_APART.keys()
    known = {FIELDS[name]: value for name, value in patch.items() if name in FIELDS}
    # Null: 0 is the model's own window.
    wanted = settings_pb2.RunSettingsPatch(**{name: value or 0 for name, value in known.items()})
    before = RunSettings(**{FIELDS[name]: value for name, value in thread.items() if name in FIELDS})
    after = changed_settings(patch_of(wanted), before)
    assert (after != before) is (case["expected"]["changed"] and bool(known))
    for name, value in case["expected"]["thread"].items():
        if name in FIELDS:
            assert getattr(after, FIELDS[name]) == value


# ---- Sessions, approvals and branches: with the services running, in contract/executor/test_chat_cases.py

CASES = "contract/executor/test_chat_cases.py"
ELSEWHERE = {
    "session": {
        "initial": f"{EXECUTOR}/test_session_queue.py::test_a_new_run_is_idle_and_says_nothing_twice",
        "state_noop": f"{EXECUTOR}/test_session_queue.py::test_a_new_run_is_idle_and_says_nothing_twice",
        "truncate_beyond": f"{EXECUTOR}/test_session_edits.py::test_an_index_behind_the_end_does_nothing_and_a_stale_one_is_refused",
        "abort_discards": f"RC06, the text that came is kept: {EXECUTOR}/test_session_replicas.py",
        "abort_clears": f"{EXECUTOR}/test_session_replicas.py::test_an_abort_keeps_what_was_streamed_and_the_queue_whoever_takes_it",
        "leave_pause": f"{EXECUTOR}/test_session_events.py::test_a_pause_names_its_reasons_and_ends_with_its_state",
        "decide/": f"{CASES}::test_a_case_of_decisions_comes_to_what_it_expects",
        "ide_result": f"{CASES}::test_a_case_of_results_of_clients_comes_to_what_it_expects",
        "edit_invalidates": "summaries are demotions of entries, not messages with sources",
        "start_while": f"{EXECUTOR}/test_session_gates.py::test_every_command_in_a_state",
        "add_message": "the id of a message is its path (C40)",
        "delta_": "unit/core/test_reply.py::test_a_case_of_increments_is_folded",
        "finish_": "an empty reply is kept as it came, and judged (RU012)",
        "error_": "an error is the reason of the loop, not a message (RS10)",
    },
    "confirmation": {
        "action/": f"{CASES}::test_a_case_of_approvals_comes_to_what_it_expects",
        "auto/": f"{CASES}::test_a_case_of_approvals_comes_to_what_it_expects",
        "any_rejection": f"{CASES}::test_a_batch_is_decided_call_by_call",
        "all_accepted": f"{CASES}::test_a_batch_is_decided_call_by_call",
        "result_order": f"{CASES}::test_results_stand_in_the_order_of_the_calls",
        "policy_denial": f"{CASES}::test_a_denial_is_read_and_pauses_nothing",
        "invalid_escalation": f"{CASES}::test_a_denial_is_read_and_pauses_nothing",
        "editing_tools": "tools need a decision by their effects, not by lists of names",
        "truncation_exempt": "the same: results are cut by their size",
    },
    "restore_branch": {
        "role_": f"{CASES}::test_a_branch_and_a_restored_run_have_every_message",
        "event_": f"{CASES}::test_a_branch_and_a_restored_run_have_every_message",
        "branch_keeps": f"a branch is a fork: its messages have their paths and what was signed (C40): {CASES}",
        "branch_goal": "we have no goals",
    },
}
"""Where a case is proven, or why we differ, by the beginnings of their names."""


@pytest.mark.parametrize("file", ELSEWHERE)
def test_each_case_is_proven_somewhere_or_we_say_why_not(file):
    for case in load_shared(f"refact/{file}.jsonl"):
        where = next((where for begin, where in ELSEWHERE[file].items() if case["id"].startswith(begin)), "")
        assert where, case["id"]
        path, mark, test = where.partition("::")
        assert not mark or f"def {test}(" in (TESTS / path).read_text(), case["id"]
