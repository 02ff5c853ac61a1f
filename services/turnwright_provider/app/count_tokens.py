"""Counts the input tokens of a call: with the model's tokenizer where it is installed, else by an estimate.

Where the result is close to what it will be compared with, the vendor is asked. The tokenizer of OpenAI's models comes
with the package bpe-openai, an extra, which is imported with the first call that needs it.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from turnwright_values.types import TokenSource

from turnwright_provider.domain.model_call import ModelCall
from turnwright_provider.domain.token_estimate import call_texts, count_call_tokens, estimate_tokens
from turnwright_provider.ports import TokenCounter, Vendor

NEAR: Final = 3 / 4
"""The vendor is asked if the estimate is between this share of `near` and its inverse."""

WAIT_S: Final = 3.0
"""Longest wait for a vendor's count, in seconds."""

TOKENIZED_CHARS: Final = 50_000
"""Length up to which a text is tokenized at once, in code points: the tokenizer refuses long ones."""

BRIEF_CHARS: Final = 32_768
"""Length of a call's texts up to which an estimate is made in the event loop, in code points: it takes 1 to 3 ms."""

_ENCODINGS: Final = (
    (re.compile(r"gpt-4o|gpt-4\.\d|gpt-[5-9]|gpt-oss|(?:^|/)o\d"), "o200k_base"),
    (re.compile(r"gpt-4|gpt-3\.5"), "cl100k_base"),
)
"""The encoding of the first that a model's name matches."""


async def count_tokens(call: ModelCall, vendor: Vendor, near: int) -> tuple[int, TokenSource]:
    """Input tokens of a call, and how they were counted. `near`: what they will be compared with; 0: nothing."""
    encoding = next((name for pattern, name in _ENCODINGS if pattern.search(call.model)), None)
    is_brief = encoding is None and not call.tools and sum(map(len, call_texts(call))) <= BRIEF_CHARS
    tokens, source = _count_locally(call, None) if is_brief else await asyncio.to_thread(_count_locally, call, encoding)
    is_near = near * NEAR <= tokens <= near / NEAR
    if near and is_near and isinstance(vendor, TokenCounter):
        try:
            async with asyncio.timeout(WAIT_S):
                counted = await vendor.count_tokens(call)
        except TimeoutError:
            counted = None
        if counted is not None:
            return counted, TokenSource.VENDOR
    return tokens, source


def _count_locally(call: ModelCall, encoding: str | None) -> tuple[int, TokenSource]:
    count = _tokenizer(encoding) if encoding else None
    if count is None:
        return count_call_tokens(call, estimate_tokens), TokenSource.ESTIMATE
    return count_call_tokens(call, count), TokenSource.TOKENIZER


@cache
def _tokenizer(encoding: str) -> Callable[[str], int] | None:
    """The tokenizer's function that counts a text; None if it is not installed. Loading it takes a second."""
    try:
        import bpe_openai
    except ImportError:
        return None
    tokenizer: Any = bpe_openai.get_encoding(encoding)

    def count(text: str) -> int:
        pieces = (text[begin : begin + TOKENIZED_CHARS] for begin in range(0, len(text), TOKENIZED_CHARS))
        return sum(len(tokenizer.encode_ordinary(piece)) for piece in pieces)

    return count
