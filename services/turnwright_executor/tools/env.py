"""env: run a read-only shell command. Source: rows RU009, RU163; decision C30."""

from __future__ import annotations

from turnwright_executor.tools.contract import Context, Done, Proposed, failed
from turnwright_executor.tools.running import Running
from turnwright_grammar.reply import Command


class Env(Running):
    """Runs at once if the sandbox keeps the project unchanged, else after acceptance.

    Limits alone cannot make the project read-only; then somebody must approve each command, and if nobody does, as in a
    yolo run, the command is refused (C30).
    """

    name = "env"

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Propose to run the command; refuse it if it would run unapproved and could change the project."""
        if context.shell.keeps_read_only:
            return self._proposed(command, read_only=True)
        if context.yolo:
            return failed(
                "permission:403",
                "<env> promises to change nothing, which cannot be enforced here, and nobody reviews this run. "
                "Use <sh> where it is available, or <get> to read files.",
            )
        return self._proposed(command)
