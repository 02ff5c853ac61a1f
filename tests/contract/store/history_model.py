"""A store as one may think of it: everything happens one after the other, and nothing is kept twice.

A world never changes; a step gives another one. So the outcome of requests that were made at once can be explained by
looking for an order of theirs in which each gets the answer that it got.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from turnwright_values.types import State, Visibility

from turnwright_core.errors import Reason

SHARED = None
"""Body of a view whose content is the project's."""

Body = str | None


class RefusedError(Exception):
    """What the store refuses, and why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(reason.name)
        self.reason = reason


@dataclass(frozen=True)
class Seen:
    """A run's view of a path."""

    body: Body
    visibility: Visibility = Visibility.VISIBLE
    state: State = State.RESOLVED


@dataclass(frozen=True)
class Moment:
    """The end of a turn: what the run saw, and the project's revision then."""

    seen: dict[str, Seen]
    project_revision: int


@dataclass(frozen=True)
class RunModel:
    """One run."""

    revision: int = 1
    seen: dict[str, Seen] = field(default_factory=dict)
    epoch: int = 0
    queued: int = 0
    loops: int = 0
    active: int = 0
    """Sequence of the running loop; 0: none."""
    held: bool = False
    """Whether an owner has it; leases are longer than any history."""
    turn: int = 0
    turn_open: bool = False
    moments: dict[int, Moment] = field(default_factory=dict)


@dataclass(frozen=True)
class World:
    """All runs of a project, and what they share."""

    runs: dict[str, RunModel] = field(default_factory=dict)
    shared: dict[str, tuple[tuple[int, str], ...]] = field(default_factory=dict)
    """By path, each content with the revision of the project at which it was written."""
    revision: int = 0

    def at(self, alias: str) -> RunModel:
        return self.runs[alias]

    def with_run(self, alias: str, run: RunModel) -> World:
        return replace(self, runs={**self.runs, alias: run})

    def shown(self, seen: dict[str, Seen], project_revision: int | None = None) -> dict[str, Seen]:
        """What views show: shared content as it is, or as it was at a revision of the project."""
        shown = {}
        for path, one in seen.items():
            body = one.body
            if body is SHARED:
                known = [text for rev, text in self.shared[path] if project_revision is None or rev <= project_revision]
                body = known[-1]
            shown[path] = replace(one, body=body)
        return shown


def is_shared(path: str) -> bool:
    """Whether a path lives in the project: a file."""
    return "://" not in path


@dataclass(frozen=True)
class Set:
    path: str
    body: str
    streaming: bool = False


@dataclass(frozen=True)
class Append:
    path: str
    text: str


@dataclass(frozen=True)
class Close:
    path: str


@dataclass(frozen=True)
class Hide:
    path: str


@dataclass(frozen=True)
class Remove:
    path: str


@dataclass(frozen=True)
class Copy:
    path: str
    to: str
    moves: bool = False


Change = Set | Append | Close | Hide | Remove | Copy


