"""Where a followed loop is shown: what every screen is told, and the screen of `--json`.

With `--json` the messages of WatchRun are printed, and a `notice` of what the loop changed. The last line is always a
`run_state` whose `loop.status` says how the loop ended, or 202 if a proposal waits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from turnwright.executor.v1 import event_pb2
from turnwright.types.v1 import entry_pb2, loop_pb2, plan_pb2, proposal_pb2, run_pb2

from turnwright_cli.changes import FileChanges, change_lines
from turnwright_cli.output import complain, to_line
from turnwright_cli.plain import safe_line
from turnwright_core.errors import TurnwrightError
from turnwright_core.text import cut_bytes
from turnwright_core.wire.run_view import Event

NOTICE_BYTES_MAX: Final = 4096
"""Longest text of a notice, in bytes of UTF-8."""

CHANGES: Final = "changes"
"""Source of the notice of what a loop changed."""


class Screen:
    """Where a followed loop is shown. What a screen does not define is nothing to it.

    It is told the loop (`begin`), then each event in order, what the command itself says (`note`), that the services do
    not answer (`lost`), that the person wants to stop (`stopping`), that a message of the
    queue is worked on (`began`), how earlier loops have ended (`passed`), and how the
    loop stands when following ends.
    """

    def begin(self, run: run_pb2.Run, sequence: int, first: int = 0) -> None: ...
    def show(self, event: Event) -> None: ...
    def note(self, text: str) -> None: ...
    def lost(self, error: TurnwrightError) -> None: ...
    def stopping(self) -> None: ...
    def end(self, run: run_pb2.Run, loop: loop_pb2.Loop) -> None: ...
    def began(self, loop: loop_pb2.Loop) -> None: ...
    def passed(self, run: run_pb2.Run, loop: loop_pb2.Loop) -> None: ...
    def changed(self, changes: FileChanges) -> None: ...
    def knew_plan(self, plan: plan_pb2.Plan) -> None: ...
    def part(self, title: str, diff: str) -> None: ...

    def lacks(self, entry: entry_pb2.Entry) -> bool:  # noqa: ARG002 - for those who know
        """Whether the whole body of an entry is needed, of which the event has only the beginning."""
        return False

    def lacks_plan(self, plan: plan_pb2.Plan) -> bool:  # noqa: ARG002 - as above
        """Whether the previous version is needed to show what changed in a plan; `knew_plan` gets it."""
        return False

    def propose(self, proposal: proposal_pb2.Proposal, *, whole: bool = False) -> None:
        """A proposal that is about to be decided; long texts are cut unless all is wanted. `part` has a part of it."""

    def pause(self) -> None:
        """Release the terminal for a prompt, or for the end."""


def lost_words(error: TurnwrightError) -> str:
    return f"{safe_line(error.message.partition(': ')[0]).rstrip('.')}. The run is shown again once it does."


class JsonScreen(Screen):
    """Prints every event. Notes for people go nowhere, or to standard error by the caller."""

    def __init__(self, write_line: Callable[[str], None]) -> None:
        self._write_line = write_line
        self._last: Event | None = None
        self._is_lost = False

    def lost(self, error: TurnwrightError) -> None:
        if not self._is_lost:
            self._is_lost = True
            complain(lost_words(error))

    def show(self, event: Event) -> None:
        self._is_lost, self._last = False, event
        self._write_line(to_line(event))

    def changed(self, changes: FileChanges) -> None:
        """A notice, and the state once more: that is always the last line."""
        last = self._last
        text = cut_bytes("\n".join(change_lines(changes)), NOTICE_BYTES_MAX)
        self.show(Event(notice=event_pb2.Notice(level=event_pb2.NOTICE_LEVEL_INFO, text=text, source=CHANGES)))
        if last is not None:
            self.show(last)

    def end(self, run: run_pb2.Run, loop: loop_pb2.Loop) -> None:
        """Repeat the state as a run_state, unless the last line was that."""
        last = self._last
        printed = last is not None and last.WhichOneof("event") == "run_state" and last.run_state.loop
        if printed and (printed.sequence, printed.status) == (loop.sequence, loop.status):
            return
        cursor, time = (last.cursor, last.time) if last is not None else (None, None)
        self.show(Event(cursor=cursor, time=time, run_state=event_pb2.RunState(run=run, loop=loop)))
