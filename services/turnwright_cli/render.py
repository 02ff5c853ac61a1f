"""What a person sees of a run: turns as they happen, each command with its outcome, retries, costs, the end.

Everything that comes from a model, a file or a tool is stripped of control characters before it is printed. In a pipe
the same lines come without styles and without anything that moves a cursor.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from rich.console import Console, RenderableType
from rich.text import Text
from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import entry_pb2, loop_pb2, plan_pb2, proposal_pb2, run_pb2, session_command_pb2

from turnwright_cli.changes import FileChanges, change_lines
from turnwright_cli.effects import diff_view, effect_lines
from turnwright_cli.live_output import CONTENT, REASONING, LiveOutput, OutputLine, ShownReplies
from turnwright_cli.markdown_stream import MarkdownStream
from turnwright_cli.output import complain, put
from turnwright_cli.plain import safe_line, safe_text
from turnwright_cli.plans import PlanChanges, panel_lines
from turnwright_cli.records import BODY_CHARS, SETTLED, end_line, ends_loop, figures_line, record_line, session_line
from turnwright_cli.screen import Screen, lost_words
from turnwright_cli.status_line import StatusLine
from turnwright_cli.status_words import turn_heading, turn_words, went_well
from turnwright_core.errors import TurnwrightError
from turnwright_core.runs import PROPOSED
from turnwright_core.streams import record_of_channel
from turnwright_core.text import scheme_of
from turnwright_core.wire.run_view import Event
from turnwright_core.wire.times import seconds_from_pb

# What stands at the bottom of a session while a task is worked on: the plan, the queue, and what is being typed.

QUEUE_LINES_MAX: Final = 3
"""Messages of the queue that are shown."""


class Panel:
    """Its lines, each within the width of the console."""

    def __init__(self, console: Console, plans: Callable[[], PlanChanges], *, session: bool) -> None:
        self._console = console
        self._plans = plans
        self._session = session
        self._queue: list[str] = []
        self.typed = ""

    def wait(self, queue: Iterable[session_command_pb2.QueuedCommand]) -> None:
        """These commands wait in the queue now."""
        self._queue = [safe_line(one.preview) for one in queue]

    def above(self) -> list[str]:
        """The plan and the queue, in a session on a terminal with room for them."""
        width = self._console.width - 1
        queue = [f"queued {number}: {one}"[:width] for number, one in enumerate(self._queue[:QUEUE_LINES_MAX], 1)]
        return self._plan_lines() + queue if self._session else []

    def below(self) -> list[str]:
        """The end of the line that is being typed."""
        room = max(1, self._console.width - 4)
        return [f"> {safe_line(self.typed)[-room:]}"] if self.typed else []

    def progress(self) -> str:
        """How far the plan is, unless its lines show it."""
        return "" if self._plan_lines() else self._plans().progress()

    def _plan_lines(self) -> list[str]:
        if not self._session:
            return []
        return panel_lines(self._plans().latest(), self._console.width - 1, self._console.height // 3)


OUTPUT_CHARS: Final = 400
"""Longest line of a command's output where there is no terminal whose width says it."""
OUTPUT_CHARS_MIN: Final = 20
PROMPT_CHARS: Final = 200
"""Length of a message in a line that says that it is worked on now."""
STOPPING: Final = "Stopping the run; Ctrl-C again leaves at once."


