"""Composition root of the provider: the only module that names concrete vendors and edges.

What calls models is imported with the first call; see LazyServicer.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

import grpc
from msgspec.structs import replace
from turnwright.provider.v1 import provider_service_pb2, provider_service_pb2_grpc

from turnwright_kit.lazy_servicer import LazyServicer
from turnwright_kit.logs import get_logger
from turnwright_kit.plugins import VENDORS, select_plugins
from turnwright_kit.service import Service
from turnwright_provider.config import ProviderSettings
from turnwright_provider.domain.endpoints import SCRIPTED

if TYPE_CHECKING:
    from turnwright_core.rpc_codec import Codecs
    from turnwright_provider.domain.endpoints import EndpointSpec
    from turnwright_provider.ports import Vendor
    from turnwright_provider.rpc.provider_servicer import ProviderServicer

Close = Callable[[], Awaitable[None]]


def _codecs() -> Codecs:
    from turnwright_core.wire.owner_calls import OWNER_CALLS

    return OWNER_CALLS


def build(settings: ProviderSettings, secret: str) -> Service:
    """The service; `secret` is unused, because the provider calls no other service."""
    del secret
    closers: list[Close] = []
    vendor_plugins: dict[str, Vendor] = {}

    async def start() -> None:
        # Lazy: most deployments have no plugins.
        if select_plugins(VENDORS, settings.vendors):
            from turnwright_provider.vendors.registry import load_vendors

            taken = (SCRIPTED, *(spec.name for spec in settings.endpoints))
            vendor_plugins.update(load_vendors(settings.vendors, taken))
            get_logger("provider").info("plugins_loaded", vendors=sorted(vendor_plugins))

    def register(server: grpc.aio.Server) -> None:
        on_demand: Any = LazyServicer(lambda: _servicer(settings, closers, vendor_plugins))
        provider_service_pb2_grpc.add_ProviderServiceServicer_to_server(on_demand, server)

    async def close() -> None:
        for closer in closers:
            await closer()

    name = provider_service_pb2.DESCRIPTOR.services_by_name["ProviderService"].full_name
    return Service("provider", name, register, start=start, close=close, settings=settings, codecs=_codecs)


def _servicer(
    settings: ProviderSettings, closers: list[Close], vendor_plugins: Mapping[str, Vendor]
) -> ProviderServicer:
    from turnwright_provider.app.check_models import ModelChecks
    from turnwright_provider.app.generate import ReplyStream, RetryClock
    from turnwright_provider.app.outbox import FlowControl
    from turnwright_provider.domain.retry import RetryPolicy
    from turnwright_provider.rpc.provider_servicer import ProviderServicer
    from turnwright_provider.vendors.scripted import ScriptedVendor

    vendors = {
        **{spec.name: _called(spec, settings, closers) for spec in settings.endpoints},
        SCRIPTED: ScriptedVendor(settings.scripted_dir, asyncio.sleep),
        **vendor_plugins,
    }
    policy = RetryPolicy(
        settings.vendor_busy_deadline_s,
        settings.vendor_gateway_deadline_s,
        settings.vendor_server_deadline_s,
        settings.vendor_backoff_s_min,
        settings.vendor_backoff_s_max,
        settings.vendor_connect_deadline_s,
    )
    pace = FlowControl(settings.flush_ms / 1000, settings.flush_bytes)
    chance = RetryClock(time.monotonic, asyncio.sleep, random.SystemRandom().random)
    return ProviderServicer(
        vendors,
        lambda name, vendor: ReplyStream(name, vendor, policy, pace, chance),
        settings.prices,
        ModelChecks(vendors, time.monotonic, settings.model_wait_s, settings.model_lifetime_s),
    )


def _called(spec: EndpointSpec, settings: ProviderSettings, closers: list[Close]) -> Vendor:
    from turnwright_core.models import Reasoning
    from turnwright_provider.domain.endpoints import public_url
    from turnwright_provider.domain.think_tags import ThinkTags
    from turnwright_provider.ports import VendorState
    from turnwright_provider.vendors.registry import UnconfiguredVendor

    if spec.problem:
        return UnconfiguredVendor(VendorState(public_url(spec.url), spec.problem, spec.settings, spec.is_unset))
    # httpx and its TLS context take a quarter of a second, which a process without a vendor on the network saves.
    from turnwright_provider.domain.wires.wire import wire_class
    from turnwright_provider.vendors.http import HttpVendor
    from turnwright_provider.vendors.transport import HttpLimits

    preset = spec.preset
    if preset.name == "openrouter":
        attribution = {"http-referer": settings.openrouter_referer, "x-title": settings.openrouter_title}
        spec = replace(spec, headers={**{name: value for name, value in attribution.items() if value}, **spec.headers})
    amount = Reasoning("medium") if settings.think else None
    wire = wire_class(spec.wire)(ThinkTags(settings.think_tags), preset.asking, amount, marks=preset.marks)
    limits = HttpLimits(
        settings.vendor_silence_s, settings.check_timeout_s, settings.event_bytes_max, settings.response_bytes_max
    )
    vendor = HttpVendor(spec, wire, limits, from_environment=settings.proxy_from_env)
    closers.append(vendor.close)
    return vendor
