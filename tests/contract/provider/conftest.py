"""A provider on a real channel."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc
import pytest_asyncio
from turnwright.provider.v1 import provider_service_pb2 as pb
from turnwright.provider.v1 import provider_service_pb2_grpc
from turnwright.types.v1 import model_pb2, vendor_pb2
from turnwright.types.v1.message_pb2 import ROLE_USER, Message, Part, Role

from turnwright_core.errors import TurnwrightError
from turnwright_core.rpc.errors import from_rpc
from turnwright_core.rpc.headers import call_metadata
from turnwright_kit.server import RunningServer
from turnwright_provider.config import ProviderSettings
from turnwright_provider.wiring import build

SECRET = "contract-secret"
NO_PROXY = (("grpc.enable_http_proxy", 0),)  # tests set proxies for the vendors; gRPC would use them for loopback
VENDOR_VARIABLES = [
    variable
    for name, setting in ProviderSettings.fields.items()
    if name.endswith(("_base_url", "_api_key", "_api_key_file"))
    for variable in setting.variables
]
QUICK = {"vendor_backoff_s_min": 0.001, "vendor_backoff_s_max": 0.002, "flush_ms": 0}


@dataclass
class Heard:
    """All that a caller got of one Generate."""

    parts: list[pb.GenerateResponse] = field(default_factory=list)
    error: TurnwrightError | None = None

    @property
    def text(self) -> str:
        return "".join(part.delta.append_content for part in self.parts)

    @property
    def reasoning(self) -> str:
        return "".join(part.delta.append_reasoning for part in self.parts)

    @property
    def retries(self) -> list[pb.Retry]:
        return [part.retry for part in self.parts if part.HasField("retry")]

    @property
    def finish(self) -> pb.Finish | None:
        return self.parts[-1].finish if self.parts and self.parts[-1].HasField("finish") else None

    @property
    def reason(self) -> str:
        return self.error.reason.name if self.error else ""


def said(role: Role, text: str) -> Message:
    """A message that says no more than this."""
    return Message(role=role, parts=[Part(text=text)])


def request(
    vendor_model: str, prompt: str = "hi", *, known: Mapping[str, Any] = {}, **fields: Any
) -> pb.GenerateRequest:
    """A request with one user message; `known` is what is said of the model."""
    model = model_pb2.Model(alias="m", vendor_model=vendor_model, **known)
    fields.setdefault("messages", [said(ROLE_USER, prompt)])
    return pb.GenerateRequest(model=model, **fields)


class Client:
    """Calls a provider as another service would."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self.address = address
        self.stub = provider_service_pb2_grpc.ProviderServiceStub(channel)
        self.metadata = call_metadata(SECRET)

    def open(self, vendor_model: str = "openai/tiny", **fields: Any) -> Any:
        """A Generate under way."""
        return self.stub.Generate(request(vendor_model, **fields), metadata=self.metadata)

    async def generate(self, vendor_model: str = "openai/tiny", **fields: Any) -> Heard:
        """A Generate, to its end."""
        heard = Heard()
        try:
            async for part in self.open(vendor_model, **fields):
                heard.parts.append(part)
        except grpc.aio.AioRpcError as error:
            heard.error = from_rpc(error, "provider", self.address)
        return heard

    async def vendors(self) -> dict[str, vendor_pb2.Vendor]:
        answer = await self.stub.ListVendors(pb.ListVendorsRequest(), metadata=self.metadata)
        return {vendor.name: vendor for vendor in answer.vendors}

    async def check(self, *vendor_models: str) -> list[vendor_pb2.ModelCheck]:
        models = [model_pb2.Model(alias=f"m{n}", vendor_model=name) for n, name in enumerate(vendor_models)]
        answer = await self.stub.CheckModels(pb.CheckModelsRequest(models=models), metadata=self.metadata)
        return list(answer.checks)


Start = Callable[..., Awaitable[Client]]


@pytest_asyncio.fixture
async def provider(tmp_path: Path, monkeypatch) -> AsyncIterator[Start]:
    """Starts providers: `await provider(openai_base_url=server.url, vendor_silence_s=0.2)`. Pauses are short."""
    for name in VENDOR_VARIABLES:
        monkeypatch.delenv(name, raising=False)
    async with AsyncExitStack() as stack:

        async def start(**settings: Any) -> Client:
            chosen = ProviderSettings(home=tmp_path, token=SECRET, **{**QUICK, **settings})
            server = RunningServer(build(chosen, SECRET), "127.0.0.1:0", SECRET, drain_s=0.5)
            await server.start()
            stack.push_async_callback(server.stop)
            channel = await stack.enter_async_context(grpc.aio.insecure_channel(server.address, options=NO_PROXY))
            return Client(server.address, channel)

        yield start
