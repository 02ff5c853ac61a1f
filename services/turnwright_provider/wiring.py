"""Composition root of the provider: the only module that names concrete vendors and edges.

What calls models is loaded with the first call; see LazyServicer.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any

import grpc
from turnwright.provider.v1 import provider_service_pb2, provider_service_pb2_grpc

from turnwright_core.kit.lazy_servicer import LazyServicer
from turnwright_core.kit.server import Service
from turnwright_provider.config import ProviderSettings

if TYPE_CHECKING:
    from turnwright_provider.app.generate import Pace
    from turnwright_provider.domain.retry import RetryPolicy
    from turnwright_provider.ports import Transport, Vendor
    from turnwright_provider.rpc.provider_servicer import ProviderServicer
    from turnwright_provider.vendors.compatible import Compatible

Close = Callable[[], Awaitable[None]]


def build(settings: ProviderSettings, secret: str) -> Service:
    """The service; `secret` is not needed, because the provider calls no other service."""
    del secret
    closers: list[Close] = []

    def register(server: grpc.aio.Server) -> None:
        on_demand: Any = LazyServicer(lambda: _servicer(settings, closers))
        provider_service_pb2_grpc.add_ProviderServiceServicer_to_server(on_demand, server)

    async def close() -> None:
        for closer in closers:
            await closer()

    name = provider_service_pb2.DESCRIPTOR.services_by_name["ProviderService"].full_name
    return Service("provider", name, register, close=close, settings=settings)


def _servicer(settings: ProviderSettings, closers: list[Close]) -> ProviderServicer:
    from turnwright_provider.app.generate import Chance, ReplyStream
    from turnwright_provider.rpc.provider_servicer import ProviderServicer

    vendors = _vendors(settings, closers)
    policy, pace = _policy(settings), _pace(settings)
    chance = Chance(time.monotonic, asyncio.sleep, random.SystemRandom().random)
    return ProviderServicer(
        vendors,
        lambda name, vendor: ReplyStream(name, vendor, policy, pace, chance),
        settings.prices,
        is_open=settings.client_generate,
    )


def _policy(settings: ProviderSettings) -> RetryPolicy:
    from turnwright_provider.domain.retry import RetryPolicy

    return RetryPolicy(
        settings.vendor_busy_deadline_s,
        settings.vendor_gateway_deadline_s,
        settings.vendor_server_deadline_s,
        settings.vendor_backoff_s_min,
        settings.vendor_backoff_s_max,
    )


def _pace(settings: ProviderSettings) -> Pace:
    from turnwright_provider.app.generate import Pace

    return Pace(settings.flush_ms / 1000, settings.flush_bytes)


def _scripted(settings: ProviderSettings) -> Vendor:
    from turnwright_provider.vendors.scripted import ScriptedVendor

    return ScriptedVendor(settings.scripted_dir, asyncio.sleep)


def _compatible(service: Compatible, settings: ProviderSettings, closers: list[Close]) -> Vendor:
    from turnwright_core.runs import Reasoning
    from turnwright_provider.domain.think_tags import ThinkTags
    from turnwright_provider.domain.wires.chat import ChatWire
    from turnwright_provider.ports import VendorState
    from turnwright_provider.vendors.compatible import UnconfiguredVendor
    from turnwright_provider.vendors.http import Endpoint, HttpVendor, public_url

    given, key = getattr(settings, f"{service.name}_base_url"), getattr(settings, f"{service.name}_api_key").strip()
    if problem := _problem(service, given, key):
        return UnconfiguredVendor(VendorState(public_url(given), problem, service.variables))
    base_url = service.base_url(given, key)
    endpoint = Endpoint(
        base_url,
        key,
        settings.event_bytes_max,
        settings.vendor_silence_s,
        settings.check_timeout_s,
        _attribution(settings) if service.name == "openrouter" else {},
    )
    amount = Reasoning("medium") if settings.think else None
    wire = ChatWire(ThinkTags(settings.think_tags), service.asking, amount, marks=service.marks)
    return HttpVendor(endpoint, wire, _transport(base_url, settings, closers), time.time)


def _transport(base_url: str, settings: ProviderSettings, closers: list[Close]) -> Transport:
    # httpx and its TLS context cost a quarter of a second that a process without a vendor on the network saves.
    from turnwright_provider.edge.http import HttpLimits, HttpxTransport

    limits = HttpLimits(settings.vendor_silence_s, settings.response_bytes_max)
    transport = HttpxTransport(base_url, limits, from_environment=settings.proxy_from_env)
    closers.append(transport.close)
    return transport


def _attribution(settings: ProviderSettings) -> dict[str, str]:
    """By what OpenRouter knows the application."""
    said = {"http-referer": settings.openrouter_referer, "x-title": settings.openrouter_title}
    return {name: value for name, value in said.items() if value}


def _problem(service: Compatible, given: str, key: str) -> str:
    """What keeps a service from being called, naming the setting; empty when nothing does."""
    from turnwright_provider.vendors.http import is_base_url

    url_variable, key_variable = service.variables
    if given and not is_base_url(given):
        return f"{url_variable} must be a URL such as http://127.0.0.1:8080{service.bare_path or '/v1'}."
    if not service.base_url(given, key):
        return service.missing()
    if not key.isascii() or not key.isprintable():
        return f"{key_variable} holds characters that no key has; copy it again."
    return ""


def _vendors(settings: ProviderSettings, closers: list[Close]) -> dict[str, Vendor]:
    """First segment of `vendor/model` -> the vendor."""
    from turnwright_provider.vendors.compatible import COMPATIBLE

    found: dict[str, Vendor] = {service.name: _compatible(service, settings, closers) for service in COMPATIBLE}
    found["scripted"] = _scripted(settings)
    return found
