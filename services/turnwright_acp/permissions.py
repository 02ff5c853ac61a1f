"""Proposals as permissions that an editor is asked for (AG10).

Each proposal is asked for once. Decided elsewhere, the request is withdrawn; with the client gone, the proposal stays
pending, and is asked for again when the session is loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

from msgspec import Struct
from turnwright.types.v1 import proposal_pb2, session_command_pb2

from turnwright_acp.editor_tools import ASKED, EditorTools, offered_tools
from turnwright_acp.jsonrpc import Connection, RpcError, StreamEndedError
from turnwright_acp.plans import path_in
from turnwright_acp.shapes import Capabilities
from turnwright_acp.updates import diff
from turnwright_client import Client, Reason, TurnwrightError
from turnwright_core.errors import DeadlineError, UnavailableError
from turnwright_core.text import cut_bytes
from turnwright_kit.logs import get_logger

T = TypeVar("T")

PAUSE_S: Final = 1.0
"""Seconds between attempts."""


async def insisted(call: Callable[[], Awaitable[T]]) -> T:
    """What a call answers once services do; whoever no longer wants it cancels it. Raises TurnwrightError."""
    while True:
        try:
            return await call()
        except (UnavailableError, DeadlineError) as error:
            _log.warning("call_failed", reason=error.reason.name)
        await asyncio.sleep(PAUSE_S)


_log = get_logger("acp")

RESULT_BYTES_MAX: Final = 512 * 1024
"""Bytes of the result of a tool that the run takes; a longer one is cut off."""
_OPTIONS: Final = (
    {"optionId": "allow_once", "name": "Allow", "kind": "allow_once"},
    {"optionId": "allow_always", "name": "Always allow {kind} in this session", "kind": "allow_always"},
    {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
    {"optionId": "reject_always", "name": "Always reject {kind} in this session", "kind": "reject_always"},
)


class SessionPlace(Struct, frozen=True):
    """Where a session is: its run, and its id for the editor."""

    project: str
    root: Path
    run: str

    @property
    def id(self) -> str:
        return f"{self.project}/{self.run}"


DECLINED: Final = "The user declined this."
"""What the model reads of a rejection; it goes on, as with a native call."""
UNASKED: Final = "The editor could not ask the user."


class Permissions:
    """Asks for the proposals of one session, and has the editor execute its own tools."""

    def __init__(
        self, client: Client, connection: Connection, place: SessionPlace, can: Capabilities, mode: Callable[[], str]
    ) -> None:
        """`mode`: that of the session; in yolo nothing is asked, of the editor's own tools either."""
        self._client, self._connection, self._place, self._mode = client, connection, place, mode
        self._offered = {tool.name for tool in offered_tools(can)}
        self._tools = EditorTools(connection, place.id, place.root)
        self._asking: dict[str, asyncio.Task[None]] = {}

    def take_all(self, proposals: Iterable[proposal_pb2.Proposal], *, is_ours: bool) -> None:
        """Ask for all that wait, and for nothing else any more."""
        waiting = {proposal.path: proposal for proposal in proposals}
        for path in [one for one in self._asking if one not in waiting]:
            self.withdraw(path)
        for proposal in waiting.values():
            self.take(proposal, is_ours=is_ours)

    def take(self, proposal: proposal_pb2.Proposal, *, is_ours: bool) -> None:
        """Ask for a proposal, unless that is being done. A question is not asked: its answer is a message.

        `is_ours`: calls of tools that this editor offers are for this editor.
        """
        is_tool = proposal.HasField("client_tool")
        is_of_another = is_tool and not (is_ours and proposal.tool in self._offered)
        if proposal.HasField("question") or proposal.path in self._asking or is_of_another:
            return
        work = self._execute(proposal) if is_tool else self._decide(proposal)
        task = asyncio.create_task(work, name="acp permission")
        self._asking[proposal.path] = task
        task.add_done_callback(lambda _: self._asking.pop(proposal.path, None))

    def withdraw(self, path: str) -> None:
        if task := self._asking.get(path):
            task.cancel()

    async def close(self) -> None:
        tasks = list(self._asking.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _decide(self, proposal: proposal_pb2.Proposal) -> None:
        try:
            option = await self._asked(await insisted(lambda: self._request(proposal)))
            await insisted(lambda: self._settle(proposal.path, option))
        except StreamEndedError:
            return
        except TurnwrightError as error:
            _warn(error)

    async def _execute(self, proposal: proposal_pb2.Proposal) -> None:
        """Have the editor execute one of its tools, and give the model the result."""
        failed = True
        try:
            is_asked = self._mode() != "yolo" and proposal.tool in ASKED
            is_allowed = not is_asked or await self._is_allowed(proposal)
            content, failed = (await self._tools.run(proposal), False) if is_allowed else (DECLINED, True)
        except RpcError as error:
            content = error.message
        except StreamEndedError:
            return
        content = cut_bytes(content, RESULT_BYTES_MAX)
        result = session_command_pb2.IdeToolResult(call=proposal.path, content=content, failed=failed)
        try:
            await insisted(lambda: self._client.submit(self._place.project, self._place.run, ide_tool_result=result))
        except TurnwrightError as error:
            _warn(error)

    async def _is_allowed(self, proposal: proposal_pb2.Proposal) -> bool:
        call = {"toolCallId": proposal.path, "status": "pending", "title": _title(proposal)}
        return (await self._asked({"toolCall": call, "options": [_OPTIONS[0], _OPTIONS[2]]})).startswith("allow")

    async def _asked(self, request: dict[str, Any]) -> str:
        """The option that was selected; empty: the request was cancelled with its prompt."""
        try:
            answer = await self._connection.request(
                "session/request_permission", {"sessionId": self._place.id, **request}
            )
        except RpcError as error:
            _log.warning("permission_not_asked", reason=error.message)
            return "unasked"
        return _option(answer)

    async def _request(self, proposal: proposal_pb2.Proposal) -> dict[str, Any]:
        whole = await self._client.get_proposal(self._place.project, self._place.run, proposal.path)
        contents = {one.path: one.content for one in whole.contents}
        call: dict[str, Any] = {"toolCallId": proposal.path, "status": "pending", "title": _title(proposal)}
        diffs = [
            diff(path, change.old_text if change.HasField("old_text") else None, contents.get(change.path, ""))
            for change in whole.proposal.files.changes
            if (path := path_in(self._place.root, change.path))
        ]
        if diffs:
            call["content"] = diffs
            call["locations"] = [{"path": diff["path"]} for diff in diffs]
        kind = ", ".join(f"`{target or proposal.tool}`" for target in proposal.kind_targets)
        # What no rule would match can only be decided once.
        offered = _OPTIONS if kind else (_OPTIONS[0], _OPTIONS[2])
        options = [{**one, "name": one["name"].format(kind=kind)} for one in offered]
        return {"toolCall": call, "options": options}

    async def _settle(self, path: str, option: str) -> None:
        always = option.endswith("_always")
        scope = session_command_pb2.DECISION_SCOPE_RUN if always else session_command_pb2.DECISION_SCOPE_ONCE
        if option.startswith("allow"):
            approved = session_command_pb2.ApproveTools(calls=[path], scope=scope)
            await self._client.submit(self._place.project, self._place.run, approve_tools=approved)
        elif option:
            reason = UNASKED if option == "unasked" else DECLINED
            rejected = session_command_pb2.RejectTools(calls=[path], scope=scope, reason=reason)
            await self._client.submit(self._place.project, self._place.run, reject_tools=rejected)


def _option(answer: Any) -> str:
    """The option that was selected; empty: the request was cancelled with its prompt."""
    outcome = answer.get("outcome") if isinstance(answer, dict) else None
    match outcome:
        case {"outcome": "selected", "optionId": str(option)} if any(option == one["optionId"] for one in _OPTIONS):
            return option
        case {"outcome": "cancelled"}:
            return ""
        case _:
            return "unasked"


def _warn(error: TurnwrightError) -> None:
    if error.reason not in (Reason.NOT_PROPOSED, Reason.COMMAND_GATED):
        _log.warning("permission_failed", reason=error.reason.name)


def _title(proposal: proposal_pb2.Proposal) -> str:
    match proposal.WhichOneof("effect"):
        case "command":
            return f"{proposal.tool} {proposal.command.command}"[:1000]
        case _:
            return f"{proposal.tool} {proposal.target}".strip()
