"""A tolerant reader of what an agent of another vendor sends.

A bad entry is dropped and the rest kept, an unreadable update is dropped and logged, and the session goes on
(AP27, AP28).
"""

from __future__ import annotations

from typing import Any, Final

from turnwright_kit.logs import get_logger

_PRIORITIES: Final = ("high", "medium", "low")
_STATUSES: Final = ("pending", "in_progress", "completed")
_log = get_logger("mcp")

AgentUpdate = dict[str, Any]


def read_update(params: Any) -> AgentUpdate | None:
    """The update of a `session/update`, without what is unknown or malformed; None if it cannot be read."""
    notification = params if isinstance(params, dict) else {}
    update = notification.get("update")
    is_of_session = isinstance(notification.get("sessionId"), str)
    read = _update(update) if is_of_session and isinstance(update, dict) else None
    if read is None:
        _log.debug("update_dropped", kind=str(update.get("sessionUpdate"))[:64] if isinstance(update, dict) else "")
    return read


def _update(update: AgentUpdate) -> AgentUpdate | None:
    kind = update.get("sessionUpdate")
    match kind:
        case "plan_update" if plan := _plan(update.get("plan")):
            return _with_meta({"sessionUpdate": kind, "plan": plan}, update)
        case "plan_removed" if isinstance(update.get("planId"), str):
            return _with_meta({"sessionUpdate": kind, "planId": update["planId"]}, update)
        case "plan":
            return _with_meta({"sessionUpdate": kind, "entries": _entries(update.get("entries"))}, update)
        case str() if kind in OTHERS:
            return update
        case _:
            return None


OTHERS: Final = frozenset(
    {
        "user_message_chunk",
        "agent_message_chunk",
        "agent_thought_chunk",
        "tool_call",
        "tool_call_update",
        "available_commands_update",
        "current_mode_update",
        "config_option_update",
        "session_info_update",
        "usage_update",
    }
)
"""Kinds of updates that have nothing to do with plans."""


def _plan(value: Any) -> AgentUpdate | None:
    plan = value if isinstance(value, dict) else {}
    plan_id, kind = plan.get("planId"), plan.get("type")
    if not isinstance(plan_id, str):
        return None
    read: AgentUpdate = {"type": kind, "planId": plan_id}
    match kind:
        case "items" if "entries" in plan:
            read["entries"] = _entries(plan["entries"])
        case "markdown" if isinstance(plan.get("content"), str):
            read["content"] = plan["content"]
            if isinstance(plan.get("path"), str):
                read["path"] = plan["path"]
        case "file" if isinstance(plan.get("uri"), str):
            # Of an older peer.
            read["uri"] = plan["uri"]
        case _:
            return None
    return _with_meta(read, plan)


def _entries(value: Any) -> list[AgentUpdate]:
    found = value if isinstance(value, list) else []
    return [_with_meta(_entry(one), one) for one in found if _is_entry(one)]


def _is_entry(value: Any) -> bool:
    return (
        isinstance(value, dict)
        and isinstance(value.get("content"), str)
        and value.get("priority") in _PRIORITIES
        and value.get("status") in _STATUSES
    )


def _entry(value: AgentUpdate) -> AgentUpdate:
    return {name: value[name] for name in ("content", "priority", "status")}


def _with_meta(read: AgentUpdate, given: AgentUpdate) -> AgentUpdate:
    meta = given.get("_meta")
    return {**read, "_meta": meta} if isinstance(meta, dict) else read