class _Draft:
    """A run's views while one request is carried out."""

    def __init__(self, world: World, alias: str) -> None:
        self.world = world
        self.seen = dict(world.at(alias).seen)
        self.files: dict[str, str] = {}
        self.touched = False

    def apply(self, change: Change) -> None:
        match change:
            case Set(path, body, streaming):
                old = self.seen.get(path)
                kept = old.state if old else State.RESOLVED
                self._put(
                    path, body, old.visibility if old else Visibility.VISIBLE, State.STREAMING if streaming else kept
                )
            case Append(path, text):
                old = self._known(path)
                if old.state is not State.STREAMING:
                    raise RefusedError(Reason.TRANSITION_FORBIDDEN)
                self._put(path, f"{old.body}{text}", old.visibility, old.state)
            case Close(path):
                self._change(path, state=State.RESOLVED)
            case Hide(path):
                self._change(path, visibility=Visibility.ARCHIVED)
            case Remove(path):
                self.touched |= self.seen.pop(path, None) is not None
            case Copy(path, to, moves):
                source = self._known(path)
                self._put(to, self._body(path), source.visibility, State.RESOLVED)
                if moves:
                    del self.seen[path]

    def _known(self, path: str) -> Seen:
        if path not in self.seen:
            raise RefusedError(Reason.ENTRY_NOT_FOUND)
        return self.seen[path]

    def _body(self, path: str) -> str:
        if not is_shared(path):
            body = self.seen[path].body
            assert body is not None
            return body
        file = self._file(path)
        assert file is not None
        return file

    def _file(self, path: str) -> str | None:
        """What the project holds under a path, for whoever sees it."""
        versions = self.world.shared.get(path)
        return self.files.get(path, versions[-1][1] if versions else None)

    def _change(self, path: str, **what: Any) -> None:
        self.seen[path] = replace(self._known(path), **what)
        self.touched = True

    def _put(self, path: str, body: str, visibility: Visibility, state: State) -> None:
        self.touched = True
        # A content that is there already makes no version.
        if is_shared(path) and self._file(path) != body:
            self.files[path] = body
        self.seen[path] = Seen(SHARED if is_shared(path) else body, visibility, state)

    def done(self, alias: str) -> World:
        """The world after it: the run's revision rises once where anything was touched, the project's with content."""
        run, world = self.world.at(alias), self.world
        if self.files:
            revision = world.revision + 1
            shared = {p: (*world.shared.get(p, ()), (revision, b)) for p, b in self.files.items()}
            world = replace(world, revision=revision, shared={**world.shared, **shared})
        return world.with_run(alias, replace(run, seen=self.seen, revision=run.revision + self.touched))


def written(world: World, alias: str, changes: Iterable[Change]) -> World:
    """The changes of one request, all or none."""
    draft = _Draft(world, alias)
    for change in changes:
        draft.apply(change)
    return draft.done(alias)


@dataclass(frozen=True)
class Write:
    """WriteEntries; `epoch` is the fencing token, where there is one."""

    alias: str
    changes: tuple[Change, ...]
    epoch: int | None = None

    def apply(self, world: World) -> tuple[World, Any]:
        if self.epoch is not None and self.epoch != world.at(self.alias).epoch:
            raise RefusedError(Reason.LEASE_LOST)
        after = written(world, self.alias, self.changes)
        return after, (after.at(self.alias).revision, after.revision)


PLAN = "plan://main"


@dataclass(frozen=True)
class Replan:
    """SetPlan: the plan that was there stays, archived, under the number of its version; one event tells of it."""

    alias: str
    body: str

    def apply(self, world: World) -> tuple[World, Any]:
        run = world.at(self.alias)
        kept: list[Change] = []
        version = 0
        if PLAN in run.seen:
            version = 1 + sum(path.startswith(f"{PLAN}/v") for path in run.seen)
            kept = [Set(f"{PLAN}/v{version}", f"{run.seen[PLAN].body}"), Hide(f"{PLAN}/v{version}")]
        event = f"event://turn_{run.turn - run.turn_open}/system_notice/main-v{version + 1}"
        told = Set(event, f"The plan main is now version {version + 1}.")
        after = written(world, self.alias, [*kept, Set(PLAN, self.body), told])
        return after, (after.at(self.alias).revision, after.revision)


@dataclass(frozen=True)
class Enqueue:
    """EnqueueLoop: the prompt is shown as `run://ALIAS`."""

    alias: str
    prompt: str

    def apply(self, world: World) -> tuple[World, Any]:
        after = written(world, self.alias, [Set(f"run://{self.alias}", self.prompt)])
        run = after.at(self.alias)
        run = replace(run, loops=run.loops + 1, queued=run.queued + 1)
        return after.with_run(self.alias, run), run.loops


@dataclass(frozen=True)
class Claim:
    """ClaimRun, always by the same owner."""

    alias: str

    def apply(self, world: World) -> tuple[World, Any]:
        run = world.at(self.alias)
        run = replace(run, epoch=run.epoch + 1, held=True)
        if not run.active and run.queued:
            first = run.loops - run.queued + 1
            run = replace(run, active=first, queued=run.queued - 1, revision=run.revision + 1)
        return world.with_run(self.alias, run), (run.epoch, run.active, run.turn if run.turn_open else 0)


