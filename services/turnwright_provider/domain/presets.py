"""Presets of known vendors: they only need a key, or for local servers a URL.

    openai/gpt-5-mini    openrouter/anthropic/claude-sonnet-4.5    ollama/qwen3:8b    deepseek/deepseek-chat

The first segment picks the vendor, the rest is its own name for the model. Each reads `{NAME}_BASE_URL`,
`{NAME}_API_KEY` and `{NAME}_API_KEY_FILE`, with our prefix or without.
Source: RU306, RU303; architecture 8, 15.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit, urlunsplit

from msgspec import Struct

from turnwright_core.json_text import JsonMapping

if TYPE_CHECKING:
    # Lazy: presets are read by every provider.
    from turnwright_core.models import Reasoning


ReasoningFields = Callable[["Reasoning"], JsonMapping]
"""From an amount to the fields that request it; none if the service cannot express that amount."""


def by_effort(amount: Reasoning) -> JsonMapping:
    """OpenAI's levels, which most services accept."""
    return {"reasoning_effort": "none" if amount.word == "off" else amount.word}


def by_low_or_high(amount: Reasoning) -> JsonMapping:
    """The two levels of xAI."""
    return {"reasoning_effort": "low" if amount.word in ("off", "low") else "high"}


def by_openrouter(amount: Reasoning) -> JsonMapping:
    """OpenRouter's object, which also takes a number, and which it translates for each model."""
    if amount.word == "off":
        return {"reasoning": {"enabled": False}}
    return {"reasoning": {"max_tokens": amount.tokens} if amount.effort is None else {"effort": amount.effort}}


def by_switch(amount: Reasoning) -> JsonMapping:
    """For DeepSeek, Z.ai and Moonshot: on or off."""
    return {"thinking": {"type": "disabled" if amount.word == "off" else "enabled"}}


def by_template(amount: Reasoning) -> JsonMapping:
    """The switch in chat templates of vLLM and llama.cpp: on or off."""
    return {"chat_template_kwargs": {"enable_thinking": amount.word != "off"}}


def by_prompt_mode(amount: Reasoning) -> JsonMapping:
    """Mistral's, which can only be raised."""
    return {} if amount.word == "off" else {"prompt_mode": "reasoning"}


class Preset(Struct, frozen=True):
    """A known vendor."""

    name: str
    hosted_url: str = ""
    """Where a key without a base URL belongs to; empty where a base URL is always needed."""
    wire: str = "chat"
    bare_path: str = ""
    """The default path of a base URL; empty: none."""
    own_path: str = ""
    """The prefix of the wire's paths; a base URL may end with it too."""
    chat_path: str = ""
    """The end of a base URL below which the vendor speaks chat completions, where these are not its wire."""
    asking: ReasoningFields = by_effort
    """In which fields chat completions ask a model to reason."""
    marks: bool = False
    """Whether it supports cache marks in chat completions."""
    reports_cost: bool = False
    """Whether its usage contains the cost."""
    more_keys: tuple[str, ...] = ()
    """Other variables that hold a key of this vendor."""

    @property
    def url_variable(self) -> str:
        return f"{self.name.upper()}_BASE_URL"

    @property
    def key_variable(self) -> str:
        return f"{self.name.upper()}_API_KEY"

    @property
    def usual_path(self) -> str:
        """How its base URLs end; empty if unknown."""
        return self.bare_path or urlsplit(self.hosted_url).path.rstrip("/")

    def base_url(self, given: str, *, has_key: bool) -> str:
        """The URL to call; empty if neither a URL nor a key selects one."""
        if not given:
            return self.hosted_url if has_key else ""
        parts = urlsplit(given)
        return urlunsplit(parts._replace(path=parts.path.removesuffix(self.own_path) or self.bare_path))

    def wire_of(self, url: str) -> str:
        speaks_chat = bool(self.chat_path) and url.partition("?")[0].endswith(self.chat_path)
        return "chat" if speaks_chat else self.wire


PRESETS: Final = (
    Preset("anthropic", "https://api.anthropic.com/v1", "anthropic", bare_path="/v1"),
    Preset("openai", "https://api.openai.com/v1"),
    Preset(
        "openrouter",
        "https://openrouter.ai/api/v1",
        bare_path="/api/v1",
        asking=by_openrouter,
        marks=True,
        reports_cost=True,
    ),
    # Ollama's own clients are given a URL without a path, or its API's.
    Preset("ollama", wire="ollama", own_path="/api", chat_path="/v1"),
    Preset(
        "gemini",
        "https://generativelanguage.googleapis.com/v1beta",
        wire="gemini",
        bare_path="/v1beta",
        more_keys=("GOOGLE_API_KEY",),
    ),
    Preset("xai", "https://api.x.ai/v1", bare_path="/v1", asking=by_low_or_high, reports_cost=True),
    Preset("deepseek", "https://api.deepseek.com/v1", bare_path="/v1", asking=by_switch),
    Preset("groq", "https://api.groq.com/openai/v1", bare_path="/openai/v1"),
    Preset("mistral", "https://api.mistral.ai/v1", bare_path="/v1", asking=by_prompt_mode),
    Preset("zai", "https://api.z.ai/api/paas/v4", asking=by_switch, more_keys=("ZHIPUAI_API_KEY",)),
    Preset("together", "https://api.together.xyz/v1", bare_path="/v1"),
    Preset("cerebras", "https://api.cerebras.ai/v1", bare_path="/v1"),
    Preset("perplexity", "https://api.perplexity.ai", reports_cost=True),
    Preset("fireworks", "https://api.fireworks.ai/inference/v1", bare_path="/inference/v1"),
    Preset("moonshot", "https://api.moonshot.ai/v1", bare_path="/v1", asking=by_switch),
    Preset("huggingface", "https://router.huggingface.co/v1", bare_path="/v1", more_keys=("HF_TOKEN",)),
    Preset("vllm", bare_path="/v1", asking=by_template),
    Preset("llamacpp", bare_path="/v1", asking=by_template),
    Preset("lmstudio", bare_path="/v1"),
    Preset("litellm", bare_path="/v1"),
)

WIRES: Final = ("anthropic", "chat", "gemini", "ollama", "responses")
"""Names of wires: each is a module in `wires`."""

NAMELESS: Final = Preset("")
"""Defaults for an endpoint without a preset."""

BY_NAME: Final[Mapping[str, Preset]] = {preset.name: preset for preset in PRESETS}


def is_own_address(vendor: str, url: str) -> bool:
    """Whether a vendor is called at its own address; published metadata only applies there."""
    preset = BY_NAME.get(vendor, NAMELESS)
    return bool(preset.hosted_url) and urlsplit(preset.hosted_url).netloc == urlsplit(url).netloc
