"""Cases of chats from another agent: gates of the queue, previews, contents of messages, defaults of commands, settings."""

from __future__ import annotations

from pathlib import Path

import pytest
from turnwright.types.v1 import message_pb2, settings_pb2
from turnwright.types.v1 import session_command_pb2 as pb

from cases import load_cases, params
from turnwright_core.errors import InvalidError
from turnwright_core.runs import RunSettings, SessionState
from turnwright_store.app.command_kinds import kind_of, preview_of
from turnwright_store.domain.session_gates import GATES, CommandKind, Gate
from turnwright_store.domain.user_content import user_content
from turnwright_store.rpc.control_servicer import patch_of
from turnwright_store.rpc.session_servicer import command_of

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
    return command_of(pb.SessionCommand(**BUILD[case["type"]](case)))


# ---- The queue

QUEUE = {
    "priority/after_existing_priority": f"{EXECUTOR}/test_session_queue.py::test_priority_messages_are_read_in_the_next_turn_in_their_order",
    "priority/into_empty": f"{EXECUTOR}/test_session_queue.py::test_a_priority_message_of_a_run_at_rest_begins_a_loop",
    "injection/window_open": "ours wait for the end of the turn: its calls have their results then",
    "injection/window_closed": "the same",
    "injection/stale_reused_id": "ids of calls are not reused (C41)",
    "injection/server_tool_placeholder": "the same as window_open",
    "injection/no_tool_calls": "the same as window_closed",
    "dedupe/failed_not_remembered": f"{EXECUTOR}/test_session_queue.py::test_an_id_is_accepted_once_and_a_refused_one_is_free",
    "enqueue/priority_regenerate_interrupts": "RC12: only messages have priority, and nothing discards streamed text",
    "enqueue/priority_duplicate_no_interrupt": "the same",
    "enqueue/full_abort_is_critical": f"{EXECUTOR}/test_session_edits.py::test_a_queued_command_can_be_cancelled_and_one_too_many_is_refused",
    "enqueue/full_tool_decision_while_paused_critical": f"{EXECUTOR}/test_session_edits.py::test_a_queued_command_can_be_cancelled_and_one_too_many_is_refused",
    "enqueue/priority_update_without_regenerate": "RC12: only messages have priority; an edit waits for the loop before it",
}
"""Where a case is proven that the table of gates cannot prove, or why we differ."""

NOT_PICKED = {
    "gate/error_fifo": "a decision is refused when it comes (RS07), so it is never in the queue; the message runs first",
}


@pytest.mark.parametrize("case", params("refact/queue.jsonl"))
def test_a_case_of_the_queue_holds(case):
    # RS07, RC11, RC12
    if case["id"] in QUEUE:
        where = QUEUE[case["id"]]
        if "::" in where:
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
    made = command_of(pb.SessionCommand(user_message=pb.UserMessage(parts=parts)))
    if "ok" in case["expected"] and case["id"] not in CONTENTS:
        assert user_content(made.parts, ()).text == case["expected"]["ok"]
        return
    with pytest.raises(InvalidError) as refused:
        user_content(made.parts, ())
    if case["id"] not in CONTENTS:
        assert refused.value.metadata["field"].startswith("parts[")


# ---- Defaults

OTHERS = {"roundtrip_goal_control", "roundtrip_clean_background_processes", "roundtrip_set_params"}
"""Commands that we do not have, and a setting: titles are the clients'."""


@pytest.mark.parametrize("case", params("refact/commands_serde.jsonl"))
def test_a_case_of_commands_reads_back(case):
    if case["id"] in OTHERS:
        assert case["input"]["type"] not in BUILD or not _known(case["input"]["patch"])
        return
    message = pb.SessionCommand(**BUILD[case["input"]["type"]](case["input"]))
    assert pb.SessionCommand.FromString(message.SerializeToString()) == message
    said = getattr(message, message.WhichOneof("kind"))
    assert not getattr(said, "regenerate", False)
    assert not getattr(said, "failed", False)


# ---- Settings

SETTINGS = {"ctx_cap": ("context_limit", 4096), "ctx_cap_null": ("context_limit", 0)}
SETTINGS_APART = {
    "model_switch_clears_previous_response_id": "no state is kept at vendors: the whole conversation is sent",
    "mode_no_tools": "modes are ask and act, of a loop (LoopSettings.mode)",
    "mode_task_agent": "the same",
    "boost": "reasoning is a setting of a loop (LoopSettings.reasoning)",
    "reasoning_effort_empty_is_none": "the same",
    "auto_cap_set": "compression follows the context window",
    "auto_cap_null": "the same",
    "worktree_object_ignored": "projects have no work trees of runs",
    "worktree_null_detaches": "the same",
    "patch_not_object": "the patch is typed in the contract",
}


