"""`runs`: the runs of a project, as a table or as JSON lines."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from google.protobuf.timestamp_pb2 import Timestamp
from turnwright.types.v1 import run_pb2

from turnwright_cli.invocation import Invocation
from turnwright_cli.output import show_lines
from turnwright_cli.session import open_to_read
from turnwright_cli.status_words import run_words, title_of
from turnwright_cli.tables import Column, show_table

SUMMARY_CHARS = 60


async def runs(call: Invocation, *, watch: bool) -> int:
    if watch:
        from turnwright_cli.steering import watch_runs  # noqa: PLC0415 - not to list them

        return await watch_runs(call)
    return await list_runs(call)


async def list_runs(call: Invocation) -> int:
    async with open_to_read(call) as (client, name):
        found = [run async for run in client.list_runs(name)] if name else []
    if call.as_json:
        return show_lines(found)
    show_runs(found)
    return 0


def show_runs(found: Iterable[run_pb2.Run]) -> None:
    """A table of runs."""
    show_table(
        (
            Column("run", whole=True),
            *map(Column, ("status", "turns", "model", "changed")),
            Column("summary", SUMMARY_CHARS),
        ),
        (
            (
                run.run,
                run_words(run),
                str(run.turn),
                run.loop.settings.model or run.settings.model,
                _when(run.update_time),
                title_of(run),
            )
            for run in found
        ),
        empty="No runs yet. Start one with `turnwright act PROMPT`.",
    )


def _when(time: Timestamp) -> str:
    if not time.seconds:
        return ""
    return datetime.fromtimestamp(time.seconds).astimezone().strftime("%Y-%m-%d %H:%M")
