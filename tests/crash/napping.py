"""A tool plugin that takes as long as a test wants: until there is a file `go` beside the home."""

import asyncio
import os
from pathlib import Path

from turnwright_executor.plugins import Done, PluginTool


class Nap(PluginTool):
    name = "nap"
    doc = "## <nap/> - sleeps"

    async def prepare(self, command, context):
        go = Path(os.environ["TURNWRIGHT_HOME"]).parent / "go"
        while not go.exists():  # noqa: ASYNC110 - another process makes it
            await asyncio.sleep(0.01)
        return Done("slept")


def register(registry):
    registry.tool(Nap())