@pytest.mark.parametrize("case", params("refact/setparams.jsonl"))
def test_a_case_of_settings_holds(case):
    # RC02
    name = case["id"]
    if name in SETTINGS_APART or name.startswith("mode_map/"):
        return
    if name == "empty":
        before = RunSettings(model="x")
        assert patch_of(settings_pb2.RunSettingsPatch()).applied(before) == before
        return
    field, value = SETTINGS[name]
    before = RunSettings(context_limit=case["input"]["thread"]["context_tokens_cap"])
    after = patch_of(settings_pb2.RunSettingsPatch(**{field: value})).applied(before)
    assert after.context_limit == case["expected"]["thread"]["context_tokens_cap"]


# ---- Sessions, approvals and branches are proven with the services running

SESSIONS = {
    "initial": "contract/executor/test_session_queue.py::test_a_new_run_is_idle_and_says_nothing_twice",
    "state_noop_no_event": "contract/executor/test_session_queue.py::test_a_new_run_is_idle_and_says_nothing_twice",
    "truncate_beyond_noop": "contract/executor/test_session_edits.py::test_an_index_behind_the_end_does_nothing_and_a_stale_one_is_refused",
    "abort_discards_partial": "RC06: the text that came is kept",
    "leave_pause_clears_reasons": "contract/executor/test_sessions.py::test_a_proposal_pauses_and_a_decision_goes_on",
    "decide/accept_partial": "contract/executor/test_session_queue.py::test_calls_that_are_named_are_decided_and_others_wait",
    "decide/mixed": "contract/executor/test_session_queue.py::test_calls_that_are_named_are_decided_and_others_wait",
    "decide/deny": "contract/executor/test_sessions.py::test_a_rejection_for_the_run_is_read_by_the_model_which_goes_on",
    "decide/accept_last_leaves_state": "contract/executor/test_sessions.py::test_a_proposal_pauses_and_a_decision_goes_on",
    "decide/unknown_ignored": "bad input is refused, and says so: ENTRY_NOT_FOUND",
    "ide_result_deferred_events": "contract/executor/test_client_tools.py::test_a_call_waits_for_its_client_whatever_restarts_and_its_result_is_read",
    "ide_result_ignores_stale_ids": "ids of calls are not reused (C41)",
    "edit_invalidates_summaries": "summaries are demotions of entries, not messages with sources",
    "start_while_executing_refused": "contract/executor/test_session_gates.py::test_every_command_in_a_state",
    "abort_clears_running_tool_card": "unit/executor/test_settlement.py::",
    "add_message_generates_id": "the id of a message is its path (C40)",
    "delta_appends": "unit/core/test_reply.py::",
    "delta_without_draft_noop": "unit/core/test_reply.py::",
    "finish_empty_discarded": "an empty reply is kept as it came, and judged",
    "finish_metadata_extra_only_discarded": "the same",
    "error_removes_empty_draft": "an error is the reason of the loop, not a message",
    "error_trims_whitespace_draft": "the same",
}
CONFIRMATIONS = {
    "any_rejection_skips_rest": "C28: a rejected call gets its result, the others go on",
    "all_accepted_continue": "contract/executor/test_sessions.py::test_a_proposal_pauses_and_a_decision_goes_on",
    "result_order": "commands are carried out one after the other",
    "invalid_escalation_denied": "there is no escalation: a sandbox is a setting of the executor",
    "policy_denial_text": "contract/executor/test_sessions.py::test_a_rejection_for_the_run_is_read_by_the_model_which_goes_on",
    "editing_tools": "tools need a decision by their effects, not by lists of names",
    "truncation_exempt_tools": "the same",
}


@pytest.mark.parametrize(
    ("file", "known", "elsewhere"),
    [
        ("session", SESSIONS, ()),
        # Modes and flags of threads decide there; here effects do, with yolo and decisions for the run.
        ("confirmation", CONFIRMATIONS, ("action/", "auto/")),
        # A branch is a fork: all messages are there, whatever their role (RC08), and signed thinking stays with them.
        ("restore_branch", {}, ("role_", "event_", "branch_")),
    ],
)
def test_each_case_is_proven_somewhere_or_we_say_why_not(file, known, elsewhere):
    for case in load_cases(f"refact/{file}.jsonl"):
        name = case["id"]
        assert name in known or name.startswith(elsewhere or ("\0",)), name
        path, mark, test = known.get(name, "").partition("::")
        if mark and test:
            assert f"def {test}(" in (TESTS / path).read_text(), name
