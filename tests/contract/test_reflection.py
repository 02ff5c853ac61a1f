"""Reflection tells of every service, method and message, under both of its names, also to grpcurl and ghz."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from google.protobuf import descriptor_pb2
from grpc_reflection.v1alpha import reflection_pb2
from turnwright.executor.v1 import executor_service_pb2

from services import running, token_for
from turnwright_core.rpc.headers import call_metadata
from turnwright_executor.rpc.mounting import MOUNTED

REPO = Path(__file__).parents[2]
SERVICE = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]
VERSIONS = ("v1", "v1alpha")
LISTED = {
    "grpc.health.v1.Health", "grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection",
    "turnwright.executor.v1.ExecutorService", "turnwright.settings.v1.SettingsService",
    *(service.full_name for service in MOUNTED),
}  # fmt: skip
TOOLS = {
    "grpcurl": "github.com/fullstorydev/grpcurl/cmd/grpcurl@v1.9.3",
    "ghz": "github.com/bojand/ghz/cmd/ghz@v0.120.0",
}
TOKEN = token_for("looker")
Request = reflection_pb2.ServerReflectionRequest


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stack(tmp_path_factory):
    async with running(tmp_path_factory.mktemp("reflection")) as services:
        yield services


async def asked(services, version: str, *requests: Request) -> list[reflection_pb2.ServerReflectionResponse]:
    async with grpc.aio.insecure_channel(services.addresses["executor"]) as channel:
        call = channel.stream_stream(
            f"/grpc.reflection.{version}.ServerReflection/ServerReflectionInfo",
            Request.SerializeToString,
            reflection_pb2.ServerReflectionResponse.FromString,
        )
        return [answer async for answer in call(requests, metadata=call_metadata(TOKEN))]


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("version", VERSIONS)
async def test_each_service_that_is_listed_is_told_with_each_of_its_methods_and_messages(stack, version):
    (listed,) = await asked(stack, version, Request(list_services=""))
    services = {one.name for one in listed.list_services_response.service}
    assert services == LISTED
    told = await asked(stack, version, *(Request(file_containing_symbol=name) for name in services))
    symbols = []
    for name, answer in zip(services, told, strict=True):
        files = [
            descriptor_pb2.FileDescriptorProto.FromString(file)
            for file in answer.file_descriptor_response.file_descriptor_proto
        ]
        # With everything that it imports: a client asks for the rest by name.
        assert {file.name for file in files} >= {needed for file in files for needed in file.dependency}
        (service,) = (
            one for file in files for one in file.service if f"{file.package}.{one.name}" == name
        )  # fmt: skip
        assert service.method
        symbols += [f"{name}.{rpc.name}" for rpc in service.method]
        symbols += [kind.lstrip(".") for rpc in service.method for kind in (rpc.input_type, rpc.output_type)]
    assert len(symbols) > 150
    answers = await asked(stack, version, *(Request(file_containing_symbol=symbol) for symbol in symbols))
    assert [symbol for symbol, one in zip(symbols, answers, strict=True) if one.HasField("error_response")] == []


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize("version", VERSIONS)
async def test_what_is_not_there_is_not_found(stack, version):
    names = (f"{SERVICE.full_name}.Nothing", f"{SERVICE.full_name}.GetRun.more", "nothing", "", ".")
    answers = await asked(stack, version, *(Request(file_containing_symbol=name) for name in names))
    assert [one.error_response.error_code for one in answers] == [5] * len(names)


@pytest.fixture(scope="session")
def tools() -> Path:
    """The folder with both programs, built by Go."""
    if not shutil.which("go"):
        pytest.skip("needs Go: it builds grpcurl and ghz")
    folder = REPO / "build" / "tools"
    for name, module in TOOLS.items():
        if not (folder / name).exists():
            subprocess.run(["go", "install", module], env={**os.environ, "GOBIN": str(folder)}, check=True)
    return folder


@pytest.mark.polyglot
@pytest.mark.timeout(1800)
@pytest.mark.asyncio(loop_scope="module")
async def test_grpcurl_and_ghz_need_nothing_but_the_address_and_a_token(stack, tools):
    socket = stack.addresses["executor"]
    header = f"authorization: Bearer {TOKEN}"

    async def ran(*command: str) -> str:
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT
        )
        said, _ = await process.communicate()
        assert process.returncode == 0, said.decode()
        return said.decode()

    grpcurl = (str(tools / "grpcurl"), "-plaintext", "-H", header)
    assert set((await ran(*grpcurl, socket, "list")).split()) == LISTED
    # Every service, with its methods and options.
    described = await ran(*grpcurl, socket, "describe")
    assert all(f"rpc {rpc.name} " in described for rpc in SERVICE.methods)
    method = f"{SERVICE.full_name}.WatchRun"
    assert f"rpc WatchRun ( .{SERVICE.methods_by_name['WatchRun'].input_type.full_name} )" in await ran(
        *grpcurl, socket, "describe", method
    )
    asks = json.dumps({"project": stack.project})
    assert await ran(*grpcurl, "-d", asks, socket, f"{SERVICE.full_name}/ListRuns") == "{}\n"

    token = json.dumps({"authorization": f"Bearer {TOKEN}"})
    ghz = await ran(
        str(tools / "ghz"), "--insecure", "--call", f"{SERVICE.full_name}/ListRuns", "-n", "20", "-c", "2", "-d", asks,
        "-m", token, "--reflect-metadata", token, "-O", "json", socket,
    )  # fmt: skip
    assert json.loads(ghz)["statusCodeDistribution"] == {"OK": 20}
