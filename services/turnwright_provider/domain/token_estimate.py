"""Estimates the input tokens of a call from its text, for models whose tokenizer is not at hand.

A byte-pair tokenizer makes one token of most words with the space before them, and of most runs of punctuation; digits
are grouped by three, and scripts without spaces take a token per character. So the classes of characters predict the
count of OpenAI's o200k within about 10 %, for code, prose and data. Other tokenizers differ by a factor, and vendors
add text; both are constant for a family of models, and were measured on recorded requests. Source: research/wire 5;
issue 15.4.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from math import ceil
from typing import Final

from msgspec import Struct

from turnwright_core.chat.message import Image, Message
from turnwright_provider.domain.model_call import ModelCall, ToolSpec

IMAGE_TOKENS: Final = 1000
"""Estimated tokens of an image. Vendors count between 85 and 1,600, by its size in pixels."""

MESSAGE_TOKENS: Final = 4
"""Tokens that a chat template adds to each message."""

CALL_TOKENS: Final = 12
"""Tokens that it adds to each call and its result."""

SAMPLES: Final = 16
SAMPLE_CHARS: Final = 2048
"""A text of more than this many samples of this many code points is estimated by them: it would take too long."""

KEPT_CHARS: Final = 4096
"""Length from which the estimate of a text is cached, in code points: each run begins with the same instructions."""

# Weights by kind of characters, fitted to o200k over source code, prose, configuration and JSON.
_SPACED_WORD: Final = re.compile(r" [A-Za-z]")
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_LONG_WORD: Final = re.compile(r"[a-z]{9,}")
_DIGITS: Final = re.compile(r"[0-9]{1,3}")
_NEWLINES: Final = re.compile(r"[\r\n]+")
_PUNCTUATION: Final = re.compile(r"[!-/:-@\[-`{-~]+")
_CONTROLS: Final = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_NOT_ASCII: Final = re.compile(r"[^\x00-\x7f]+")
_ALPHABET: Final = re.compile("[\u00c0-\u06ff]")
_SYLLABLES: Final = re.compile("[\u0900-\u0dff\u3000-\ud7ff]")
_ASTRAL: Final = re.compile("[\U00010000-\U0010ffff]")


class ModelFamily(Struct, frozen=True):
    """Token counts of a family of models.

    `scale` is the number of tokens for one of o200k. The vendor adds `base` tokens to a call, `tools_base` more to one
    with tools and `each_tool` for each; `schema_scale` is the factor for a tool's JSON Schema.
    """

    scale: float = 1.0
    base: int = 5
    tools_base: int = 60
    each_tool: int = 0
    schema_scale: float = 1.0


_FAMILIES: Final = (
    (re.compile(r"claude-[a-z]+-(?:4[-.][5-9]|[5-9])(?:\D|$)"), ModelFamily(1.1, 10, 465, 38)),
    (re.compile(r"claude"), ModelFamily(1.12, 10, 300, 38)),
    (re.compile(r"gpt-oss"), ModelFamily(1.0, 65, 70)),
    (re.compile(r"gpt-[5-9]"), ModelFamily(1.0, 5, 75)),
    (re.compile(r"gpt-|(?:^|/)o\d"), ModelFamily(1.0, 5, 10, 0, 0.5)),
    (re.compile(r"grok"), ModelFamily(1.0, 10, 230)),
    (re.compile(r"deepseek"), ModelFamily(1.0, 5, 240)),
    (re.compile(r"glm", re.IGNORECASE), ModelFamily(1.0, 8, 115)),
    (re.compile(r"gemini|gemma"), ModelFamily(1.0, 2, 0, 0, 0.8)),
    (re.compile(r"mistral|magistral|ministral|devstral|codestral"), ModelFamily(1.05, 8, 50)),
    (re.compile(r"llama", re.IGNORECASE), ModelFamily(1.0, 30, 60)),
)  # fmt: skip
"""The first that a model's name matches."""

_OTHERS: Final = ModelFamily()


@lru_cache(maxsize=64)
def family_of(model: str) -> ModelFamily:
    """The family of a model, by the vendor's own name for it."""
    return next((family for pattern, family in _FAMILIES if pattern.search(model)), _OTHERS)


def estimate_tokens(text: str) -> float:
    """Estimated o200k tokens of a text; a long one is sampled at even distances."""
    if len(text) <= SAMPLES * SAMPLE_CHARS:
        return _estimate(text) if len(text) < KEPT_CHARS else _estimate_cached(text)
    step = len(text) / SAMPLES
    sample = "".join(text[(begin := round(index * step)) : begin + SAMPLE_CHARS] for index in range(SAMPLES))
    return _estimate_cached(sample) * len(text) / len(sample)


@lru_cache(maxsize=16)
def _estimate_cached(text: str) -> float:
    return _estimate(text)


def _estimate(text: str) -> float:
    spaced, words = len(_SPACED_WORD.findall(text)), len(_WORD.findall(text))
    runs = _PUNCTUATION.findall(text)
    tokens = spaced + 0.85 * max(0, words - spaced) + 0.25 * sum(len(word) - 8 for word in _LONG_WORD.findall(text))
    tokens += 1.5 * len(_CONTROLS.findall(text)) + len(_DIGITS.findall(text)) + 1.5 * len(_NEWLINES.findall(text))
    tokens += 0.85 * len(runs) + 0.22 * (sum(map(len, runs)) - len(runs))
    return tokens if text.isascii() else tokens + _non_ascii_tokens("".join(_NOT_ASCII.findall(text)))


def _non_ascii_tokens(text: str) -> float:
    """Tokens of characters beyond ASCII."""
    letters, syllables, astral = (len(kind.findall(text)) for kind in (_ALPHABET, _SYLLABLES, _ASTRAL))
    return 0.27 * letters + 0.7 * syllables + 2 * astral + (len(text) - letters - syllables - astral)


def call_texts(call: ModelCall) -> Iterator[str]:
    """The texts of the messages of a call that vendors count."""
    for message in call.messages:
        yield message.text
        yield from (f"{one.name} {one.arguments}" for one in message.calls)
        # Signatures and sealed reasoning are for the vendor: what counts is the text.
        yield from [block.text for block in message.thinking if block.text] or filter(None, [message.reasoning])


def tool_texts(tools: Sequence[ToolSpec]) -> tuple[list[str], list[str]]:
    """The texts of tool definitions: the descriptions, and the rest as JSON."""
    schemas = ({"name": tool.name, "parameters": tool.parameters} for tool in tools)
    return (
        [tool.description for tool in tools],
        [json.dumps(one, ensure_ascii=False, separators=(",", ":")) for one in schemas],
    )


def count_call_tokens(call: ModelCall, count: Callable[[str], float]) -> int:
    """Input tokens of a call, with `count` as the o200k count of a text."""
    family = family_of(call.model)
    tokens = sum(map(count, call_texts(call))) * family.scale + family.base + sum(map(_message_overhead, call.messages))
    if tools := call.tools:
        described, schemas = call.from_tools(count, lambda: [sum(map(count, texts)) for texts in tool_texts(tools)])
        tokens += (described + schemas * family.schema_scale) * family.scale
        tokens += family.tools_base + family.each_tool * len(tools)
    return ceil(tokens)


def _message_overhead(message: Message) -> int:
    images = sum(isinstance(part, Image) for part in message.parts)
    return MESSAGE_TOKENS + CALL_TOKENS * len(message.calls) + IMAGE_TOKENS * images
