"""A proxy between the four services, as in a mesh: it sees each call under the name that the contract gives it."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest
from google.protobuf import descriptor_pool
from turnwright.types.v1 import model_pb2

from edges import ENVOY
from services import SECRET, running
from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.wiring import build as build_assembler
from turnwright_core.runs import COMPLETED

BEHIND = ("store", "assembler", "provider")

pytestmark = [pytest.mark.asyncio, pytest.mark.slow, pytest.mark.timeout(300)]


class Served(grpc.aio.ServerInterceptor):
    """The calls that came to a service by way of a proxy, which gives each an id."""

    def __init__(self) -> None:
        self.methods: Counter[str] = Counter()

    async def intercept_service(self, continuation, details):
        self.methods[details.method] += any(name == "x-request-id" for name, _ in details.invocation_metadata)
        return await continuation(details)


def listener(name: str, root: Path) -> dict:
    """Plaintext HTTP/2 to one service, with a line in the log for each call."""
    kinds = "type.googleapis.com/envoy.extensions"
    manager = {
        "@type": f"{kinds}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": name,
        "codec_type": "HTTP2",
        "route_config": {
            "virtual_hosts": [
                {
                    "name": name,
                    "domains": ["*"],
                    "routes": [{"match": {"prefix": "/"}, "route": {"cluster": name, "timeout": "0s"}}],
                }
            ]
        },
        "http_filters": [{"name": "router", "typed_config": {"@type": f"{kinds}.filters.http.router.v3.Router"}}],
        "access_log": [
            {
                "name": "file",
                "typed_config": {
                    "@type": f"{kinds}.access_loggers.file.v3.FileAccessLog",
                    "path": f"{root}/calls.log",
                    "log_format": {"text_format_source": {"inline_string": "%REQ(:PATH)%\n"}},
                },
            }
        ],
    }
    return {
        "name": name,
        "address": {"pipe": {"path": f"{root}/mesh-{name}.sock"}},
        "filter_chains": [{"filters": [{"name": "http", "typed_config": manager}]}],
    }


def cluster(name: str, root: Path) -> dict:
    endpoint = {"address": {"pipe": {"path": f"{root}/{name}.sock"}}}
    options = "envoy.extensions.upstreams.http.v3.HttpProtocolOptions"
    http2 = {"@type": f"type.googleapis.com/{options}", "explicit_http_config": {"http2_protocol_options": {}}}
    return {
        "name": name,
        "typed_extension_protocol_options": {options: http2},
        "load_assignment": {"cluster_name": name, "endpoints": [{"lb_endpoints": [{"endpoint": endpoint}]}]},
    }


@contextlib.contextmanager
def proxy(root: Path) -> Iterator[None]:
    """A proxy in front of each service, on sockets of its own."""
    resources = {
        "listeners": [listener(name, root) for name in BEHIND],
        "clusters": [cluster(name, root) for name in BEHIND],
    }
    config = root / "envoy.json"
    config.write_text(json.dumps({"static_resources": resources}))
    command = [ENVOY, "-c", config, "--use-dynamic-base-id", "--concurrency", "1", "--file-flush-interval-msec", "50"]
    with (root / "envoy.log").open("w") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            process.kill()


@pytest.fixture
def root(tmp_path):
    with proxy(tmp_path):
        yield tmp_path


async def test_a_mesh_sees_every_call_between_services_by_its_name(root):
    served = Served()
    at = {name: f"unix:{root}/mesh-{name}.sock" for name in BEHIND}
    async with running(root, [served], **at) as stack:
        settings = AssemblerSettings(home=root / "home", token=SECRET, log_level="error", store=at["store"])
        stack.builds["assembler"] = lambda: build_assembler(settings, SECRET, None)
        await stack.stop("assembler")
        await stack.start("assembler", [served])
        stack.script(
            '<set path="a.txt">One.</set><sh>echo done</sh><update status="102">Working.</update>',
            '<get path="a.txt"/><update status="200">Done.</update>',
        )
        await stack.client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        assert (await stack.until(await stack.act())).status == COMPLETED
        # A call stands in the log when it has ended.
        calls, seen = +served.methods, Counter[str]()
        await stack.restart("executor")
        await stack.restart("assembler")
        for _ in range(200):
            seen = Counter((root / "calls.log").read_text().splitlines())
            if calls <= seen:
                break
            await asyncio.sleep(0.1)
        assert calls <= seen
    known = descriptor_pool.Default()
    for path in seen:
        service, _, method = path.removeprefix("/").partition("/")
        assert method in known.FindServiceByName(service).methods_by_name
    turn = {f"/turnwright.{one}" for one in (
        "assembler.v1.AssemblerService/Assemble", "provider.v1.ProviderService/Generate",
        "store.v1.StoreService/WriteEntries", "store.v1.StoreService/EndTurn",
    )}  # fmt: skip
    assert turn <= set(seen)
