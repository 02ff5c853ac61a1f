"""Replies whose content may hold reasoning in `<think>` tags. Source: RD09."""

from __future__ import annotations

from abc import ABC
from collections.abc import Iterator

from turnwright_core.chat.deltas import AppendContent, Delta
from turnwright_provider.domain.model_call import Finish, VendorEvent
from turnwright_provider.domain.think_tags import ThinkRouter, ThinkTags, calls_in_reasoning
from turnwright_provider.domain.wires.json_fold import JsonFold


class RoutedFold(JsonFold, ABC):
    """Folds one reply; `think_tags` says which `<think>` in the content is reasoning."""

    def __init__(self, think_tags: ThinkTags) -> None:
        super().__init__()
        self._router = ThinkRouter(think_tags)

    def close(self) -> list[VendorEvent]:
        *deltas, finish = super().close()
        if isinstance(finish, Finish) and not finish.is_cut and (calls := calls_in_reasoning(self._router.unclosed)):
            deltas.append(AppendContent(calls))
        return [*deltas, finish]

    def _add_text(self, text_delta: str, place: int | None = None) -> Iterator[Delta]:
        del place
        self._text_chars += len(text_delta)
        yield from self._router.feed(self._content.feed(text_delta))

    def _last_content(self, text: str) -> list[Delta]:
        return [*self._router.feed(text), *self._router.end()]
