"""The gRPC servicer of the provider: decode, one call, encode."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing

import grpc
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.provider.v1 import provider_service_pb2_grpc
from turnwright.types.v1 import vendor_pb2
from turnwright_values.provider import GenerateRequest
from turnwright_values.types import Price

from turnwright_core.errors import ANSWERED
from turnwright_core.model_calls import GeneratePart
from turnwright_core.wire.model_calls import generate_from_pb
from turnwright_core.wire.runs import model_from_pb, model_to_pb
from turnwright_provider.app.check_models import ModelChecks
from turnwright_provider.app.count_tokens import count_tokens
from turnwright_provider.app.generate import ReplyStream, find_vendor
from turnwright_provider.app.pricing import cost_of_call, priced, unpriced
from turnwright_provider.domain.endpoints import split_vendor_model
from turnwright_provider.ports import Vendor
from turnwright_provider.rpc.checks import check_models_request, checked_call
from turnwright_provider.rpc.known_tools import KnownTools

RpcContext = grpc.aio.ServicerContext[object, object]


class ProviderServicer(provider_service_pb2_grpc.ProviderServiceServicer):
    """Serves turnwright.provider.v1.ProviderService. `begin` starts a call to a vendor."""

    def __init__(
        self,
        vendors: Mapping[str, Vendor],
        begin: Callable[[str, Vendor], ReplyStream],
        prices: Mapping[str, Price],
        checks: ModelChecks,
    ) -> None:
        """Vendors by name, prices by alias."""
        self._vendors = vendors
        self._begin = begin
        self._prices = prices
        self._checks = checks
        self._lists = KnownTools()

    async def Generate(self, request: GenerateRequest, context: RpcContext) -> AsyncGenerator[GeneratePart, None]:  # type: ignore[override]
        name, model = split_vendor_model(request.model.vendor_model)
        call = checked_call(request, model, self._lists)
        vendor, state = find_vendor(self._vendors, name)
        known = request.model
        cost = await cost_of_call(self._prices, known.alias, name, model, state.endpoint, known.price)
        if cost is None and not state.reports_cost and "cost" in call.required:
            raise unpriced(known.alias, call.vendor_model)
        # From here on the call may cost money: if it is lost with this process, its caller has to know.
        await context.send_initial_metadata(((ANSWERED, "1"),))
        async with aclosing(self._begin(name, vendor).parts(call)) as parts:
            async for part in parts:
                yield priced(part, cost)

    async def CountTokens(self, request: pb.CountTokensRequest, context: RpcContext) -> pb.CountTokensResponse:
        del context
        name, model = split_vendor_model(request.call.model.vendor_model)
        call = checked_call(generate_from_pb(request.call), model, self._lists)
        vendor, _ = find_vendor(self._vendors, name)
        tokens, source = await count_tokens(call, vendor, request.near)
        return pb.CountTokensResponse(tokens=tokens, source=int(source))  # type: ignore[arg-type]

    async def ListVendors(self, request: pb.ListVendorsRequest, context: RpcContext) -> pb.ListVendorsResponse:
        del request, context
        answer = pb.ListVendorsResponse()
        for name, vendor in sorted(self._vendors.items()):
            state = vendor.describe()
            configured, unset = not state.problem, state.is_unset
            answer.vendors.add(
                name=name, configured=configured, endpoint=state.endpoint, problem=state.problem, unset=unset
            )
        return answer

    async def CheckModels(self, request: pb.CheckModelsRequest, context: RpcContext) -> pb.CheckModelsResponse:
        del context
        check_models_request(request)
        models = [model_from_pb(model) for model in request.models]
        found = await self._checks.check(models, cached=request.cached)
        checks = [
            vendor_pb2.ModelCheck(model=model_to_pb(model), usable=not problem, problem=problem)
            for model, problem in found
        ]
        return pb.CheckModelsResponse(checks=checks)
