"""The status of this executor and of the services behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc
from turnwright.executor.v1 import query_pb2, tools_pb2
from turnwright.models.v1 import model_service_pb2, model_service_pb2_grpc
from turnwright.provider.v1 import provider_service_pb2, provider_service_pb2_grpc
from turnwright.settings.v1 import settings_service_pb2, settings_service_pb2_grpc
from turnwright.types.v1 import model_pb2, setting_pb2, vendor_pb2
from turnwright_values.types import Right

from turnwright_core import __version__
from turnwright_core.errors import TurnwrightError
from turnwright_kit.identity.caller import current_caller
from turnwright_kit.identity.policy import Policy, bit_of
from turnwright_kit.peer import Peer
from turnwright_kit.settings import Settings
from turnwright_kit.settings_report import settings_in_force

STATUS_TIMEOUT_S: Final = 3.0
"""Timeout of a service's status, in seconds."""

CHECK_TIMEOUT_S: Final = 20.0
"""Timeout for checking models with all vendors together, in seconds."""


class Status:
    """Asks all services for their status."""

    def __init__(
        self,
        store: Peer,
        assembler: Peer,
        provider: Peer,
        settings: Settings,
        policy: Policy,
        confinement: query_pb2.Confinement.ValueType = query_pb2.CONFINEMENT_UNSPECIFIED,
        tool_servers: Callable[[], Awaitable[Sequence[tools_pb2.ToolServerState]]] | None = None,
    ) -> None:
        self._tool_servers = tool_servers
        self._settings = settings
        self._policy = policy
        self._confinement = confinement
        self._store = store
        self._provider = provider
        self._peers: Sequence[Peer] = (store, assembler, provider)
        self._own_address = ""
        self._models = model_service_pb2_grpc.ModelServiceStub(store.channel)
        self._vendors = provider_service_pb2_grpc.ProviderServiceStub(provider.channel)

    def reached_at(self, own_address: str) -> None:
        self._own_address = own_address

    async def read(self, request: query_pb2.GetStatusRequest) -> query_pb2.GetStatusResponse:
        """The status of this executor and the services behind it. Unreachable ones are reported, not raised."""
        with_settings = bool(self._policy.rights_in_deployment(current_caller()) & bit_of(Right.ADMIN))
        services = await asyncio.gather(*(_probe(peer, with_settings=with_settings) for peer in self._peers))
        own = query_pb2.ServiceStatus(
            name=query_pb2.SERVICE_NAME_EXECUTOR,
            address=self._own_address,
            serving=True,
            settings=settings_in_force(self._settings) if with_settings else (),
        )
        answer = query_pb2.GetStatusResponse(
            version=__version__, services=[own, *services], confinement=self._confinement
        )
        serving = {status.name for status in services if status.serving}
        if query_pb2.SERVICE_NAME_PROVIDER in serving:
            vendors = await self._provider.call(
                self._vendors.ListVendors, provider_service_pb2.ListVendorsRequest(), STATUS_TIMEOUT_S
            )
            answer.vendors.extend(vendors.vendors)
        if request.check_models and {query_pb2.SERVICE_NAME_PROVIDER, query_pb2.SERVICE_NAME_STORE} <= serving:
            answer.models.extend(await self._checked_models())
        if self._tool_servers and request.check_models and with_settings:
            answer.tool_servers.extend(await self._tool_servers())
        return answer

    async def _checked_models(self) -> Sequence[vendor_pb2.ModelCheck]:
        page = await self._store.call(self._models.ListModels, model_service_pb2.ListModelsRequest(page_size=100))
        models: Sequence[model_pb2.Model] = page.models
        if not models:
            return []
        wanted = provider_service_pb2.CheckModelsRequest(models=models)
        try:
            return (await self._provider.call(self._vendors.CheckModels, wanted, CHECK_TIMEOUT_S)).checks
        except TurnwrightError as error:
            return [vendor_pb2.ModelCheck(model=model, problem=error.message) for model in models]


async def _probe(peer: Peer, *, with_settings: bool) -> query_pb2.ServiceStatus:
    name = query_pb2.ServiceName.Value(f"SERVICE_NAME_{peer.name.upper()}")
    status = query_pb2.ServiceStatus(name=name, address=peer.address)
    stub = health_pb2_grpc.HealthStub(peer.channel)
    try:
        answer = await stub.Check(health_pb2.HealthCheckRequest(), timeout=STATUS_TIMEOUT_S)
    except grpc.aio.AioRpcError as error:
        status.problem = f"{error.code().name}: {error.details()}"
        return status
    status.serving = answer.status == health_pb2.HealthCheckResponse.SERVING
    if not status.serving:
        status.problem = "It is starting or shutting down."
    elif with_settings:
        status.settings.extend(await _settings_of(peer))
    return status


async def _settings_of(peer: Peer) -> Sequence[setting_pb2.Setting]:
    """The settings of a service; empty for one that does not report them, such as an older one."""
    stub = settings_service_pb2_grpc.SettingsServiceStub(peer.channel)
    try:
        return (await peer.call(stub.GetSettings, settings_service_pb2.GetSettingsRequest(), STATUS_TIMEOUT_S)).settings
    except TurnwrightError:
        return ()
