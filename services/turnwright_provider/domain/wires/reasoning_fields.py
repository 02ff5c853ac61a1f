"""Request fields for the amount of reasoning, which differ between services with chat completions.

Source: research/wire 2.1; the services' own references.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

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
