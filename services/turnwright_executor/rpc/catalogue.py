"""Discover: methods, notifications and tools of an executor, derived from its contract. Source: rows RU225, RU226."""

from __future__ import annotations

import json
from collections.abc import Mapping

from turnwright.executor.v1 import executor_service_pb2, watch_pb2
from turnwright.runs.v1 import watch_runs_pb2
from turnwright.types.v1 import settings_pb2

from turnwright_core import __version__
from turnwright_executor.rpc.mounting import MOUNTED
from turnwright_executor.tools.contract import Tool
from turnwright_executor.tools.native import schema
from turnwright_executor.tools.registry import texts_of

_SERVICE = executor_service_pb2.DESCRIPTOR.services_by_name["ExecutorService"]
_EVENTS = {
    "WatchRun": executor_service_pb2.WatchRunResponse.DESCRIPTOR.oneofs_by_name["event"],
    "WatchRuns": watch_runs_pb2.WatchRunsResponse.DESCRIPTOR.oneofs_by_name["event"],
}


def catalogue(tools: Mapping[str, Tool]) -> watch_pb2.DiscoverResponse:
    return watch_pb2.DiscoverResponse(
        version=__version__,
        methods=[
            watch_pb2.Method(
                name=f"{service.full_name}/{method.name}",
                request=method.input_type.full_name,
                fields=[field.name for field in method.input_type.fields],
                response=method.output_type.full_name,
                streams=method.server_streaming,
            )
            for service in (_SERVICE, *MOUNTED)
            for method in service.methods
        ],
        notifications=[f"{rpc}.{field.name}" for rpc, event in _EVENTS.items() for field in event.fields],
        tools=[
            settings_pb2.ToolDescription(name=name, description=text, parameters=json.dumps(schema(tools[name])))
            for name, text in texts_of(tools).items()
        ],
    )
