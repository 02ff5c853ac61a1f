"""Where a followed loop is shown: what every screen is told, and the screen of `--json`.

With `--json` the messages of WatchRun are printed, and nothing else. The last line is always a `run_state` whose
`loop.status` says how the loop ended, or 202 if a proposal waits.
"""

from __future__ import annotations

from collections.abc import Callable

from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import entry_pb2, loop_pb2, plan_pb2, proposal_pb2, run_pb2

from turnwright_cli.changes import FileChanges
from turnwright_cli.output import to_line
from turnwright_core.errors import TurnwrightError
from turnwright_core.wire.run_view import Event


class Screen:
    """Where a followed loop is shown. What a screen does not define is nothing to it."""

    def begin(self, run: run_pb2.Run, sequence: int) -> None:
        """The loop that will be shown."""

    def show(self, event: Event) -> None:
        """One event of the run, in order."""

    def lacks(self, entry: entry_pb2.Entry) -> bool:  # noqa: ARG002 - for those who know
        """Whether the whole body of an entry is needed, of which the event has only the beginning."""
        return False

    def lacks_plan(self, plan: plan_pb2.Plan) -> bool:  # noqa: ARG002 - as above
        """Whether the previous version is needed to show what changed in a plan."""
        return False

    def knew_plan(self, plan: plan_pb2.Plan) -> None:
        """The version before."""

    def propose(self, proposal: proposal_pb2.Proposal, *, whole: bool = False) -> None:
        """A proposal that is about to be decided; long texts are cut unless all is wanted."""

    def part(self, title: str, diff: str) -> None:
        """A part of a proposal that is about to be decided."""

    def note(self, text: str) -> None:
        """A sentence of the command itself."""

    def lost(self, error: TurnwrightError) -> None:
        """The services do not answer; they are asked again."""

    def pause(self) -> None:
        """Release the terminal for a prompt, or for the end."""

    def stopping(self) -> None:
        """The person has asked to stop the loop."""

    def end(self, run: run_pb2.Run, loop: loop_pb2.Loop) -> None:
        """The loop ended, or waits for a decision that this command cannot take."""

    def changed(self, changes: FileChanges) -> None:
        """What the loop changed in files, after its end."""


class JsonScreen(Screen):
    """Prints every event. Notes for people go nowhere, or to standard error by the caller."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line = write_line
        self._last: Event | None = None

    def show(self, event: Event) -> None:
        self._last = event
        self._write_line(to_line(event))

    def end(self, run: run_pb2.Run, loop: loop_pb2.Loop) -> None:
        """Repeat the state as a run_state, unless the last line was that."""
        last = self._last
        printed = last is not None and last.WhichOneof("event") == "run_state" and last.run_state.loop
        if printed and (printed.sequence, printed.status) == (loop.sequence, loop.status):
            return
        cursor, time = (last.cursor, last.time) if last is not None else (None, None)
        self.show(Event(cursor=cursor, time=time, run_state=event_pb2.RunState(run=run, loop=loop)))
