"""The packets of a run whose turns write records: made by the assembler's own rules, told as its executor tells them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from itertools import chain

from turnwright.store.v1 import write_pb2
from turnwright_values.assembler import PacketReport
from turnwright_values.types import Cursor, Entry, State, Tier, Visibility

from turnwright_assembler.app.packet import compose
from turnwright_assembler.app.run_rows import RunRows
from turnwright_assembler.ports import ViewPart
from turnwright_core.delta_encoding import decode
from turnwright_core.packet_values import PacketMessage
from turnwright_core.text import scheme_of
from turnwright_core.value_methods import to_attributes_json
from turnwright_core.wire.owner_calls import packet_to_pb
from turnwright_executor.peers.packets import turn_packet
from turnwright_executor.ports.packets import AssembledMessage, Packet

CEILING = 1_000_000
DIVISOR = 2
PROMPT = to_attributes_json({"mode": "act", "loop": 1, "tokenUsage": 3500, "tokensFree": 996_500})
"""As it is from the second turn of a loop on."""


class Packets:
    """What the model is sent turn by turn: each packet shows what was written before."""

    def __init__(self) -> None:
        self._rows = RunRows(DIVISOR)
        self._digest = ""
        self._pieces: tuple[str, ...] = ()
        self._position = 0
        self.show({"prompt://1": ("Mend what does not work.", PROMPT)}, 1)

    def show(self, written: Mapping[str, tuple[str, str]], turn: int) -> None:
        """Bodies and attributes that a turn wrote, by path."""
        entries = []
        for path, (body, attributes) in written.items():
            self._position += 1
            entries.append(_entry(path, body, attributes, turn, self._position))
        self._rows.apply(ViewPart(tuple(entries), (), Cursor("0" * 16, self._position, 0, 0)))

    def record(self, turn: int) -> write_pb2.PacketRecord:
        """The packet of a turn, by what differs from the one before."""
        made = compose(self._rows.ordered(), self._rows.system, 1, CEILING, DIVISOR)
        told, digest = self._rows.as_delta(made.messages, self._digest)
        shows = self._rows.shows()
        messages = tuple(
            AssembledMessage(role, tuple(decode(parts, self._pieces)), PacketMessage(role, parts, shows))
            for role, parts in told
        )
        self._digest, self._pieces = digest, tuple(chain.from_iterable(message.pieces for message in messages))
        packet = Packet(
            messages=messages,
            report=PacketReport(
                digest=digest,
                tokens=made.tokens,
                ceiling=CEILING,
                chars=0,
                cursor=Cursor("0" * 16, self._position, 0, 0),
            ),
        )
        return packet_to_pb(turn_packet(turn, packet, turn - 1))


def _entry(path: str, body: str, attributes: str, turn: int, position: int) -> Entry:
    return Entry(
        path=path,
        scheme=scheme_of(path) or "",
        scope="run:1",
        body=body,
        body_size_bytes=len(body.encode()),
        attributes_json=attributes,
        visibility=Visibility.VISIBLE,
        state=State.RESOLVED,
        outcome="",
        writer=Tier.PLUGIN,
        turn=turn,
        loop=1,
        position=position,
        write_count=2,
        revision=position,
        hash=hashlib.sha256(body.encode()).hexdigest(),
        update_ms=0,
    )
