"""The tools of docs/tools.md in Go and TypeScript: called by a run over channels, and through Envoy with certificates."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from turnwright.executor.v1 import tools_pb2
from turnwright.tool.v1 import tool_service_pb2, tool_service_pb2_grpc

from certificates import Authority
from contract.executor.tool_servers import Issues, served, stack
from edges import ENVOY, WAIT_S
from polyglot.packed import NODE, needs_node
from polyglot.pages import REPO, missing_go
from ports import free_ports

GO = Path(__file__).parent / "go_tools"
BUILT = REPO / "build" / "clients" / "go-tool"
JS = REPO / "build" / "clients" / "js-tool"
DONE = '<update status="200">Done.</update>'
GO_ON = '<update status="102">Going on.</update>'
pytestmark = [pytest.mark.asyncio, pytest.mark.timeout(600)]


def block(language: str) -> str:
    """The program of the page."""
    [found] = re.findall(rf"```{language}\n(.*?)```", (REPO / "docs/tools.md").read_text(), re.DOTALL)
    return found


@contextlib.asynccontextmanager
async def printed_address(*command: str) -> AsyncIterator[str]:
    """Run a server that prints its address."""
    process = await asyncio.create_subprocess_exec(*command, stdout=subprocess.PIPE)
    try:
        async with asyncio.timeout(WAIT_S):
            assert process.stdout
            yield (await process.stdout.readline()).decode().strip()
    finally:
        process.kill()
        await process.wait()


@pytest_asyncio.fixture
async def go_tool():
    if missing := missing_go(GO):
        pytest.skip(missing)
    BUILT.mkdir(parents=True, exist_ok=True)
    for name in ("go.mod", "go.sum"):
        text = (GO / name).read_text().replace("../../../gen/go", str(REPO / "gen/go"))
        (BUILT / name).write_text(text)
    (BUILT / "main.go").write_text(block("go"))
    ran = await asyncio.create_subprocess_exec("go", "build", "-o", "tool", ".", cwd=BUILT, env={**os.environ})
    assert await ran.wait() == 0
    async with printed_address(str(BUILT / "tool"), "127.0.0.1:0") as address:
        yield address


@pytest_asyncio.fixture
async def js_tool():
    JS.mkdir(parents=True, exist_ok=True)
    (JS / "tool.mjs").write_text(block("js"))
    async with printed_address(str(NODE), str(JS / "tool.mjs"), "127.0.0.1:0") as address:
        yield address


async def refuses_who_has_lost_the_run(address: str, tool: str) -> None:
    """Call a tool as executors do that have lost a run, before and after the server has restarted."""
    async with grpc.aio.insecure_channel(address) as channel:
        stub = tool_service_pb2_grpc.ToolServiceStub(channel)

        async def called(epoch: int, start: str) -> tool_service_pb2.DispatchResponse:
            request = tool_service_pb2.DispatchRequest(
                project="p", run="r", call_id="c", tool=tool, arguments='{"word": "x", "text": "x"}', epoch=epoch,
                start=start,
            )  # fmt: skip
            return [one async for one in stub.Dispatch(request, timeout=WAIT_S)][-1]

        start = (await called(4, "of the process before")).other_start.id
        assert (await called(5, start)).HasField("result")
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await called(4, start)
        assert error.value.code() is grpc.StatusCode.FAILED_PRECONDITION


async def test_a_tool_in_go_is_called_once_and_fences(tmp_path, monkeypatch, go_tool):
    await refuses_who_has_lost_the_run(go_tool, "count")
    async with stack(tmp_path, monkeypatch, {"go": go_tool}) as services:
        services.script(f'<go.count word="a"/>{GO_ON}', f'<go.count word="a"/>{GO_ON}', DONE)
        assert (await services.until(await services.act())).status == 200
        bodies = [(await services.entry(f"log://turn_{turn}/result/go.count/1")).body for turn in (1, 2)]
        assert [body.splitlines()[0] for body in bodies] == ["a: 1", "a: 2"]
        assert (await services.entry("result://turn_1/go.count/1_1")).body == "counting\n"


@needs_node
async def test_a_tool_in_typescript_is_called_and_fences(tmp_path, monkeypatch, js_tool):
    await refuses_who_has_lost_the_run(js_tool, "reverse")
    async with stack(tmp_path, monkeypatch, {"js": js_tool}) as services:
        services.script(f'<js.reverse text="abc"/>{GO_ON}', DONE)
        assert (await services.until(await services.ask())).status == 200
        assert (await services.entry("log://turn_1/result/js.reverse/1")).body.startswith("cba")


async def listening(port: int) -> None:
    """Wait until somebody listens."""
    async with asyncio.timeout(WAIT_S):
        while True:
            with contextlib.suppress(OSError):
                _, writer = await asyncio.open_connection("127.0.0.1", port)
                return writer.close()
            await asyncio.sleep(0.05)


ENVOY_CONFIG = """
static_resources:
  listeners:
  - address: {{socket_address: {{address: 127.0.0.1, port_value: {port}}}}}
    filter_chains:
    - transport_socket:
        name: tls
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.DownstreamTlsContext
          require_client_certificate: true
          common_tls_context:
            alpn_protocols: [h2]
            tls_certificates: [{{certificate_chain: {{filename: {cert}}}, private_key: {{filename: {key}}}}}]
            validation_context: {{trusted_ca: {{filename: {authority}}}}}
      filters:
      - name: http
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: tools
          codec_type: AUTO
          route_config:
            virtual_hosts:
            - name: tools
              domains: ["*"]
              routes: [{{match: {{prefix: /turnwright.tool.v1.ToolService/}}, route: {{cluster: tools, timeout: 0s}}}}]
          http_filters:
          - name: router
            typed_config: {{"@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router}}
  clusters:
  - name: tools
    type: STATIC
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: {{http2_protocol_options: {{}}}}
    load_assignment:
      cluster_name: tools
      endpoints:
      - lb_endpoints:
        - endpoint: {{address: {{socket_address: {{address: 127.0.0.1, port_value: {behind}}}}}}}
"""


@pytest.mark.skipif(not ENVOY.exists(), reason="needs Envoy")
@pytest.mark.parametrize("is_known", [True, False])
async def test_a_tool_behind_envoy_takes_the_certificate_of_the_executor(tmp_path, monkeypatch, is_known):
    server, authority = Issues(), Authority(tmp_path / "ca.pem")
    edge = authority.issue(tmp_path / "edge")
    own = (
        authority.issue(tmp_path / "executor") if is_known else Authority(tmp_path / "other.pem").issue(tmp_path / "x")
    )
    async with served(server) as behind:
        [port] = free_ports(1)
        config = tmp_path / "envoy.yaml"
        files = {"cert": f"{edge}/cert.pem", "key": f"{edge}/key.pem", "authority": authority.file}
        config.write_text(ENVOY_CONFIG.format(port=port, behind=behind.rpartition(":")[2], **files))
        log = (tmp_path / "envoy.log").open("w")
        process = await asyncio.create_subprocess_exec(
            str(ENVOY), "-c", str(config), "--use-dynamic-base-id", "--concurrency", "1", stderr=log
        )
        try:
            for name, file in (("CERT", own / "cert.pem"), ("KEY", own / "key.pem"), ("CA", authority.file)):
                monkeypatch.setenv(f"TURNWRIGHT_TLS_{name}", str(file))
            entry = {"address": f"127.0.0.1:{port}", "tls": "deployment"}
            async with stack(tmp_path, monkeypatch, {"issues": entry}) as services:
                await listening(port)
                [state] = (await services.client.list_tools(services.project, check=True)).servers
                assert (state.condition == tools_pb2.TOOL_SERVER_CONDITION_READY) == is_known
                if is_known:
                    services.script(f'<issues.look title="a"/>{GO_ON}', DONE)
                    await services.until(await services.act())
                assert len(server.calls) == is_known
        finally:
            process.kill()
            await process.wait()
            log.close()
