"""`watch RUN`: attach to a run and see what it does, until Ctrl-C. Nothing is changed, and leaving stops nothing."""

from __future__ import annotations

from collections.abc import Callable

from turnwright.types.v1 import run_pb2

from turnwright_cli.inbox import show_watch
from turnwright_cli.invocation import Invocation
from turnwright_cli.output import console
from turnwright_cli.render import TextScreen
from turnwright_cli.run_list import open_run
from turnwright_cli.screen import Screen
from turnwright_cli.status_words import run_words
from turnwright_client import RunView
from turnwright_client.client import loop_in
from turnwright_core.runs import LOOP_ENDED
from turnwright_core.wire.run_view import Event


async def watch_run(call: Invocation, *, run: str) -> int:
    async with open_run(call, run) as (client, project, found):
        screen = Screen() if call.as_json else TextScreen(console(), session=True)
        screen.begin(found, found.loop.sequence)
        screen.note(f"{run_words(found)}; Ctrl-C leaves, and the run goes on")
        events = client.watch(project, found.run, plans="operations", lost=screen.lost)
        try:
            await show_watch(call, events, _shown(screen, found))
        finally:
            screen.pause()
    return 0


def _shown(screen: Screen, run: run_pb2.Run) -> Callable[[Event], None]:
    """A function that shows an event: whichever loop is the current one, and each proposal that waits."""
    ended: set[int] = set()
    view = RunView()
    shown: set[str] = set()

    def show(event: Event) -> None:
        view.apply(event)
        loop = loop_in(event)
        if loop is not None:
            screen.begin(run, loop.sequence)
        screen.show(event)
        for path, proposal in view.proposals.items():
            if path not in shown:
                screen.propose(proposal)
        shown.clear()
        shown.update(view.proposals)
        has_ended = loop is not None and loop.status in LOOP_ENDED
        if loop is not None and has_ended and event.HasField("run_state") and loop.sequence not in ended:
            ended.add(loop.sequence)
            screen.end(event.run_state.run, loop)

    return show