@dataclass(frozen=True)
class Taken(Claim):
    """A run that ClaimWork gave: one with work that nobody held."""

    def apply(self, world: World) -> tuple[World, Any]:
        if not has_work(world.at(self.alias)):
            raise RefusedError(Reason.LEASE_HELD)
        return super().apply(world)


def has_work(run: RunModel) -> bool:
    """Whether an owner is wanted for a run."""
    return not run.held and bool(run.active or run.queued)


@dataclass(frozen=True)
class Release:
    """ReleaseRun."""

    alias: str
    epoch: int

    def apply(self, world: World) -> tuple[World, Any]:
        run = world.at(self.alias)
        if self.epoch != run.epoch:
            raise RefusedError(Reason.LEASE_LOST)
        return world.with_run(self.alias, replace(run, held=False)), None


@dataclass(frozen=True)
class Begin:
    """EndTurn without a turn that opens one, with its prompt."""

    alias: str
    epoch: int

    def apply(self, world: World) -> tuple[World, Any]:
        run = world.at(self.alias)
        if self.epoch != run.epoch:
            raise RefusedError(Reason.LEASE_LOST)
        if not run.active or run.turn_open:
            raise RefusedError(Reason.TRANSITION_FORBIDDEN)
        number = run.turn + 1
        after = written(world, self.alias, [Set(f"prompt://{number}", "go on")])
        run = replace(after.at(self.alias), turn=number, turn_open=True)
        return after.with_run(self.alias, run), (number, run.revision, after.revision)


@dataclass(frozen=True)
class End:
    """EndTurn of the open turn, or of none; `project_revision` is what its packet was made from.

    `opens_next` begins the next turn with it, with its prompt.
    """

    alias: str
    epoch: int
    turn: int
    project_revision: int
    ends_loop: bool
    opens_next: bool = False

    def apply(self, world: World) -> tuple[World, Any]:
        run = world.at(self.alias)
        if self.epoch != run.epoch:
            raise RefusedError(Reason.LEASE_LOST)
        if self.turn != run.turn or not run.turn_open:
            raise RefusedError(Reason.TRANSITION_FORBIDDEN)
        moments = {**run.moments, run.turn: Moment(run.seen, max(world.revision, self.project_revision))}
        active = 0 if self.ends_loop else run.active
        run = replace(run, revision=run.revision + 1, turn_open=False, moments=moments, active=active)
        ended = world.with_run(self.alias, run)
        if not self.opens_next:
            return ended, (0, run.revision, world.revision)
        return Begin(self.alias, self.epoch).apply(ended)


@dataclass(frozen=True)
class Fork:
    """ForkRun at the head (`turn` 0) or at the end of a turn; the answer is what the child saw first."""

    alias: str
    child: str
    turn: int

    def apply(self, world: World) -> tuple[World, Any]:
        parent = world.at(self.alias)
        if self.turn and self.turn not in parent.moments:
            raise RefusedError(Reason.TURN_NOT_FOUND)
        seen = parent.moments[self.turn].seen if self.turn else parent.seen
        seen = {
            path: one if one.state.is_settled else replace(one, state=State.CANCELLED) for path, one in seen.items()
        }
        number = self.turn or parent.turn
        moments = {turn: moment for turn, moment in parent.moments.items() if turn <= number}
        run = RunModel(seen=seen, turn=number, loops=parent.loops, moments=moments)
        return world.with_run(self.child, run), (number, seen)


Request = Write | Replan | Enqueue | Claim | Release | Begin | End | Fork


def explain(world: World, answered: list[tuple[Request, Any]]) -> World | None:
    """The world after requests that were made at once, in an order in which each gets its answer; None: there is none."""
    if not answered:
        return world
    for place, (request, answer) in enumerate(answered):
        after, predicted = attempt(world, request)
        if predicted == answer:
            found = explain(after, answered[:place] + answered[place + 1 :])
            if found is not None:
                return found
    return None


def attempt(world: World, request: Request) -> tuple[World, Any]:
    """One request: the world after it and its answer, which is the reason where it is refused."""
    try:
        return request.apply(world)
    except RefusedError as refused:
        return world, refused.reason
