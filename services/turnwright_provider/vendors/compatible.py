"""The services that speak OpenAI's chat completions, and in what each of them differs.

    openai/gpt-5-mini    openrouter/anthropic/claude-sonnet-4.5    ollama/qwen3:8b    xai/grok-4

The first segment picks the row, the rest is the service's own name for the model. A service whose settings are missing
is inert: it is listed with what it lacks, and calls for it are refused.
Source: RU306, RU303; architecture 8, 15.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from turnwright_provider.domain.failures import FailureClass, failed
from turnwright_provider.domain.model_call import ModelCall, VendorEvent
from turnwright_provider.domain.wires.asking import Asking, by_effort, by_low_or_high, by_openrouter
from turnwright_provider.ports import VendorState


class Compatible(Struct, frozen=True):
    """One of them. Its variables are `{NAME}_BASE_URL` and `{NAME}_API_KEY`."""

    name: str
    hosted_url: str
    """Where a key without a base URL belongs to; empty where a base URL is always needed."""
    bare_path: str
    """The path of a base URL that has none; empty where such a URL is taken as it is."""
    asking: Asking = by_effort
    """In which fields of a request a model is asked to reason."""
    marks: bool = False
    """Whether it takes cache marks and passes them on."""

    @property
    def variables(self) -> tuple[str, str]:
        return f"{self.name.upper()}_BASE_URL", f"{self.name.upper()}_API_KEY"

    def base_url(self, given: str, key: str) -> str:
        """The URL that is called; empty when neither a URL nor a key says which."""
        if not given:
            return self.hosted_url if key else ""
        parts = urlsplit(given)
        return given if parts.path else urlunsplit(parts._replace(path=self.bare_path))

    def missing(self) -> str:
        """What to set so that it can be called."""
        url, key = self.variables
        either = f" or {key} (for {urlsplit(self.hosted_url).hostname})" if self.hosted_url else ""
        path = self.bare_path or "/v1"
        return f"Set {url} (an OpenAI-compatible server, with {path}){either}."


COMPATIBLE: Final = (
    Compatible("openai", "https://api.openai.com/v1", ""),
    Compatible("openrouter", "https://openrouter.ai/api/v1", "/api/v1", by_openrouter, marks=True),
    # Ollama's own clients are given a URL without a path.
    Compatible("ollama", "", "/v1"),
    Compatible("xai", "https://api.x.ai/v1", "/v1", by_low_or_high),
)
"""All of them."""


class UnconfiguredVendor:
    """Stands in for a vendor that cannot be called."""

    def __init__(self, state: VendorState) -> None:
        self._state = state

    def describe(self) -> VendorState:
        return self._state

    async def stream(self, call: ModelCall, attempt: int) -> AsyncGenerator[VendorEvent, None]:
        """Raise VendorError: callers look at `describe` first."""
        raise failed(FailureClass.INVALID, f"try {attempt} for {call.model}: {self._state.problem}")
        yield  # type: ignore[unreachable]  # makes this an async generator, as the port wants

    async def check(self, models: Sequence[str]) -> list[str]:
        return [self._state.problem for _ in models]
