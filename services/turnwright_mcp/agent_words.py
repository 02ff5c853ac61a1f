"""What an agent of another vendor says, in words for people and for models: its updates, its questions, its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from difflib import unified_diff
from typing import Any, Final

from acp import schema
from turnwright.tool.v1 import result_pb2

from turnwright_mcp.agent_updates import AgentUpdate
from turnwright_mcp.questions import BODY_CHARS_MAX
from turnwright_mcp.results import FAILED, text_part

ANSWER_CHARS_MAX: Final = 512 * 1024
LINE_CHARS_MAX: Final = 300
DIFF_LINES_MAX: Final = 400
"""Longer texts are not compared for people: that takes time with the square of their length."""
WHAT_CHARS_MAX: Final = BODY_CHARS_MAX - 8000
"""Of a question; the rest is for what can be answered."""
PLAN_ENTRIES_MAX: Final = 200

_MARKS: Final = {"completed": "x", "in_progress": "~"}
_WORDS: Final = {
    "reject": ("reject_once", "reject_always"),
    "always": ("allow_always", "allow_once"),
}
_ENDS: Final = {
    "cancelled": (499, "It was cancelled."),
    "refusal": (FAILED, "It refuses to go on."),
    "max_tokens": (FAILED, "It has ended at its limit of tokens, before it was done."),
    "max_turn_requests": (FAILED, "It has ended at its limit of requests, before it was done."),
}


class AgentReport:
    """What an agent has said so far. Mutable."""

    def __init__(self, agent: str, show: Callable[[str], None]) -> None:
        """`show`: shows progress."""
        self._agent, self._show = agent, show
        self._answer: list[str] = []
        self._chars = 0
        self._has_acted = False
        """Whether it has done something since its last words."""
        self._plan = ""
        self._cost: dict[str, object] = {}

    def update(self, update: AgentUpdate) -> None:
        match update:
            case {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": str(text)}}:
                self._say(text)
            case {"sessionUpdate": "tool_call", "title": str(title)}:
                self._has_acted = True
                self._show(f"\n[{_line(title)}]\n")
            case {"sessionUpdate": "tool_call_update", "status": "completed" | "failed" as status, "toolCallId": call}:
                self._show(f"[{_line(str(update.get('title') or call))}: {status}]\n")
            case {"sessionUpdate": "plan", "entries": entries} | {
                "sessionUpdate": "plan_update",
                "plan": {"entries": entries},
            }:
                lines = [
                    f"- [{_MARKS.get(one['status'], ' ')}] {_line(one['content'])}"
                    for one in entries[:PLAN_ENTRIES_MAX]
                ]
                self._plan = "\n".join(lines)
                self._show(f"\n{self._plan}\n")
            case {
                "sessionUpdate": "usage_update",
                "cost": {"amount": int() | float() as amount, "currency": str(unit)},
            }:
                self._cost = {"cost": amount, "currency": unit[:8]}

    def _say(self, text: str) -> None:
        if self._has_acted:
            # Its answer is what it says last; what it has said on the way is in its output.
            self._answer, self._chars, self._has_acted = [], 0, False
        if kept := text[: ANSWER_CHARS_MAX - self._chars]:
            self._chars += len(kept)
            self._answer.append(kept)
        self._show(text)

    def result(self, end: schema.PromptResponse) -> result_pb2.ToolResult:
        status, why = _ENDS.get(end.stop_reason, (0, ""))
        answer = "".join(self._answer).strip() or f"The agent {self._agent} has said nothing."
        parts = [text_part("\n".join(filter(None, (why, answer))))]
        if self._plan:
            plan = text_part(self._plan).text
            parts.append(result_pb2.ToolPart(entry=result_pb2.ToolEntry(name="plan", body=plan)))
        figures: dict[str, object] = {"agent": self._agent, "stop_reason": end.stop_reason}
        if end.usage:
            figures["tokens"] = end.usage.total_tokens
        parts.append(result_pb2.ToolPart(structured=json.dumps(figures | self._cost)))
        return result_pb2.ToolResult(parts=parts, status=status)


def permission_text(agent: str, request: schema.RequestPermissionRequest, problem: str = "") -> str:
    """What whoever decides reads."""
    call = request.tool_call
    kind = f" ({call.kind})" if call.kind else ""
    lines = [problem, f"The agent {agent} asks: {_line(call.title or 'may it go on?')}{kind}"]
    lines += [f"* {_line(one.path)}" for one in call.locations or ()]
    lines += [_shown(one) for one in call.content or ()]
    if not call.content and call.raw_input is not None:
        lines.append(json.dumps(call.raw_input, ensure_ascii=False, indent=1))
    names = ", ".join(f"`{_line(one.name)}` ({one.kind})" for one in request.options[:10])
    what = "\n".join(filter(None, lines))
    if len(what) > WHAT_CHARS_MAX:
        # Whoever decides has to know that there is more.
        what = f"{what[:WHAT_CHARS_MAX]}\n... It asks with {len(what)} characters, of which the rest is not shown."
    return f"{what}\nAccepted, it gets what allows it once, or the option that the comment names: {names}."


def option_for(options: Sequence[schema.PermissionOption], comment: str) -> str:
    """The id of the option that an agent gets for a comment; empty: none, and it is not allowed.

    `reject` and `always` mean what an option does, whatever the agent calls it: its names are its own.
    """
    wanted = comment.strip().lower()
    kinds = _WORDS.get(wanted, ("allow_once", "allow_always"))
    fitting = [one for kind in kinds for one in options if one.kind == kind]
    named = [one for one in options if wanted and wanted in (one.option_id.lower(), one.name.strip().lower(), one.kind)]
    found = fitting if wanted in _WORDS else (*named, *fitting)
    return next((one.option_id for one in found), "")


def _shown(content: Any) -> str:
    match content:
        case schema.FileEditToolCallContent(path=path, old_text=old, new_text=new):
            before, after = (old or "").splitlines(), new.splitlines()
            if len(before) + len(after) > DIFF_LINES_MAX:
                return f"It writes {_line(path)}, {len(after)} lines:\n```\n{new}\n```"
            shown = [_line(line) for line in unified_diff(before, after, path, path, lineterm="")]
            return "\n".join(("```diff", *shown, "```"))
        case schema.ContentToolCallContent(content=schema.TextContentBlock(text=text)):
            return text
        case _:
            return ""


def _line(text: str) -> str:
    """A text in one line, within bounds."""
    line = " ".join(text.splitlines())
    return line if len(line) <= LINE_CHARS_MAX else f"{line[:LINE_CHARS_MAX]} ... ({len(line)} characters)"
