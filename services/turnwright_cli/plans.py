"""The plans of a run: the commands for them, how they are written, and their changes while a loop is followed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from operator import itemgetter
from pathlib import Path
from typing import Final

from click import UsageError
from msgspec import Struct
from rich.cells import cell_len, set_cell_size
from rich.text import Text
from turnwright.types.v1 import plan_pb2

from turnwright_cli.invocation import Invocation
from turnwright_cli.output import Column, answer, console, enum_word, put, show_lines, show_table
from turnwright_cli.plain import safe_line, safe_text
from turnwright_cli.reading import given_text, text_in
from turnwright_cli.run_list import open_run
from turnwright_core.limits import PLAN_BODY_BYTES_MAX, PLAN_DELTA_BYTES_MAX


class ItemChange(Struct, frozen=True):
    """An item that is new, has another status or priority, or was removed."""

    item: plan_pb2.PlanItem
    """The item as it is now, or as it was if it was removed."""
    is_gone: bool = False


def diff_items(
    before: Sequence[plan_pb2.PlanItem], after: Sequence[plan_pb2.PlanItem]
) -> tuple[ItemChange, ...] | None:
    """The items that changed, in plan order, then those removed; None if no item stayed the same.

    An item is known by its content: a changed text is a new item and a removed one. Equal contents are separate items.
    """
    known = dict(_numbered(before))
    now = dict(_numbered(after))
    if (known or now) and not known.keys() & now.keys():
        return None
    moved = [
        ItemChange(item)
        for key, item in now.items()
        if not (was := known.get(key)) or (was.status, was.priority) != (item.status, item.priority)
    ]
    return (*moved, *(ItemChange(item, is_gone=True) for key, item in known.items() if key not in now))


def _numbered(items: Iterable[plan_pb2.PlanItem]) -> Iterator[tuple[tuple[str, int], plan_pb2.PlanItem]]:
    """Each item with its content, and the number of earlier items with the same content."""
    seen: Counter[str] = Counter()
    for item in items:
        yield (item.content, seen[item.content]), item
        seen[item.content] += 1


def count_changed_lines(before: str, after: str) -> tuple[int, int]:
    """Number of lines added and removed in a text; a line that only moved counts as neither."""
    was, now = Counter(before.splitlines()), Counter(after.splitlines())
    return (now - was).total(), (was - now).total()


_COLUMNS: Final = ("plan", "version", "mode", "part", "status", "priority", "text", "evidence")


async def show_plans(call: Invocation, *, run: str, plan_id: str = "", version: int = 0) -> int:
    async with open_run(call, run, reads=True) as (client, project, found):
        if plan_id or version:
            plans = [await client.get_plan(project, found.run, plan_id=plan_id, version=version)]
        else:
            plans = [plan async for plan in client.list_plans(project, found.run)]
    if call.as_json:
        return show_lines(plans)
    out = console()
    if plans and out.is_terminal:
        for plan in plans:
            for line in plan_lines(plan):
                put(out, line)
        return 0
    alias = safe_line(found.run)
    empty = f"No plans in run {alias} yet. Set one with `turnwright plan set {alias} TEXT`."
    columns = [Column[Sequence[str]](name, itemgetter(at)) for at, name in enumerate(_COLUMNS)]
    show_table(columns, [row for plan in plans for row in _rows(plan)], empty=empty)
    return 0


def _rows(plan: plan_pb2.Plan) -> Iterator[tuple[str, ...]]:
    """A row for each item, or one for the whole text or a list without items; then one for each delta."""
    begin = (plan.plan_id, str(plan.version), plan.mode)
    if not plan.items:
        text = "" if plan.kind == plan_pb2.PLAN_KIND_ITEMS else plan.body
        yield (*begin, enum_word(plan_pb2.PlanKind.DESCRIPTOR, plan.kind), "", "", text, "")
    for item in plan.items:
        status = enum_word(plan_pb2.PlanStatus.DESCRIPTOR, item.status)
        yield (*begin, "item", status, priority_word(item), item.content, " ".join(item.evidence_paths))
    for delta in plan.deltas:
        yield (*begin, "delta", "", "", delta.text, "")


async def set_plan(
    call: Invocation, *, run: str, text: str | None, file: Path | None, items: str | None, mode: str, plan_id: str
) -> int:
    wanted = _given(text, file, items)
    wanted.plan_id, wanted.mode = plan_id, mode
    async with open_run(call, run) as (client, project, found):
        stored = await client.set_plan(project, found.run, wanted)
    return answer(call, [stored], plan_title(stored))


def _given(text: str | None, file: Path | None, items: str | None) -> plan_pb2.Plan:
    """The plan from whichever of the three was given. Raises UsageError, FailureError."""
    if [text, file, items].count(None) != 2:
        raise UsageError("Give the plan as TEXT, with --file or with --items: one of them.")
    if items is not None:
        body = given_text(items, "list of items", PLAN_BODY_BYTES_MAX)
        return plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_ITEMS, body=body)
    return plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_MARKDOWN, body=_text(text, file, "plan", PLAN_BODY_BYTES_MAX))


def _text(text: str | None, file: Path | None, what: str, bytes_max: int) -> str:
    return text_in(file, what, bytes_max) if file is not None else given_text(text or "", what, bytes_max)


async def update_plan(call: Invocation, *, run: str, text: str | None, file: Path | None, plan_id: str) -> int:
    if [text, file].count(None) != 1:
        raise UsageError("Give what to add as TEXT or with --file.")
    delta = _text(text, file, "delta", PLAN_DELTA_BYTES_MAX)
    async with open_run(call, run) as (client, project, found):
        stored = await client.update_plan(project, found.run, delta, plan_id=plan_id)
    return answer(call, [stored], plan_title(stored))


async def remove_plan(call: Invocation, *, run: str, plan_id: str) -> int:
    async with open_run(call, run) as (client, project, found):
        plan = await client.get_plan(project, found.run, plan_id=plan_id)
        await client.delete_plan(project, found.run, plan_id=plan_id)
    shown = f"turnwright plan show {safe_line(found.run)} --plan-id {safe_line(plan.plan_id)} --version {plan.version}"
    return answer(call, [plan], f"plan {safe_line(plan.plan_id)}: removed; `{shown}` still shows it")


_STATUSES: Final[Mapping[int, tuple[str, str]]] = {
    plan_pb2.PLAN_STATUS_PENDING: (" ", ""),
    plan_pb2.PLAN_STATUS_IN_PROGRESS: ("~", "in progress"),
    plan_pb2.PLAN_STATUS_COMPLETED: ("x", ""),
    plan_pb2.PLAN_STATUS_CANCELLED: ("-", "cancelled"),
    plan_pb2.PLAN_STATUS_BLOCKED: ("!", "blocked"),
}
"""For each status its mark, and the word after an item, where the mark does not say it."""
_UNKNOWN: Final = ("?", "")
OVER: Final = (plan_pb2.PLAN_STATUS_COMPLETED, plan_pb2.PLAN_STATUS_CANCELLED)
ITEM_CHARS_MAX: Final = 60
"""Length of an item in a line about progress, in characters."""


def priority_word(item: plan_pb2.PlanItem) -> str:
    return enum_word(plan_pb2.PlanPriority.DESCRIPTOR, item.priority)


def plan_title(plan: plan_pb2.Plan) -> str:
    """`plan main, version 2: 3/5 items done, 1 delta`."""
    title = f"plan {safe_line(plan.plan_id)}, version {plan.version}"
    parts = [items_words(plan)] if plan.kind == plan_pb2.PLAN_KIND_ITEMS else []
    if plan.deltas:
        parts.append(_count(len(plan.deltas), "delta"))
    return f"{title}: {', '.join(parts)}" if parts else title


def items_words(plan: plan_pb2.Plan) -> str:
    return f"{_done(plan)}/{len(plan.items)} items done"


def _done(plan: plan_pb2.Plan) -> int:
    return sum(item.status == plan_pb2.PLAN_STATUS_COMPLETED for item in plan.items)


def progress_words(plan: plan_pb2.Plan) -> str:
    """`plan 2/5: write the parser`: how far a plan of items is, and what comes next; empty if nothing does."""
    if all(item.status in OVER for item in plan.items):
        return ""
    now = plan.items[current_item(plan.items)]
    return f"plan {_done(plan)}/{len(plan.items)}: {safe_line(now.content, ITEM_CHARS_MAX)}"


def item_line(item: plan_pb2.PlanItem) -> str:
    """`[~] write the parser (high, in progress)`; medium priority is not shown."""
    mark, status = _STATUSES.get(item.status, _UNKNOWN)
    priority = "" if item.priority == plan_pb2.PLAN_PRIORITY_MEDIUM else priority_word(item)
    words = ", ".join(filter(None, (priority, status)))
    return f"[{mark}] {safe_line(item.content)}{words and f' ({words})'}"


def plan_lines(plan: plan_pb2.Plan) -> Iterator[Text]:
    mode = f", mode {safe_line(plan.mode)}" if plan.mode else ""
    yield Text(plan_title(plan) + mode, style="bold")
    if plan.kind != plan_pb2.PLAN_KIND_ITEMS:
        yield from _block(plan.body)
    for item in plan.items:
        is_over = item.status in OVER
        yield Text(f"  {item_line(item)}", style="dim" if is_over else "")
        if item.evidence_paths:
            yield Text(f"      {', '.join(map(safe_line, item.evidence_paths))}", style="dim")
    for delta in plan.deltas:
        yield Text(f"  delta {delta.sequence}:", style="dim")
        yield from _block(delta.text)


def _block(text: str) -> Iterator[Text]:
    for line in safe_text(text).rstrip("\n").split("\n"):
        yield Text(f"  {line}")


LINES_MAX: Final = 8
"""Lines of a panel, the title included."""

LINES_MIN: Final = 4
"""A panel that would have fewer lines is left out: the line about progress says as much."""

COLUMNS_MIN: Final = 30
"""Width below which an item cannot be read."""


def panel_lines(plan: plan_pb2.Plan | None, columns: int, lines: int) -> list[str]:
    """The title and as many items as fit into a space; empty if it is too small, or if nothing is left to do."""
    room = min(LINES_MAX, lines)
    if plan is None or not progress_words(plan) or columns < COLUMNS_MIN or room < LINES_MIN:
        return []
    now = current_item(plan.items)
    # The items that fit, the current one among them with one before it.
    start = max(0, min(now - 1, len(plan.items) - room + 1))
    shown = range(start, min(len(plan.items), start + room - 1))
    title = f"plan {safe_line(plan.plan_id)}: {items_words(plan)}"
    if len(shown) < len(plan.items):
        title += f" (items {shown.start + 1} to {shown.stop})"
    marked = [f"{'>' if number == now else ' '} {item_line(plan.items[number])}" for number in shown]
    return [_cut(line, columns) for line in (title, *marked)]


def current_item(items: Sequence[plan_pb2.PlanItem]) -> int:
    """The item that is worked on, or else the first that is not over."""
    working = [number for number, item in enumerate(items) if item.status == plan_pb2.PLAN_STATUS_IN_PROGRESS]
    return next(iter(working), next((n for n, item in enumerate(items) if item.status not in OVER), 0))


def _cut(line: str, columns: int) -> str:
    return line if cell_len(line) <= columns else f"{set_cell_size(line, columns - 3).rstrip()}..."


MOVED_MAX: Final = 10
"""Maximum number of changed items that a terminal lists."""
CHARS_MAX: Final = 100
"""Maximum length of an item or a delta on a terminal, in characters."""


class PlanChanges:
    """The plans as last shown. In a pipe (`whole`) lines are not truncated and no item is left out."""

    def __init__(self, *, whole: bool) -> None:
        self._whole = whole
        self._plans: dict[str, plan_pb2.Plan | None] = {}
        self._knows_all = False

    def progress(self) -> str:
        """How far the plan is that was changed last; empty if none has open items."""
        plan = self.latest()
        return progress_words(plan) if plan else ""

    def latest(self) -> plan_pb2.Plan | None:
        """The plan with open items that was changed last."""
        return next((plan for plan in reversed(self._plans.values()) if plan and progress_words(plan)), None)

    def lacks(self, plan: plan_pb2.Plan) -> bool:
        """Whether the previous version is needed to show what changed."""
        return not self._knows_all and plan.plan_id not in self._plans and plan.version > 1 and not plan.deltas

    def knew(self, plan: plan_pb2.Plan) -> None:
        """The previous version of a plan that was not seen yet."""
        self._plans.setdefault(plan.plan_id, plan)

    def snapshot(self, plans: Iterable[plan_pb2.Plan]) -> Iterator[str]:
        """All plans. The first snapshot is the starting point; in later ones, known plans may have changed."""
        now = {plan.plan_id: plan for plan in plans}
        for plan_id in [plan_id for plan_id, plan in self._plans.items() if plan and plan_id not in now]:
            yield from self.removed(plan_id)
        for plan_id, plan in now.items():
            if self._knows_all or plan_id in self._plans:
                yield from self.updated(plan)
            else:
                self._plans[plan_id] = plan
        self._knows_all = True

    def removed(self, plan_id: str) -> Iterator[str]:
        self._plans[plan_id] = None
        yield f"plan {safe_line(plan_id)}: removed"

    def updated(self, plan: plan_pb2.Plan) -> Iterator[str]:
        is_known = plan.plan_id in self._plans or self._knows_all
        before = self._plans.get(plan.plan_id)
        self._plans[plan.plan_id] = plan
        same = before is not None and before.version == plan.version
        added = list(plan.deltas)
        if not same and not (plan.deltas and not is_known):
            yield from self._replaced(before, plan)
        elif before is None:
            # It was not shown yet: the latest delta is the change.
            added = added[-1:]
        else:
            added = [
                delta for delta in added if delta.sequence > max((one.sequence for one in before.deltas), default=0)
            ]
        for delta in added:
            yield f"plan {safe_line(plan.plan_id)}, added: {self._cut(delta.text)}"

    def _replaced(self, before: plan_pb2.Plan | None, plan: plan_pb2.Plan) -> Iterator[str]:
        """A new version: the items that changed if it is still the same plan, else its size."""
        name = f"plan {safe_line(plan.plan_id)}"
        if before is not None and before.kind == plan.kind == plan_pb2.PLAN_KIND_ITEMS:
            moved = diff_items(before.items, plan.items)
            if moved and (self._whole or len(moved) <= MOVED_MAX):
                for one in moved:
                    line = self._cut(item_line(one.item))
                    yield f"{name}: {'no longer ' if one.is_gone else ''}{line}"
                return
        yield f"{name}, version {plan.version}: {self._size(before, plan)}"
        is_text = plan.kind == plan_pb2.PLAN_KIND_MARKDOWN
        lines = safe_text(plan.body).rstrip("\n").split("\n") if is_text else list(map(item_line, plan.items))
        shown = len(lines) if self._whole else MOVED_MAX
        yield from (f"  {line if self._whole else safe_line(line, CHARS_MAX)}" for line in lines[:shown])
        if lines[shown:]:
            yield f"  and {len(lines) - shown} more"

    def _size(self, before: plan_pb2.Plan | None, plan: plan_pb2.Plan) -> str:
        if plan.kind == plan_pb2.PLAN_KIND_ITEMS:
            done = _done(plan)
            return _count(len(plan.items), "item") + (f", {done} done" if done else "")
        if plan.kind == plan_pb2.PLAN_KIND_FILE:
            return f"file {self._cut(plan.body)}"
        size = _count(len(plan.body.splitlines()), "line")
        if before is None or before.kind != plan.kind:
            return size
        new, gone = count_changed_lines(before.body, plan.body)
        return f"{size}, {new} new, {gone} gone"

    def _cut(self, text: str) -> str:
        return safe_line(text, 0 if self._whole else CHARS_MAX)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
