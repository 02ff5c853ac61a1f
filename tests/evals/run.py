"""`make eval`: the table of evals.toml with written replies, in a home of its own. Options are those of `turnwright eval`."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from evals.played_model import PlayedModel  # noqa: E402 - after the path of tests


def surroundings(home: Path) -> dict[str, str]:
    """Nothing of the person's settings, and a home of its own."""
    others = {name: value for name, value in os.environ.items() if not name.startswith(("TURNWRIGHT_", "OPENAI_"))}
    # Nothing needs to be confined: the commands are those of our own replies.
    ours = {"TURNWRIGHT_SH_SANDBOX": "limits", "TURNWRIGHT_LAME_DUCK_S": "0", "XDG_CONFIG_HOME": str(home)}
    return {**others, **ours, "TURNWRIGHT_HOME": str(home)}


async def main() -> int:
    played = PlayedModel(HERE / "evals.toml")
    with tempfile.TemporaryDirectory(prefix="turnwright-evals-") as folder:
        async with played.server() as server:
            command = (sys.executable, "-m", "turnwright_cli", "eval", str(HERE / "evals.toml"), *sys.argv[1:])
            environment = {**surroundings(Path(folder)), **played.environment(server.url)}
            process = await asyncio.create_subprocess_exec(*command, env=environment)
            try:
                return await process.wait()
            except asyncio.CancelledError:
                # Ctrl-C went to the command too, which has something to report.
                return await process.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
