"""ListTools: what the next loop of a project gets, wherever it comes from."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Final

from turnwright.catalogues.v1 import catalogue_service_pb2 as catalogue_pb
from turnwright.executor.v1 import tools_pb2 as pb

from turnwright_core.checks import invalid
from turnwright_core.text import count_tokens
from turnwright_executor.peers.tool_listings import Listing, ServerState
from turnwright_executor.peers.tool_servers import GrpcToolServers
from turnwright_executor.tools.catalogue import ToolCatalogue, tokens_of
from turnwright_executor.tools.contract import Tool
from turnwright_executor.tools.plugin_tools import PluginToolAdapter
from turnwright_executor.tools.registry import texts_of
from turnwright_executor.tools.remote import RemoteTool
from turnwright_executor.wire.command_records import CLASSES_PB
from turnwright_executor.wire.tools import server_from_pb

PROBLEMS_MAX: Final = 20
"""Problems of tools that are told of one server."""


class ToolLists:
    """Answers ListTools."""

    def __init__(
        self, tools: Mapping[str, Tool], unconfigured: frozenset[str], catalogue: ToolCatalogue,
        servers: GrpcToolServers, divisor: int,
    ) -> None:  # fmt: skip
        self._tools, self._unconfigured, self._catalogue = tools, unconfigured, catalogue
        self._servers, self._divisor = servers, divisor

    async def checked(self, project: str, server: catalogue_pb.ToolServer) -> None:
        """Raises INVALID_FIELD for a server that cannot be called, or that the operator does not allow."""
        try:
            wanted = server_from_pb(server, project)
        except ValueError as error:
            raise invalid("server", f"{error}.") from None
        if why := await self._servers.channels.refused(wanted):
            raise invalid("server.address", why)

    async def read(self, request: pb.ListToolsRequest) -> pb.ListToolsResponse:
        states = await self._servers.states(request.project, check=request.check, only=request.server)
        brought = [self._brought(state) for state in states]
        offered = [tool for tools in brought for tool in tools if tool.offered]
        refused = [tool for tools in brought for tool in tools if not tool.offered]
        own = [] if request.server else self._own()
        version = (await self._catalogue.current(request.project)).version
        servers = list(map(_state, states))
        return pb.ListToolsResponse(tools=[*own, *offered, *refused], servers=servers, version=version)

    async def states(self) -> list[pb.ToolServerState]:
        """The servers of the operator's file, as they answer now."""
        return list(map(_state, await self._servers.states("", check=True)))

    def _own(self) -> list[pb.ListedTool]:
        texts = texts_of(self._tools)
        return [self._listed(name, tool, texts[name]) for name, tool in self._tools.items()]

    def _listed(self, name: str, tool: Tool, text: str) -> pb.ListedTool:
        is_away = name in self._unconfigured
        plugin = tool.plugin if isinstance(tool, PluginToolAdapter) else ""
        return pb.ListedTool(
            name=name,
            source=pb.TOOL_SOURCE_PLUGIN if plugin else pb.TOOL_SOURCE_BUILT_IN,
            origin=plugin,
            effect_class=CLASSES_PB[tool.effect_class],
            tokens=count_tokens(text, self._divisor),
            offered=not is_away,
            problem="It is not set up on this executor: see docs/settings.md." if is_away else "",
        )

    def _brought(self, state: ServerState) -> list[pb.ListedTool]:
        return [
            pb.ListedTool(
                name=spec.name,
                source=pb.TOOL_SOURCE_SERVER,
                origin=spec.server,
                server_name=spec.server_name,
                effect_class=CLASSES_PB[spec.effect_class],
                asks=spec.asks,
                tokens=0 if spec.is_refused else tokens_of(RemoteTool(spec, self._servers), self._divisor),
                problem=spec.problem,
                offered=not spec.is_refused,
                title=spec.title,
            )
            for spec in state.listing.specs
        ]


def _condition(listing: Listing) -> pb.ToolServerCondition.ValueType:
    if listing.is_login_needed:
        return pb.TOOL_SERVER_CONDITION_LOGIN_NEEDED
    return pb.TOOL_SERVER_CONDITION_AWAY if listing.problem else pb.TOOL_SERVER_CONDITION_READY


def _state(state: ServerState) -> pb.ToolServerState:
    worst_first = sorted(state.listing.specs, key=lambda spec: not spec.is_refused)
    wrong = (f"{spec.name}: {spec.problem}" for spec in worst_first if spec.problem)
    return pb.ToolServerState(
        name=state.server.name,
        address=state.server.address,
        shared=not state.server.project,
        condition=_condition(state.listing),
        problem=state.listing.problem,
        tools=len(state.listing.specs),
        refused_tools=sum(spec.is_refused for spec in state.listing.specs),
        problems=islice(wrong, PROBLEMS_MAX),
    )
