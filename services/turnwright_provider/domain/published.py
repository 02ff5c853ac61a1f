"""Published metadata of models that is missing in vendors' lists, for the vendors' own addresses.

A table by family, with the minimum where its models differ. The vendor's answer and the alias take precedence.
"""

from __future__ import annotations

import re
from typing import Final

from turnwright_values.types import Capabilities

from turnwright_provider.domain.model_info import UNKNOWN, ModelInfo

_TOOLS: Final = Capabilities(tools=True)
_SEES: Final = Capabilities(tools=True, images=True)
_REASONS: Final = Capabilities(tools=True, images=True, reasoning=True, response_format=True)

_FAMILIES: Final = (
    ("openai", r"gpt-5(?:\.\d)?-chat", ModelInfo(128_000, 16_384, _SEES)),
    ("openai", r"gpt-[5-9]", ModelInfo(400_000, 128_000, _REASONS)),
    ("openai", r"gpt-4\.1", ModelInfo(1_047_576, 32_768, _SEES)),
    ("openai", r"(?:chat)?gpt-4o", ModelInfo(128_000, 16_384, _SEES)),
    ("openai", r"gpt-4-turbo", ModelInfo(128_000, 4_096, _SEES)),
    ("openai", r"gpt-4", ModelInfo(8_192, 8_192, _TOOLS)),
    ("openai", r"gpt-3\.5-turbo", ModelInfo(16_385, 4_096, _TOOLS)),
    ("openai", r"o[134](?!-mini|-preview)|o[34]-mini", ModelInfo(200_000, 100_000, _REASONS)),
    ("anthropic", r"claude-", ModelInfo(200_000, 0, _SEES)),
    ("gemini", r"gemini-", ModelInfo(0, 0, _SEES)),
    ("deepseek", r"deepseek-", ModelInfo(128_000, 8_192, _TOOLS)),
    ("xai", r"grok-[4-9]", ModelInfo(256_000, 0, _SEES)),
    ("xai", r"grok-3", ModelInfo(131_072, 0, _TOOLS)),
    ("zai", r"glm-4\.[6-9]|glm-[5-9]", ModelInfo(200_000, 0, _TOOLS)),
    ("zai", r"glm-4\.5", ModelInfo(128_000, 0, _TOOLS)),
    ("perplexity", r"sonar", ModelInfo(128_000, 0, Capabilities(tools=False))),
    ("groq", r"(?:openai/gpt-oss|qwen/|meta-llama/|llama-)", ModelInfo(0, 0, _TOOLS)),
    ("cerebras", r"(?:gpt-oss|qwen-|zai-glm|llama)", ModelInfo(0, 0, _TOOLS)),
)
"""Vendor, how the names of its models begin, what holds for them; the first that fits counts."""


def published_info(vendor: str, model: str) -> ModelInfo:
    """What is published about a vendor's model; UNKNOWN if nothing is."""
    return next((info for name, pattern, info in _FAMILIES if name == vendor and re.match(pattern, model)), UNKNOWN)
