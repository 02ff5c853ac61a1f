"""Composition root of the provider: the only module that names concrete vendors and edges.

What calls models is loaded with the first call; see OnDemand.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final

import grpc
from turnwright.provider.v1 import provider_service_pb2, provider_service_pb2_grpc

from turnwright_core.kit.on_demand import OnDemand
from turnwright_core.kit.server import Service
from turnwright_provider.config import ProviderSettings

if TYPE_CHECKING:
    from turnwright_provider.app.generate import Pace
    from turnwright_provider.domain.retry import RetryPolicy
    from turnwright_provider.ports import Vendor
    from turnwright_provider.rpc.provider_servicer import ProviderServicer

Close = Callable[[], Awaitable[None]]

OPENAI_SETTINGS: Final = ("OPENAI_BASE_URL", "OPENAI_API_KEY")


def build(settings: ProviderSettings, secret: str) -> Service:
    """The service; `secret` is not needed, because the provider calls no other service."""
    del secret
    closers: list[Close] = []

    def register(server: grpc.aio.Server) -> None:
        on_demand: Any = OnDemand(lambda: _servicer(settings, closers))
        provider_service_pb2_grpc.add_ProviderServiceServicer_to_server(on_demand, server)

    async def close() -> None:
        for closer in closers:
            await closer()

    name = provider_service_pb2.DESCRIPTOR.services_by_name["ProviderService"].full_name
    return Service("provider", name, register, close=close)


def _servicer(settings: ProviderSettings, closers: list[Close]) -> ProviderServicer:
    from turnwright_provider.app.generate import Chance, Generation
    from turnwright_provider.rpc.provider_servicer import ProviderServicer

    vendors = {name: make(settings, closers) for name, make in VENDORS.items()}
    policy, pace = _policy(settings), _pace(settings)
    chance = Chance(time.monotonic, asyncio.sleep, random.SystemRandom().random)
    return ProviderServicer(vendors, lambda name, vendor: Generation(name, vendor, policy, pace, chance))


def _policy(settings: ProviderSettings) -> RetryPolicy:
    from turnwright_provider.domain.retry import RetryPolicy

    return RetryPolicy(
        settings.llm_deadline_s,
        settings.gateway_deadline_s,
        settings.server_deadline_s,
        settings.backoff_s_min,
        settings.backoff_s_max,
    )


def _pace(settings: ProviderSettings) -> Pace:
    from turnwright_provider.app.generate import Pace

    return Pace(settings.flush_ms / 1000, settings.flush_bytes, settings.outbox_bytes_max, settings.silence_timeout_s)


def _scripted(settings: ProviderSettings, _closers: list[Close]) -> Vendor:
    from turnwright_provider.vendors.scripted import ScriptedVendor

    return ScriptedVendor(settings.scripted_dir, asyncio.sleep)


def _openai(settings: ProviderSettings, closers: list[Close]) -> Vendor:
    from turnwright_provider.domain.think_tags import ThinkTags
    from turnwright_provider.ports import VendorState
    from turnwright_provider.vendors.openai import DEFAULT_BASE_URL, OpenAiAccess, OpenAiVendor, public_url
    from turnwright_provider.vendors.unconfigured import UnconfiguredVendor

    key = settings.openai_api_key.strip()
    base_url = settings.openai_base_url or (DEFAULT_BASE_URL if key else "")
    if problem := _openai_problem(base_url, key):
        return UnconfiguredVendor(VendorState(public_url(base_url), problem, OPENAI_SETTINGS))
    # httpx and its TLS context cost a quarter of a second that a process without a vendor on the network saves.
    from turnwright_provider.edge.http import HttpLimits, HttpxTransport

    limits = HttpLimits(
        settings.connect_timeout_s, settings.silence_timeout_s, settings.reply_bytes_max, settings.connections_max
    )
    transport = HttpxTransport(base_url, limits, from_environment=settings.proxy_from_env)
    closers.append(transport.close)
    think_tags = ThinkTags(settings.think_tags)
    access = OpenAiAccess(base_url, key, settings.event_bytes_max, settings.check_timeout_s, think_tags)
    return OpenAiVendor(access, transport, time.time)


def _openai_problem(base_url: str, key: str) -> str:
    """What keeps the vendor from being called, naming the setting; empty when nothing does."""
    from turnwright_provider.vendors.openai import is_base_url

    if not base_url:
        return "Set OPENAI_BASE_URL (an OpenAI-compatible server, with /v1) or OPENAI_API_KEY (for api.openai.com)."
    if not is_base_url(base_url):
        return "OPENAI_BASE_URL must be a URL such as http://127.0.0.1:8080/v1."
    if not key.isascii() or not key.isprintable():
        return "OPENAI_API_KEY holds characters that no key has; copy it again."
    return ""


VENDORS: Final[dict[str, Callable[[ProviderSettings, list[Close]], Vendor]]] = {
    "openai": _openai,
    "scripted": _scripted,
}
"""First segment of `vendor/model` -> how the vendor is made."""
