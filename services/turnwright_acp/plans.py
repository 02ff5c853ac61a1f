"""Plans as an editor reads them: operations for who declared `plan`, one list for the others (AP04-AP18, AP29-AP34)."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from pathlib import Path
from typing import Final

from turnwright.types.v1 import plan_pb2

from turnwright_acp.shapes import SessionUpdate

_PRIORITIES: Final = {
    plan_pb2.PLAN_PRIORITY_HIGH: "high",
    plan_pb2.PLAN_PRIORITY_MEDIUM: "medium",
    plan_pb2.PLAN_PRIORITY_LOW: "low",
}
_STATUSES: Final = {
    plan_pb2.PLAN_STATUS_PENDING: "pending",
    plan_pb2.PLAN_STATUS_IN_PROGRESS: "in_progress",
    plan_pb2.PLAN_STATUS_COMPLETED: "completed",
}
_REPLACED: Final = {
    plan_pb2.PLAN_STATUS_CANCELLED: ("completed", "cancelled"),
    plan_pb2.PLAN_STATUS_BLOCKED: ("pending", "blocked"),
}
"""Statuses that the protocol does not have: the nearest one, and the name that goes beside it (AP17)."""


class PlanUpdates:
    """The plans of a session as the editor was told of them: what it has is not sent again (AP43)."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._sent: dict[str, SessionUpdate] = {}
        self._list: list[SessionUpdate] = []
        self._texts: set[str] = set()

    def put(self, plan: plan_pb2.Plan, file_text: str) -> Iterator[SessionUpdate]:
        """One plan, whole. `file_text` is the content of the file of a file plan, which goes out as Markdown (AP11)."""
        content: SessionUpdate = {"type": "markdown", "planId": plan.plan_id}
        match plan.kind:
            case plan_pb2.PLAN_KIND_ITEMS:
                content = {"type": "items", "planId": plan.plan_id, "entries": entries_of(plan.items)}
            case plan_pb2.PLAN_KIND_FILE:
                content["content"] = file_text
                if path := self.file_of(plan):
                    content["path"] = str(path)
            case _:
                content["content"] = "\n\n".join([plan.body, *(delta.text for delta in plan.deltas)])
        if self._sent.get(plan.plan_id) != content:
            self._sent[plan.plan_id] = content
            yield {"sessionUpdate": "plan_update", "plan": content}

    def without(self, plan_ids: Container[str]) -> Iterator[SessionUpdate]:
        """The removal of each plan that is none of these."""
        for plan_id in [one for one in self._sent if one not in plan_ids]:
            del self._sent[plan_id]
            yield {"sessionUpdate": "plan_removed", "planId": plan_id}

    def put_list(self, items: Iterable[plan_pb2.PlanItem], texts: Iterable[str]) -> Iterator[SessionUpdate]:
        """All plans as one list, behind the texts that a list cannot show, each once."""
        for text in texts:
            if text not in self._texts:
                self._texts.add(text)
                yield {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
        entries = entries_of(items)
        if entries != self._list:
            self._list = entries
            yield {"sessionUpdate": "plan", "entries": entries}

    def file_of(self, plan: plan_pb2.Plan) -> Path | None:
        """The file of a file plan, by its absolute path; None for any other, and for one outside the project."""
        return path_in(self._root, plan.body.strip()) if plan.kind == plan_pb2.PLAN_KIND_FILE else None


def entries_of(items: Iterable[plan_pb2.PlanItem]) -> list[SessionUpdate]:
    return [_entry(item) for item in items]


def _entry(item: plan_pb2.PlanItem) -> SessionUpdate:
    status, replaced = _REPLACED.get(item.status, (_STATUSES.get(item.status, "pending"), ""))
    entry: SessionUpdate = {
        "content": item.content,
        "priority": _PRIORITIES.get(item.priority, "medium"),
        "status": status,
    }
    return {**entry, "_meta": {"status": replaced}} if replaced else entry


def path_in(root: Path, name: str) -> Path | None:
    """The absolute path of a file of the project; None if it lies elsewhere."""
    path = Path(name)
    if not name or path.is_absolute() or ".." in path.parts:
        return None
    return root / path
