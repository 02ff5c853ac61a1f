"""Commands of chats: a message, a decision, an edit, ... each with an id under which it is carried out once."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TypedDict, Unpack

from turnwright.rules.v1 import rule_service_pb2, rule_service_pb2_grpc
from turnwright.schedules.v1 import schedule_service_pb2, schedule_service_pb2_grpc
from turnwright.sessions.v1 import session_service_pb2 as pb
from turnwright.sessions.v1 import session_service_pb2_grpc
from turnwright.types.v1 import (
    message_pb2,
    rule_pb2,
    run_pb2,
    schedule_pb2,
    session_command_pb2,
    settings_pb2,
)

from turnwright_client.retrying import RetryingPeer


class CommandKinds(TypedDict, total=False):
    """The kinds of commands; a command is exactly one of them."""

    user_message: session_command_pb2.UserMessage
    set_params: session_command_pb2.SetParams
    abort: session_command_pb2.AbortSession
    approve_tools: session_command_pb2.ApproveTools
    reject_tools: session_command_pb2.RejectTools
    branch_from_chat: session_command_pb2.BranchFromChat
    set_draft: session_command_pb2.SetDraft
    update_message: session_command_pb2.UpdateMessage
    remove_message: session_command_pb2.RemoveMessage
    truncate_messages: session_command_pb2.TruncateMessages
    retry_from_index: session_command_pb2.RetryFromIndex
    regenerate: session_command_pb2.Regenerate
    rewind_to_turn: session_command_pb2.RewindToTurn
    restore_from_trajectory: session_command_pb2.RestoreFromTrajectory
    ide_tool_result: session_command_pb2.IdeToolResult


class SessionCalls:
    """Base of the client: rpcs of sessions, their schedules and approval rules. Every method raises TurnwrightError."""

    _peer: RetryingPeer
    _sessions: session_service_pb2_grpc.SessionServiceAsyncStub
    _schedules: schedule_service_pb2_grpc.ScheduleServiceAsyncStub
    _rules: rule_service_pb2_grpc.RuleServiceAsyncStub

    async def submit(
        self, project: str, run: str, command_id: str = "", **kind: Unpack[CommandKinds]
    ) -> pb.SubmitCommandResponse:
        """Give a run a command, such as `abort=AbortSession()`. Without an id one is generated for this call."""
        command = session_command_pb2.SessionCommand(**kind)
        request = pb.SubmitCommandRequest(project=project, run=run, command_id=command_id, command=command)
        return await self._peer.call(self._sessions.SubmitCommand, request)

    async def list_commands(self, project: str, run: str) -> list[session_command_pb2.QueuedCommand]:
        """What waits in the queue of a run, the next one first."""
        request = pb.ListCommandsRequest(project=project, run=run)
        return list((await self._peer.call(self._sessions.ListCommands, request)).commands)

    async def cancel_command(
        self, project: str, run: str, command_id: str = "", *, loop: int = 0, request_id: str = ""
    ) -> run_pb2.Run:
        """Take a command or a task out of the queue, by its id or by its loop."""
        request = pb.CancelCommandRequest(
            project=project, run=run, command_id=command_id, loop=loop, request_id=request_id
        )
        return (await self._peer.call(self._sessions.CancelCommand, request)).run

    async def set_schedule(
        self,
        project: str,
        run: str,
        schedule_id: str,
        *,
        cron: str = "",
        every: timedelta | None = None,
        time_zone: str = "",
        prompt: str = "",
        settings: settings_pb2.LoopSettings | None = None,
        new_run: bool = False,
        overlap: schedule_pb2.ScheduleOverlap.ValueType = schedule_pb2.SCHEDULE_OVERLAP_UNSPECIFIED,
    ) -> schedule_pb2.Schedule:
        """Have a prompt sent, or a tick added, by a cron expression in a time zone (UTC) or every so often.

        `settings` are what its loops have of their own; the rest is that of the latest task, without a grant. With
        `new_run` each time begins a run of its own, and `overlap` says whether also beside one that still works.
        """
        wanted = schedule_pb2.Schedule(
            schedule_id=schedule_id,
            cron=cron,
            time_zone=time_zone,
            prompt=prompt,
            settings=settings,
            new_run=new_run,
            overlap=overlap,
        )
        if every:
            wanted.every.FromTimedelta(every)
        request = schedule_service_pb2.SetScheduleRequest(project=project, run=run, schedule=wanted)
        return (await self._peer.call(self._schedules.SetSchedule, request)).schedule

    async def delete_schedule(self, project: str, run: str, schedule_id: str, *, request_id: str = "") -> None:
        """End it; what it has begun goes on."""
        request = schedule_service_pb2.DeleteScheduleRequest(
            project=project, run=run, schedule_id=schedule_id, request_id=request_id
        )
        await self._peer.call(self._schedules.DeleteSchedule, request)

    async def pause_schedule(self, project: str, run: str, schedule_id: str) -> schedule_pb2.Schedule:
        """Have its times pass without anything."""
        request = schedule_service_pb2.PauseScheduleRequest(project=project, run=run, schedule_id=schedule_id)
        return (await self._peer.call(self._schedules.PauseSchedule, request)).schedule

    async def resume_schedule(self, project: str, run: str, schedule_id: str) -> schedule_pb2.Schedule:
        """Let it go on from its next time."""
        request = schedule_service_pb2.ResumeScheduleRequest(project=project, run=run, schedule_id=schedule_id)
        return (await self._peer.call(self._schedules.ResumeSchedule, request)).schedule

    async def list_schedules(self, project: str, run: str) -> list[schedule_pb2.Schedule]:
        """The schedules of a run, by id."""
        request = schedule_service_pb2.ListSchedulesRequest(project=project, run=run)
        return list((await self._peer.call(self._schedules.ListSchedules, request)).schedules)

    async def test_rules(
        self, project: str, effects: Sequence[rule_service_pb2.TestedEffect], run: str = "", text: str | None = None
    ) -> list[rule_service_pb2.TestedDecision]:
        """What the rules that hold, or those of a text, decide about effects, of which none happens."""
        request = rule_service_pb2.TestRulesRequest(project=project, run=run, effects=effects, rules_text=text)
        return list((await self._peer.call(self._rules.TestRules, request)).decisions)

    async def set_rule(
        self, project: str, rule: rule_pb2.Rule, run: str = "", *, request_id: str = ""
    ) -> rule_pb2.Rule:
        """Set an approval rule of a project, or of a run: the last of its level."""
        request = rule_service_pb2.SetRuleRequest(project=project, run=run, rule=rule, request_id=request_id)
        return (await self._peer.call(self._rules.SetRule, request)).rule

    async def delete_rule(self, project: str, rule_id: int, run: str = "", *, request_id: str = "") -> None:
        request = rule_service_pb2.DeleteRuleRequest(project=project, run=run, id=rule_id, request_id=request_id)
        await self._peer.call(self._rules.DeleteRule, request)

    async def list_rules(self, project: str, run: str = "") -> list[rule_pb2.Rule]:
        """The rules that hold in a project, or in a run; of one level the last that matches counts."""
        request = rule_service_pb2.ListRulesRequest(project=project, run=run)
        return list((await self._peer.call(self._rules.ListRules, request)).set.rules)


def user_message(
    text: str, *, settings: settings_pb2.LoopSettings | None = None, priority: bool = False
) -> session_command_pb2.UserMessage:
    """A message that is one text."""
    return session_command_pb2.UserMessage(parts=[message_pb2.Part(text=text)], settings=settings, priority=priority)
