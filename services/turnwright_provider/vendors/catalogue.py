"""A server's model catalogue: its list, and for some servers one more question for each model."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from turnwright_provider.domain.endpoints import EndpointSpec
from turnwright_provider.domain.failures import VendorError, clean
from turnwright_provider.domain.model_info import UNKNOWN, ModelInfo
from turnwright_provider.domain.model_list import ModelList, ModelQuestion, parse_model_list, question_of
from turnwright_provider.domain.urls import join_url, public_url, server_root
from turnwright_provider.domain.wires.wire import Wire
from turnwright_provider.ports import ModelCheck

ASKED_AT_ONCE: Final = 4
"""Concurrent questions about single models."""

Fetch = Callable[[str, str, bytes], Awaitable[bytes | None]]
"""Method, URL and body -> the answer; None for a refusal. Raises VendorError."""


class Catalogue:
    """Queries the catalogue of one server."""

    def __init__(self, fetch: Fetch, spec: EndpointSpec, wire: Wire, timeout_s: float) -> None:
        self._fetch = fetch
        self._preset = spec.preset.name
        self._list_url = join_url(spec.base_url, wire.models_path)
        self._root = server_root(spec.base_url, spec.preset.usual_path or wire.usual_path)
        self._endpoint = public_url(spec.base_url)
        self._timeout_s = timeout_s

    async def check(self, models: Sequence[str]) -> list[ModelCheck]:
        """Check models. A server without a list denies none."""
        try:
            async with asyncio.timeout(self._timeout_s):
                listing = await self._listing()
        except TimeoutError:
            return [ModelCheck(f"{self._endpoint} did not answer within {self._timeout_s:g} s")] * len(models)
        except VendorError as error:
            return [ModelCheck(f"{self._endpoint}: {clean(error.failure.detail)}")] * len(models)
        infos = await self._infos(models, listing)
        # Comparing a name with those of a long list takes a while.
        problems = await asyncio.to_thread(lambda: list(map(listing.denial, models)))
        return [
            ModelCheck(problem and f"{self._endpoint} {problem}", info)
            for problem, info in zip(problems, infos, strict=True)
        ]

    async def denial(self, model: str) -> str:
        """The error for a model that the server does not list, with suggestions; empty if it may exist."""
        with suppress(TimeoutError, VendorError):
            async with asyncio.timeout(self._timeout_s):
                listing = await self._listing()
            if problem := await asyncio.to_thread(listing.denial, model):
                return f"{self._endpoint} {problem}."
        return ""

    async def _listing(self) -> ModelList:
        answer = await self._fetch("GET", self._list_url, b"")
        return ModelList({}) if answer is None else await asyncio.to_thread(parse_model_list, answer)

    async def _infos(self, models: Sequence[str], listing: ModelList) -> list[ModelInfo]:
        infos = [listing.info(model) for model in models]
        question = question_of(self._preset, listing.owner)
        if question is None:
            return infos
        room = asyncio.Semaphore(ASKED_AT_ONCE)

        async def ask(place: int) -> None:
            with suppress(VendorError):
                async with room:
                    infos[place] = (await self._answer(question, models[place])).or_else(infos[place])

        with suppress(TimeoutError):
            async with asyncio.timeout(self._timeout_s), asyncio.TaskGroup() as group:
                for place in range(len(models)):
                    group.create_task(ask(place))
        return infos

    async def _answer(self, question: ModelQuestion, model: str) -> ModelInfo:
        asked = json.dumps({"model": model}).encode() if question.names_model else b""
        answer = await self._fetch("POST" if asked else "GET", join_url(self._root, question.path), asked)
        return UNKNOWN if answer is None else await asyncio.to_thread(question.read, answer, model)
