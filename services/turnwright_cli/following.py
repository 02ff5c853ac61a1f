"""Follows a run until a loop ends: events go to the screen, proposals to the decider, Ctrl-C to the executor.

What loops before that one do is shown as well: theirs are results that nobody else shows.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Iterable
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright.types.v1 import entry_pb2, loop_pb2, proposal_pb2, run_pb2
from turnwright.types.v1.command_record_pb2 import DECISION_KIND_ACCEPTED, DECISION_KIND_EXPIRED, DECISION_KIND_REJECTED
from turnwright.types.v1.session_command_pb2 import DECISION_SCOPE_RUN, ApproveTools

from turnwright_cli.changes import changes_of
from turnwright_cli.editing import edited_proposal, picked
from turnwright_cli.exit_codes import FailureError
from turnwright_cli.interrupts import Interrupts
from turnwright_cli.output import while_read
from turnwright_cli.plain import safe_line
from turnwright_cli.prompting import PromptDecision, Prompter
from turnwright_cli.screen import Screen
from turnwright_client import Client, QueuedLoop, RunView
from turnwright_client.client import entries_in, loop_in
from turnwright_core import runs
from turnwright_core.errors import MissingError, Reason, TurnwrightError
from turnwright_core.wire.run_view import Event

COMMENT_CHARS_MAX: Final = 100
"""Length of a comment in a line about a decision."""

_EXPIRED: Final = "Too late: the proposal expired before anybody decided."


class FollowResult(Struct, frozen=True):
    """The result of following: the run, the loop with its last status, and the undecided proposals.

    `of_agents` are those of agents, each with its run.
    """

    run: run_pb2.Run
    loop: loop_pb2.Loop
    undecided: tuple[proposal_pb2.Proposal, ...] = ()
    of_agents: tuple[tuple[str, proposal_pb2.Proposal], ...] = ()


class ShownRun(Struct):
    """How far a run was shown: what is known of it, and the first loop whose end was not shown."""

    run: str = ""
    view: RunView = field(default_factory=RunView)
    loop: int = 0

    def enter(self, queued: QueuedLoop) -> None:
        """Begin with the loop that is worked on, unless the run is known already."""
        if self.run == queued.run:
            return
        active = queued.state.loop
        is_open = active.sequence and active.status not in runs.LOOP_ENDED
        self.run, self.view = queued.run, RunView()
        self.loop = min(active.sequence, queued.sequence) if is_open else queued.sequence


class Follower:
    """Follows a run from a place to the end of the loop that a command has queued or continued.

    Without a decider, a proposal ends following, with the run at 202. What the run accepts itself comes as no proposal.
    """

    def __init__(
        self,
        client: Client,
        screen: Screen,
        person: Prompter | None,
        interrupts: Interrupts,
        place: ShownRun,
    ) -> None:
        self._client = client
        self._screen = screen
        self._person = person
        self._interrupts = interrupts
        self._place = place
        self._deciding: asyncio.Task[bool] | None = None
        self._asked = ""
        self._came_for = ""
        self._decided: set[str] = set()
        self._of_agents: dict[str, tuple[str, proposal_pb2.Proposal]] = {}
        """Proposals of agents, with their runs, that this run has told of."""
        self._aborted = False
        self._given: list[int] = []
        self._at_work = 0

    async def follow(self, queued: QueuedLoop, decided: str = "", asked: str = "") -> FollowResult:
        """Show and steer the loop until it ends, or until it needs a decision that cannot be taken here.

        `decided` is the path of the proposal that was just decided; it is not asked again. `asked` is the proposal that
        the user wants to decide: it comes first, and Ctrl-C before a decision changes nothing.
        """
        self._came_for = asked
        self._place.enter(queued)
        self._begun_at = queued.cursor
        self.add(queued)
        if decided:
            self._decided.add(decided)
        # What a run reported before we came, only a snapshot has: its proposal, and results of loops that were open.
        is_blocked = queued.state.status == runs.PROPOSED and not decided
        is_late = self._place.loop < queued.sequence
        after = self._view.cursor or (None if is_blocked or is_late else queued.cursor)
        events = self._client.watch(queued.project, queued.run, after, plans="operations", lost=self._screen.lost)
        async with contextlib.aclosing(while_read(events)) as readable:
            followed = await self._pump(readable)
        self._screen.end(followed.run, followed.loop)
        return followed

    def add(self, queued: QueuedLoop) -> None:
        """Follow to the end of this loop, which comes behind those before it."""
        self._queued = queued
        self._given.append(queued.sequence)
        self._screen.begin(queued.state, queued.sequence, self._place.loop)

    @property
    def latest(self) -> QueuedLoop:
        """The loop whose end is waited for."""
        return self._queued

    @property
    def _view(self) -> RunView:
        return self._place.view

    async def _pump(self, events: AsyncIterator[Event]) -> FollowResult:
        """Wait for the first of: an event, Ctrl-C, a finished decision."""
        upcoming: asyncio.Task[Event] = asyncio.ensure_future(anext(events))
        asked: asyncio.Task[bool] = asyncio.ensure_future(self._interrupts.asked.wait())
        try:
            if self._queued.state.status == runs.PROPOSED and self._view.cursor:
                await self._on_proposals(Event(cursor=self._view.cursor))
            while True:
                waiting = [task for task in (upcoming, self._deciding, None if self._aborted else asked) if task]
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                if self._interrupts.asked.is_set() and not self._aborted:
                    if self._came_for and not self._decided:
                        return await self._leave()
                    if cancelled := await self._abort():
                        return cancelled
                if asked.done() and not self._interrupts.asked.is_set():
                    asked = asyncio.ensure_future(self._interrupts.asked.wait())
                if self._deciding is not None and self._deciding.done() and not self._finish_deciding():
                    return await self._leave()
                if upcoming.done():
                    followed = await self._on_event(upcoming.result())
                    if followed is not None:
                        return followed
                    upcoming = asyncio.ensure_future(anext(events))
        finally:
            await _settle(task for task in (upcoming, asked, self._deciding) if task)

    async def _on_event(self, event: Event) -> FollowResult | None:
        self._view.apply(event)
        await self._complete(event)
        self._screen.show(event)
        await self._add_proposals_of_agents(event)
        if (loop := loop_in(event)) is not None and (followed := await self._ended(loop)):
            return followed
        return await self._on_proposals(event)

    def _is_behind(self, event: Event) -> bool:
        """Whether it happened before the command did: what waits then may have been decided since."""
        now, begun = event.cursor, self._begun_at
        return now.epoch == begun.epoch and now.seq < begun.seq

    async def _ended(self, now: loop_pb2.Loop) -> FollowResult | None:
        """Show the ends of loops up to the one that is followed, also those that a snapshot skipped."""
        run = self._view.run or self._queued.state
        if now.status in (runs.RUNNING, runs.PROPOSED) or now.turns:
            if 0 < self._at_work < now.sequence:
                self._screen.began(now)
            self._at_work = now.sequence
        is_last = now.status in runs.LOOP_ENDED and not run.loops_queued
        while (sequence := self._place.loop) <= self._queued.sequence:
            is_now = sequence == now.sequence
            if not (is_now or is_last or sequence <= self._at_work):
                return None
            loop = now if is_now else await self._client.get_loop(run.project, run.run, sequence)
            # Of what was taken out of the queue this may be the last word; of any other loop events tell more.
            if loop.status not in runs.LOOP_ENDED or (sequence > max(now.sequence, self._at_work) and loop.turns):
                return None
            self._place.loop += 1
            if sequence == self._queued.sequence:
                return FollowResult(run, loop)
            if loop.turns:
                self._screen.passed(run, loop)
                self._screen.changed(await changes_of(self._client, run, sequence))
            if self._aborted and sequence in self._given:
                # What was given after it goes on.
                self._aborted = False
                self._interrupts.asked.clear()
        return None

    async def _complete(self, event: Event) -> None:
        """Fetch what the screen needs besides an event: bodies missed in a gap, the previous version of a plan."""
        for entry in entries_in(event):
            if self._screen.lacks(entry):
                whole = await self._client.get_entry(self._queued.project, self._queued.run, entry.path)
                entry.body = whole.body
        if event.HasField("plan_updated") and self._screen.lacks_plan(plan := event.plan_updated):
            with contextlib.suppress(MissingError):
                before = await self._client.get_plan(
                    self._queued.project, self._queued.run, plan_id=plan.plan_id, version=plan.version - 1
                )
                self._screen.knew_plan(before)

    async def _on_proposals(self, event: Event) -> FollowResult | None:
        if self._deciding is not None and self._asked and self._asked not in self._view.proposals:
            self._asked = ""
            self._deciding.cancel()
            # The question goes first, with the line on which it stands.
            await asyncio.wait((self._deciding,))
            if not self._aborted:
                self._screen.note(_decided_words(event.proposal_resolved.decision))
        if self._is_behind(event):
            return None
        waiting = sorted(self._view.proposals.values(), key=lambda found: found.path != self._came_for)
        own = next((found for found in waiting if found.path not in self._decided), None)
        run, proposal = (self._queued.run, own) if own else next(iter(self._of_agents.values()), ("", None))
        if proposal is None or self._deciding is not None or self._aborted:
            return None
        if self._person is None:
            # The run itself reports that it waits a moment after the proposal.
            followed = await self._leave()
            return followed if followed.run.status == runs.PROPOSED else None
        if own is None:
            self._screen.note(f"The agent of the run {safe_line(run)} asks:")
        self._screen.propose(proposal)
        # Of a decision on what an agent proposes this run tells nothing.
        self._asked = proposal.path if own else ""
        self._deciding = asyncio.ensure_future(self._decide(self._person, run, proposal))
        return None

    async def _add_proposals_of_agents(self, event: Event) -> None:
        """Fetch the proposals of agents that an event tells of, if they still wait."""
        for entry in entries_in(event):
            place = agent_proposal(entry)
            if place is None:
                continue
            with contextlib.suppress(TurnwrightError):
                found = await self._client.get_proposal(self._queued.project, *place)
                self._of_agents[" ".join(place)] = place[0], found.proposal

    async def _decide(self, person: Prompter, run: str, proposal: proposal_pb2.Proposal) -> bool:
        decision = await self._taken(person, run, proposal)
        # From here on the event about the decision is our own.
        self._asked = ""
        if decision is None:
            return False
        project = self._queued.project
        try:
            if decision.always:
                approved = ApproveTools(calls=[proposal.path], scope=DECISION_SCOPE_RUN)
                await self._client.submit(project, run, approve_tools=approved)
            else:
                await self._client.resolve(
                    project,
                    run,
                    proposal.path,
                    accept=decision.accept,
                    comment=decision.comment,
                    contents=decision.contents,
                    answer=decision.answer,
                )
        except TurnwrightError as error:
            if error.reason is not Reason.NOT_PROPOSED:
                raise
            self._screen.note(_decided_already(error.metadata.get("decision", ""), error.metadata.get("principal", "")))
        if self._of_agents.pop(f"{run} {proposal.path}", None) is None:
            self._decided.add(proposal.path)
        return True

    async def _taken(self, person: Prompter, run: str, proposal: proposal_pb2.Proposal) -> PromptDecision | None:
        """The decision, with contents from an editor if requested. If the editor fails, nothing is decided."""
        project = self._queued.project
        while True:
            decision = await person.decide(proposal)
            if decision is not None and decision.shows:
                self._screen.propose(
                    (await self._client.get_proposal(project, run, proposal.path)).proposal, whole=True
                )
                continue
            if decision is not None and decision.picks:
                answer = await self._client.get_proposal(project, run, proposal.path)
                parts = await picked(answer, person.ask, self._screen.part)
                if isinstance(parts, str):
                    self._screen.note(parts)
                    continue
                return PromptDecision(parts.accept, parts.comment, parts.contents) if parts else None
            if decision is None or not decision.edits:
                return decision
            try:
                with person.away():
                    contents = await edited_proposal(self._client, project, run, proposal.path)
            except FailureError as error:
                self._screen.note(error.message)
            else:
                return replace(decision, contents=contents, edits=False)

    def _finish_deciding(self) -> bool:
        """Whether to go on after a decision; raises what the decision raised."""
        task, self._deciding = self._deciding, None
        return task is None or task.cancelled() or task.result()

    async def _leave(self) -> FollowResult:
        """The state to leave with: the waiting loop and its proposals."""
        answer = await self._client.get_run(self._queued.project, self._queued.run)
        undecided, of_agents = tuple(self._view.proposals.values()), tuple(self._of_agents.values())
        return FollowResult(answer.run, answer.run.loop, undecided, of_agents)

    async def _abort(self) -> FollowResult | None:
        """Take the loop out of the queue; ask the executor to abort one that has begun: its end comes as an event."""
        self._aborted = True
        self._screen.stopping()
        project, run, sequence = self._queued.project, self._queued.run, self._queued.sequence
        if self._at_work < max(self._place.loop, self._given[0]):
            with contextlib.suppress(MissingError):
                for given in (given for given in self._given if given > self._at_work):
                    state = await self._client.cancel_command(project, run, loop=given)
                return FollowResult(state, await self._client.get_loop(project, run, sequence))
        await self._client.abort(project, run)
        return None


def agent_proposal(entry: entry_pb2.Entry) -> tuple[str, str] | None:
    """The run and the path of what an agent proposes, if an entry tells of that."""
    if entry.scheme != "event":
        return None
    payload = json.loads(entry.attributes_json or "{}").get("event", {}).get("payload", {})
    is_proposal = payload.get("change") == "proposal" and "agent" in payload
    return (str(payload["run"]), str(payload["path"])) if is_proposal else None


_PAST: Final = {DECISION_KIND_ACCEPTED: "accepted", DECISION_KIND_REJECTED: "rejected"}


def _decided_words(decision: proposal_pb2.ProposalDecision) -> str:
    """What somebody else has decided while it was asked here."""
    if decision.kind == DECISION_KIND_EXPIRED:
        return _EXPIRED
    past = _PAST.get(decision.kind, "")
    comment = f', "{safe_line(decision.comment, COMMENT_CHARS_MAX)}"' if past and decision.comment else ""
    return f"Decided in another terminal: {past}{comment}." if past else "Decided in another terminal."


def _decided_already(decision: str, principal: str) -> str:
    """The message for somebody whose decision came too late."""
    if decision == "expire":
        return _EXPIRED
    past = {"accept": "accepted", "reject": "rejected"}.get(decision)
    by = f": {past} by {safe_line(principal)}" if past else ""
    return f"Decided in another terminal{by}."


async def _settle(tasks: Iterable[asyncio.Task[object]]) -> None:
    pending = list(tasks)
    for task in pending:
        task.cancel()
    await asyncio.gather(*pending, return_exceptions=True)
