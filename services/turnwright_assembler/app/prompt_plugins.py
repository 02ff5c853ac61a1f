"""Plugins that edit prompts: each gets the prompt as it would be sent, and edits it with the five verbs.

They are called in sequence, after eviction, so that later ones see earlier edits. Their edits are recorded, and the
packet is assembled with these edits, now and in a replay. So plugins may be async, read clocks and files, and not be
deterministic. If one fails, no packet is made (PLUGIN_FAILED).
Source: rows OM22, OM25, OM26, OM31, OM35, OM36; architecture 4.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from turnwright_values.types import RequestKind, TurnRequest

from turnwright_assembler.sections.prompt_editor import PromptContext, PromptEditor, PromptPlugin
from turnwright_core.chat.prompt_edits import PromptEdit, PromptMessage
from turnwright_kit.plugin_calls import PluginCalls, PluginError


class PromptPlugins:
    """Calls the plugins that edit prompts."""

    def __init__(self, plugins: Sequence[PromptPlugin], deadline_s: float) -> None:
        """`deadline_s` limits all plugins of a prompt together, in seconds."""
        self._deadline_s = deadline_s
        self._calls = {one.plugin: PluginCalls(deadline_s) for one in plugins}
        self._plugins = tuple(plugins)

    def of(self, request: TurnRequest | None) -> tuple[PromptPlugin, ...]:
        """Those that are called for a turn with these settings, in the order of registration."""
        if request is None:
            return ()
        kind = request.kind or RequestKind.PRIMARY
        return tuple(one for one in self._plugins if kind in one.kinds)

    async def edits(
        self, messages: Sequence[PromptMessage], before: Sequence[PromptEdit], context: PromptContext
    ) -> tuple[PromptEdit, ...]:
        """The edits `before`, and those of the plugins; `messages` are those with `before`.

        Raises PLUGIN_FAILED, and the error of an edit that cannot be applied.
        """
        seen, edits = tuple(messages), tuple(before)
        ends_s = asyncio.get_running_loop().time() + self._deadline_s
        for one in self.of(context.request):
            editor = PromptEditor(one.plugin, seen, edits)
            seen, edits = await self._edited(one, editor, context, ends_s)
        return edits

    async def _edited(
        self, one: PromptPlugin, editor: PromptEditor, context: PromptContext, ends_s: float
    ) -> tuple[tuple[PromptMessage, ...], tuple[PromptEdit, ...]]:
        left_s = max(0.0, ends_s - asyncio.get_running_loop().time())
        failed: BaseException | None = None
        try:
            returned = await self._calls[one.plugin].call(one.function, editor, context, deadline_s=left_s)
        except PluginError as error:
            failed = error.fault
        # An edit that failed is the reason, whatever the plugin made of it.
        done = editor.close()
        if failed is None and returned is not None:
            failed = TypeError(
                f"it returned {type(returned).__name__}: edit the prompt with its methods, return nothing"
            )
        if failed is not None:
            raise one.failure("failed while it edited the prompt", failed)
        return done
