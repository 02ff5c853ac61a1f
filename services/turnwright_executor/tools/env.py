"""env: run a shell command that only looks. Source: rows RU009, RU163; decision C30."""

from __future__ import annotations

from turnwright_executor.tools.contract import Context, Done, Proposed, failed
from turnwright_executor.tools.running import Running
from turnwright_grammar import Command


class Env(Running):
    """Runs at once where the sandbox keeps the project as it is, else after acceptance.

    Limits alone cannot make the project read-only; so somebody has to look at each command then, and where nobody
    does, as in a yolo run, the command is refused (C30).
    """

    name = "env"

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Ask to run the command; refuse it where it would run unseen and could change the project."""
        if context.shell.keeps_read_only:
            return self._proposed(command, read_only=True)
        if context.yolo:
            return failed(
                "permission:403",
                "<env> promises to change nothing, which cannot be enforced here, and nobody reviews this run. "
                "Use <sh> where it is available, or <get> to read files.",
            )
        return self._proposed(command)
