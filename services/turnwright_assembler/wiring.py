"""The composition root of the assembler: the only module that names its concrete edges."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import grpc
from turnwright.assembler.v1 import assembler_service_pb2, assembler_service_pb2_grpc
from turnwright_values.types import Tier

from turnwright_assembler.config import AssemblerSettings
from turnwright_core.wire.owner_calls import OWNER_CALLS
from turnwright_kit.health import check_ready
from turnwright_kit.in_process import LocalServers
from turnwright_kit.lazy_servicer import LazyServicer
from turnwright_kit.logs import get_logger
from turnwright_kit.peer import Peer
from turnwright_kit.plugins import PROMPT, SECTIONS, select_plugins
from turnwright_kit.service import Service

if TYPE_CHECKING:
    from turnwright_assembler.rpc.assembler_servicer import AssemblerServicer
    from turnwright_assembler.sections.plugin_sections import PacketPlugins
    from turnwright_assembler.sections.prompt_editor import PromptPlugin

GRPC_NAME: Final[str] = assembler_service_pb2.DESCRIPTOR.services_by_name["AssemblerService"].full_name


def build(settings: AssemblerSettings, secret: str, local_servers: LocalServers | None = None) -> Service:
    """The assembler, ready to be served. Its connection to the store opens with the first call."""
    peers: list[Peer] = []
    loaded: list[tuple[PacketPlugins, tuple[PromptPlugin, ...]]] = []

    async def start() -> None:
        # The channel belongs to the event loop that serves. It only reads: the tier of a client is enough for that.
        peers.append(
            Peer(
                "store",
                settings.store,
                secret,
                settings.rpc_timeout_s,
                Tier.CLIENT,
                local_servers,
                settings.tls,
                OWNER_CALLS,
                "assembler",
                settings.peer_token("store"),
            )
        )
        # Most have no plugins, and what makes packets of them is not loaded before there is a packet to be made.
        if select_plugins(SECTIONS, settings.sections) or select_plugins(PROMPT, settings.prompt):
            from turnwright_assembler.sections.registry import load_plugins  # noqa: PLC0415

            loaded.append(load_plugins(settings.sections, settings.prompt))
            [(packets, prompts)] = loaded
            names = list(dict.fromkeys(one.plugin for one in prompts))
            get_logger("assembler").info("plugins_loaded", render_version=packets.render_version, prompt=names)

    def servicer() -> AssemblerServicer:
        return _servicer(settings, peers[0], *(loaded[0] if loaded else ()))

    def register(server: grpc.aio.Server) -> None:
        on_demand: Any = LazyServicer(servicer)
        assembler_service_pb2_grpc.add_AssemblerServiceServicer_to_server(on_demand, server)

    async def close() -> None:
        for peer in peers:
            await peer.close()

    return Service(
        "assembler", GRPC_NAME, register, floor=Tier.SYSTEM, start=start, close=close,
        settings=settings, dependencies={"store": lambda: check_ready(peers[0])}, codecs=lambda: OWNER_CALLS,
    )  # fmt: skip


def _servicer(
    settings: AssemblerSettings,
    peer: Peer,
    packet_plugins: PacketPlugins | None = None,
    prompt_plugins: tuple[PromptPlugin, ...] = (),
) -> AssemblerServicer:
    # Loaded with the first turn: see OnDemand.
    from turnwright_assembler.app.assemble import Assembler, Rules  # noqa: PLC0415
    from turnwright_assembler.app.explaining import Explainer  # noqa: PLC0415
    from turnwright_assembler.app.run_cache import RunCache  # noqa: PLC0415
    from turnwright_assembler.edge.store_reader import StoreReader  # noqa: PLC0415
    from turnwright_assembler.rpc.assembler_servicer import AssemblerServicer  # noqa: PLC0415
    from turnwright_assembler.sections.plugin_sections import NOTHING  # noqa: PLC0415

    cache = RunCache(settings.assembler_cache_bytes_max)
    rules = Rules(settings.token_divisor, settings.budget_ceiling)
    reader = StoreReader(peer)
    assembler = Assembler(reader, cache, rules, packet_plugins or NOTHING, settings.section_deadline_s, prompt_plugins)
    return AssemblerServicer(assembler, Explainer(reader, assembler))