class TextScreen(Screen):
    """Lines for people, on a terminal or in a pipe."""

    def __init__(self, console: Console, *, session: bool = False) -> None:
        """`session`: commands are not shown as the model wrote them, only by what became of them."""
        self._console = console
        self._session = session
        self._run = ""
        self._forget()
        self._panel = Panel(console, lambda: self._plans, session=session)
        self._status = StatusLine(console, self._panel.above, self._panel.below)
        self._channels: dict[str, list[entry_pb2.Entry]] = {}
        """Output in a snapshot, by the record of its command."""
        self._snapshot: list[event_pb2.Snapshot] = []
        self._streaming = ""
        self._mid_line = False
        self._line_feeds = ""
        self._is_stopping = False
        self._is_lost = False
        self._icons = "utf" in (console.encoding or "").lower()
        draws = session and console.is_terminal and not console.is_dumb_terminal
        self._markdown = MarkdownStream(console, self._panel.below) if draws else None

    def _forget(self) -> None:
        """Nothing of a run was shown."""
        self._sequence = self._first = self._turn = self._strikes = self._failures = 0
        self._failed, self._next_try = "", 0.0
        self._plans = PlanChanges(whole=not self._console.is_terminal)
        self._replies = ShownReplies()
        self._reported: set[str] = set()
        self._output = LiveOutput(self._output_line)

    def begin(self, run: run_pb2.Run, sequence: int, first: int = 0) -> None:
        """Show the loops from the first one to this one; 0: only this one. Runs have turns and paths of their own."""
        if run.run != self._run:
            self._run = run.run
            self._forget()
            self._panel.wait(())
            waits = ", queued behind another task" if 0 < run.loop.sequence < sequence and run.loops_queued else ""
            self._line(Text(f"run {safe_line(run.run)} in {safe_line(run.project)}{waits}", style="dim"))
            self._replies.begin(run.turn)
        self._sequence, self._first = sequence, first or sequence
        self._is_stopping = False

    def show(self, event: Event) -> None:
        """Print an event for a person; most kinds print nothing."""
        self._is_lost = False
        kind = event.WhichOneof("event")
        act = _SHOWN.get(kind or "")
        if act is not None:
            act(self, event)

    def lacks(self, entry: entry_pb2.Entry) -> bool:
        """Whether the end of a reply is in neither the truncated entry nor earlier events."""
        return self._is_of_loop(entry) and self._replies.lacks(entry)

    def lacks_plan(self, plan: plan_pb2.Plan) -> bool:
        return self._plans.lacks(plan)

    def knew_plan(self, plan: plan_pb2.Plan) -> None:
        self._plans.knew(plan)

    def propose(self, proposal: proposal_pb2.Proposal, *, whole: bool = False) -> None:
        is_terminal = self._console.is_terminal
        for part in effect_lines(proposal, styled=is_terminal, whole=whole or not is_terminal):
            self._line(part)

    def part(self, title: str, diff: str) -> None:
        self._line(Text(title, style="bold yellow"))
        if diff:
            self._line(diff_view(diff, styled=self._console.is_terminal))

    def note(self, text: str) -> None:
        self._line(Text(text, style="yellow"))

    def lost(self, error: TurnwrightError) -> None:
        """Said once for each time that the services are away."""
        if not self._is_lost:
            self._is_lost = True
            self._warn(lost_words(error), "yellow")
            self._status.waiting("trying again")

    def aside(self, text: str, style: str = "dim") -> None:
        """Say something that is not of the run, above a text that is being written."""
        self._status.hide()
        if not (self._markdown and self._streaming == CONTENT):
            self._break()
        put(self._console, Text(text, style=style), wrap=True)

    def typing(self, text: str) -> None:
        """What the person has typed so far, to be shown at the bottom."""
        self._panel.typed = text
        if self._markdown and self._mid_line and self._streaming == CONTENT:
            self._markdown.redraw()
        elif not self._mid_line:
            self._status.redraw()

    def queue_updated(self, event: Event) -> None:
        self._panel.wait(event.queue_updated.commands)

    def began(self, loop: loop_pb2.Loop) -> None:
        """A message that was waiting is worked on now."""
        self._line(Text(f"> {safe_line(loop.prompt, PROMPT_CHARS)}", style="dim"))

    def notice(self, event: Event) -> None:
        notice = event.notice
        source = f"{safe_line(notice.source)}: " if notice.source else ""
        styles = {event_pb2.NOTICE_LEVEL_ERROR: "bold red", event_pb2.NOTICE_LEVEL_WARNING: "yellow"}
        self._warn(f"{source}{safe_line(notice.text)}", styles.get(notice.level, "cyan"))

    def _warn(self, text: str, style: str) -> None:
        """What hinders the run, where it is read: in a pipe on standard error."""
        if self._console.is_terminal:
            self._line(Text(text, style=style))
        else:
            complain(text)

    def end(self, run: run_pb2.Run, loop: loop_pb2.Loop) -> None:
        if self._session and loop.status == PROPOSED:
            return self.pause()
        # In a session the answer says that all went well.
        if not (self._session and loop.summary and went_well(loop)):
            self._line(end_line(loop, self._strikes))
        if loop.summary and not self._replies.ended_with(loop.summary):
            self.pause()
            self._answer(safe_text(loop.summary))
        names = [] if self._session else [f"run {safe_line(run.run)}"]
        return self._line(figures_line(loop, *names, icons=self._icons))

    passed = end

    def _answer(self, text: str) -> None:
        if self._markdown:
            self._markdown.feed(text)
            self._markdown.finish()
        else:
            put(self._console, Text(text))

    def stopping(self) -> None:
        self._is_stopping = True
        if self._session:
            self.pause()
            self._status.waiting(STOPPING)
        else:
            self.note(STOPPING)

    def changed(self, changes: FileChanges) -> None:
        for line in () if changes.is_empty and self._session else change_lines(changes):
            self._line(Text(line))

    def pause(self) -> None:
        self._status.clear()
        self._break()

    def _line(self, what: RenderableType, *, wrap: bool = True) -> None:
        self.pause()
        put(self._console, what, wrap=wrap)

    def _break(self) -> None:
        if self._mid_line:
            if self._markdown and self._streaming == CONTENT:
                self._markdown.finish()
            else:
                self._console.print()
            self._mid_line = False
        self._streaming = self._line_feeds = ""

    def turn_started(self, event: Event) -> None:
        self._begin_turn(event.turn_started.turn.number)
        self._wait("waiting for the model")

    def _begin_turn(self, number: int) -> None:
        if number > self._turn:
            self._turn = number
            self._failed = ""
            width = self._console.width if self._console.is_terminal else 0
            self._line(Text(turn_heading(number, width, icons=self._icons), style="bold"))

    def started(self, event: Event) -> None:
        """Show a repeated attempt at a reply from its beginning."""
        self._begin_turn(event.stream_started.turn)
        if self._replies.started(event.stream_started.turn):
            self.note("The reply begins again.")

    def delta(self, event: Event) -> None:
        turn, self._failed = event.stream_delta.turn, ""
        for delta in event.stream_delta.deltas:
            kind = delta.WhichOneof("change")
            if kind == "take_back":
                # What stands on a terminal stays there.
                self._replies.took_back(turn, delta.take_back.chars)
            elif kind in (CONTENT, REASONING):
                text = getattr(delta, kind)
                self._replies.grew(turn, kind, text)
                self._print(kind, text)

    def _print(self, kind: str, raw: str) -> None:
        if raw and self._streaming not in ("", kind):
            self._break()
        text = safe_text(raw)
        if self._session:
            # Whether empty lines behind a text stand within it is only known once it goes on.
            text = self._line_feeds + text if self._mid_line else text.lstrip("\n")
            whole, text = text, text.rstrip("\n")
            self._line_feeds = whole[len(text) :]
        if not text or self._is_stopping:
            return
        self._status.clear()
        self._streaming = kind
        if self._markdown and kind == CONTENT:
            self._markdown.feed(text)
            self._mid_line = True
            return
        style = "italic dim" if kind == REASONING else "none"
        put(self._console, Text(text, style=style), end="")
        self._mid_line = not text.endswith("\n")

    def _catch_up(self, turn: int, kind: str, whole: str) -> None:
        """Show the part of a turn's text, known up to here, that was not shown yet."""
        if rest := self._replies.rest(turn, kind, whole):
            if rest == whole:
                self._break()
            self._begin_turn(turn)
            self._print(kind, rest)

    def entry(self, event: Event) -> None:
        """A new or changed entry: one line if it is a command that has just been settled."""
        kind = event.WhichOneof("event")
        if kind == "message_updated":
            self._entry(event.message_updated.entry)
            return
        entry = event.message_added.entry
        if place := record_of_channel(entry.path):
            # Of a command that was quick the first that is told of its output is all of it.
            self._channels.setdefault(place[0], []).append(entry)
        self._entry(entry)

    def snapshot(self, event: Event) -> None:
        """After a reconnect: text that was missed, commands that were settled, output of running ones."""
        part = event.snapshot
        self._snapshot = [*(self._snapshot if part.part else ()), part]
        if not part.last:
            return
        parts, self._snapshot = self._snapshot, []
        self._panel.wait(part.queue)
        entries = [entry for one in parts for entry in one.entries]
        partials = [one.partial for one in parts if one.HasField("partial")]
        self._replies.jumped()
        self._plan_lines(self._plans.snapshot(plan for one in parts for plan in one.plans))
        for entry in entries:
            if place := record_of_channel(entry.path):
                self._channels.setdefault(place[0], []).append(entry)
        thoughts = {entry.turn: entry for entry in entries if scheme_of(entry.path) == "reasoning"}
        for entry in entries:
            # The order of a snapshot has what the model thought behind what it said.
            if scheme_of(entry.path) == "assistant" and entry.turn in thoughts:
                self._entry(thoughts[entry.turn])
            self._entry(entry)
        self._channels.clear()
        if partials:
            self._catch_up(part.partial.turn, REASONING, "".join(piece.reasoning for piece in partials))
            self._catch_up(part.partial.turn, CONTENT, "".join(piece.content for piece in partials))

    def output(self, event: Event) -> None:
        """Output of a command as it arrives; of much output only its amount, until the command ends."""
        self._output.grew(event.output_appended)
        if self._output.hidden():
            self._status.counting(self._output.hidden)

    def _output_line(self, line: OutputLine) -> None:
        room = self._console.width if self._console.is_terminal else OUTPUT_CHARS
        shown = Text(f"  {'│' if self._icons else '|'} {line.text}", style="dim red" if line.is_error else "dim")
        shown.truncate(max(OUTPUT_CHARS_MIN, room - 1), overflow="ellipsis" if self._icons else "crop")
        self._line(shown, wrap=False)

    def plan_updated(self, event: Event) -> None:
        self._plan_lines(self._plans.updated(event.plan_updated))

    def plan_removed(self, event: Event) -> None:
        self._plan_lines(self._plans.removed(event.plan_removed))

    def _plan_lines(self, lines: Iterable[str]) -> None:
        for line in lines:
            self._line(Text(f"  {line}", style="cyan"))

    def progress(self, event: Event) -> None:
        """Progress: a reason to try again is printed once, anything else is shown only while it lasts."""
        progress = event.run_progress
        detail = safe_line(progress.detail, BODY_CHARS)
        if progress.phase == event_pb2.RunProgress.PHASE_RETRYING:
            self._retry(detail, seconds_from_pb(progress.wait))
        elif not self._mid_line:
            is_asking = progress.phase == event_pb2.RunProgress.PHASE_THINKING
            self._wait(f"waiting for {detail}" if is_asking else detail)

    def _retry(self, why: str, wait_s: float) -> None:
        if why != self._failed:
            self._line(Text(f"{'↻' if self._icons else 'retry'} {why}: next try in {wait_s:.1f} s", style="yellow"))
            self._failed, self._failures = why, 0
        self._failures += 1
        self._next_try = time.monotonic() + wait_s
        self._status.counting(self._tries)

    def _tries(self) -> str:
        left = self._next_try - time.monotonic()
        return f"try {self._failures + 1}" + (f" in {left:.0f} s" if left > 0 else ": waiting for the model")

    def _wait(self, text: str) -> None:
        """Say what is waited for, and how far the plan is, unless the panel shows it."""
        self._status.waiting(", ".join(filter(None, (text, self._panel.progress()))))

    def turn_finished(self, event: Event) -> None:
        self._strikes = event.turn_finished.turn.result.strikes
        # In a session the end says it for the whole task.
        if not self._session:
            words = turn_words(event.turn_finished.turn)
            self._line(Text("  " + (" · " if self._icons else ", ").join(words), style="dim"))

    def _entry(self, entry: entry_pb2.Entry) -> None:
        if not self._is_of_loop(entry):
            return
        if text := self._replies.text_of(entry):
            self._catch_up(*text, entry.body)
        elif scheme_of(entry.path) == "log":
            self._command(entry)
        else:
            self._output.entered(entry)

    def _is_of_loop(self, entry: entry_pb2.Entry) -> bool:
        return (not entry.loop or self._first <= entry.loop <= self._sequence) and entry.turn > 0

    def _command(self, entry: entry_pb2.Entry) -> None:
        if entry.state not in SETTLED or entry.path in self._reported:
            return
        self._reported.add(entry.path)
        for channel in self._channels.pop(entry.path, ()):
            self._output.entered(channel, is_over=True)
        self._output.ended(entry.path)
        if self._session:
            line = session_line(entry, icons=self._icons)
        else:
            line = None if ends_loop(entry) else record_line(entry, icons=self._icons)
        if line is not None:
            self._line(line)


_SHOWN: Final[Mapping[str, Callable[[TextScreen, Event], None]]] = {
    "snapshot": TextScreen.snapshot,
    "turn_started": TextScreen.turn_started,
    "stream_started": TextScreen.started,
    "stream_delta": TextScreen.delta,
    "turn_finished": TextScreen.turn_finished,
    "message_added": TextScreen.entry,
    "message_updated": TextScreen.entry,
    "plan_updated": TextScreen.plan_updated,
    "plan_removed": TextScreen.plan_removed,
    "notice": TextScreen.notice,
    "run_progress": TextScreen.progress,
    "output_appended": TextScreen.output,
    "queue_updated": TextScreen.queue_updated,
}
"""What each kind of event prints; the others are for programs."""
