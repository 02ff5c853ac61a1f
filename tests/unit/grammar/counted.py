"""How much the reading of a text costs, counted and not timed: characters that patterns and decoders read, and calls."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

from turnwright_grammar.scanner import TextScanner


class Cost:
    """Characters read and functions called so far."""

    def __init__(self) -> None:
        self.units = 0

    def called(self, frame: FrameType, event: str, _arg: object) -> None:
        """Count a call, as a profiler of sys.setprofile; a text that is read by itself was copied."""
        self.units += event in ("call", "c_call")
        if event == "call" and frame.f_code is TextScanner.__init__.__code__:
            self.units += len(frame.f_locals["text"])


class CountedPattern:
    """A pattern that counts what it reads: from where it begins to the end of its match, or of the text for none."""

    def __init__(self, pattern: re.Pattern[str], cost: Cost) -> None:
        self._pattern, self._cost = pattern, cost

    def __getattr__(self, name: str) -> Any:
        return getattr(self._pattern, name)

    def search(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None:
        found = self._pattern.search(text, pos, endpos)
        self._cost.units += (found.end() if found else min(len(text), endpos)) - pos
        return found

    def match(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> re.Match[str] | None:
        found = self._pattern.match(text, pos, endpos)
        self._cost.units += found.end() - pos if found else 1
        return found

    def finditer(self, text: str, pos: int = 0, endpos: int = sys.maxsize) -> Iterator[re.Match[str]]:
        while found := self.search(text, pos, endpos):
            yield found
            pos = found.end() + (found.end() == found.start())


@contextmanager
def counting(package: str) -> Iterator[Cost]:
    """Count what the modules of a package cost, by instruments in the place of their patterns."""
    cost = Cost()
    modules = [module for name, module in sys.modules.items() if name.startswith(package)]
    kept = [(module, name, value) for module in modules for name, value in vars(module).items() if _is_pattern(value)]
    for module, name, value in kept:
        setattr(module, name, CountedPattern(value, cost))
    before = sys.getprofile()
    sys.setprofile(cost.called)
    try:
        yield cost
    finally:
        sys.setprofile(before)
        for module, name, value in kept:
            setattr(module, name, value)


def _is_pattern(value: object) -> bool:
    return isinstance(value, re.Pattern)


def cost_of(package: str, read: Callable[[], object]) -> int:
    """What a reading costs, in characters and calls."""
    with counting(package) as cost:
        read()
    return cost.units
