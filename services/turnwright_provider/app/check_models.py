"""Model metadata and availability, asked from the vendors: each vendor once, all vendors in parallel.

Answers are cached for those who start to work with a model: they wait briefly at most, and go on without an answer.
"""

from __future__ import annotations

import asyncio
import re
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Final

from msgspec import Struct
from msgspec.structs import asdict, replace
from turnwright_values.types import Capabilities, Model

from turnwright_core.errors import TurnwrightError
from turnwright_provider.app.generate import find_vendor
from turnwright_provider.app.pricing import table_window
from turnwright_provider.domain.endpoints import split_vendor_model
from turnwright_provider.domain.model_info import UNKNOWN, ModelInfo
from turnwright_provider.domain.presets import is_own_address
from turnwright_provider.ports import ModelCheck, Vendor

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
"""Vendor, how the names of its models begin, what holds for all of them at least; the first that fits counts."""


def published_info(vendor: str, model: str) -> ModelInfo:
    """What is published about a vendor's model; UNKNOWN if nothing is."""
    return next((info for name, pattern, info in _FAMILIES if name == vendor and re.match(pattern, model)), UNKNOWN)


PROBLEM_LIFETIME_S: Final = 60.0
"""Negative cache: seconds for which a vendor that did not answer is not asked again."""

KEPT_MAX: Final = 1000
"""Maximum number of models in the cache."""


class _CachedCheck(Struct, frozen=True):
    check: ModelCheck
    until_s: float


class ModelChecks:
    """Asks vendors about their models. `clock` is monotonic, in seconds."""

    def __init__(
        self, vendors: Mapping[str, Vendor], clock: Callable[[], float], wait_s: float, lifetime_s: float
    ) -> None:
        """`wait_s` is the longest wait for those who can go on without an answer, `lifetime_s` the cache lifetime."""
        self._vendors = vendors
        self._clock = clock
        self._wait_s = wait_s
        self._lifetime_s = lifetime_s
        self._kept: dict[str, _CachedCheck] = {}
        self._asking: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def check(self, models: Sequence[Model], *, cached: bool) -> list[tuple[Model, str]]:
        """What is known about each model, and what is wrong with it (empty: nothing); in order."""
        checks: dict[str, ModelCheck] = {}
        asked: dict[str, list[str]] = {}
        for vendor_model in dict.fromkeys(model.vendor_model for model in models):
            try:
                vendor, _ = split_vendor_model(vendor_model)
                find_vendor(self._vendors, vendor)
                asked.setdefault(vendor, []).append(vendor_model)
            except TurnwrightError as error:
                checks[vendor_model] = ModelCheck(error.message)
        ask = self._from_cache if cached else self._ask
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(ask(vendor, wanted)) for vendor, wanted in asked.items()]
        for task in tasks:
            checks |= task.result()
        return [await self._completed(model, checks[model.vendor_model]) for model in models]

    async def _from_cache(self, vendor: str, wanted: Sequence[str]) -> dict[str, ModelCheck]:
        try:
            # If several start at the same time, one asks and the others wait for its answer.
            async with asyncio.timeout(self._wait_s), self._asking[vendor]:
                now_s = self._clock()
                cached_checks = {
                    name: one.check for name in wanted if (one := self._kept.get(name)) and one.until_s > now_s
                }
                open_ones = [name for name in wanted if name not in cached_checks]
                return cached_checks | (await self._ask(vendor, open_ones) if open_ones else {})
        except TimeoutError:
            return self._cache({name: ModelCheck(f"{vendor} did not say within {self._wait_s:g} s") for name in wanted})

    async def _ask(self, vendor: str, wanted: Sequence[str]) -> dict[str, ModelCheck]:
        answers = await self._vendors[vendor].check([name.partition("/")[2] for name in wanted])
        return self._cache(dict(zip(wanted, answers, strict=True)))

    def _cache(self, checks: Mapping[str, ModelCheck]) -> dict[str, ModelCheck]:
        """Cache and return answers; if a vendor does not answer, its previous one."""
        now_s = self._clock()
        answers: dict[str, ModelCheck] = {}
        for name, check in checks.items():
            lifetime_s = PROBLEM_LIFETIME_S if check.problem else self._lifetime_s
            before = self._kept.pop(name, None)
            if check.problem and before:
                check = replace(check, info=check.info.or_else(before.check.info))  # noqa: PLW2901
            answers[name] = check
            self._kept[name] = _CachedCheck(check, now_s + lifetime_s)
        while len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]
        return answers

    async def _completed(self, model: Model, check: ModelCheck) -> tuple[Model, str]:
        """The alias takes precedence, then what the vendor's server says, then what the vendor publishes."""
        known = ModelInfo(model.context_length, model.output_tokens_max, model.capabilities).or_else(check.info)
        if not known.context_length or known.capabilities.tools is None:
            vendor, _, name = model.vendor_model.partition("/")
            if vendor in self._vendors and is_own_address(vendor, self._vendors[vendor].describe().endpoint):
                known = known.or_else(await asyncio.to_thread(_published, vendor, name))
        return replace(model, **asdict(known)), check.problem


@lru_cache(KEPT_MAX)
def _published(vendor: str, model: str) -> ModelInfo:
    """A price table's entry for a model, if it is called at the vendor's own address. The first look-up is slow."""
    return ModelInfo(table_window(vendor, model)).or_else(published_info(vendor, model))
