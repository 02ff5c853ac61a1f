"""The rendered rows of one run: updated with changes, and read by one packet after another."""

from __future__ import annotations

from collections.abc import Container, Iterable
from sys import getsizeof
from typing import Final

from turnwright_values.types import Cursor, Entry

from turnwright_assembler.app.packet import PIECE_CHARS_MAX, MessagesDelta, PacketMessages, SentPacket
from turnwright_assembler.domain.blocks import FIXED_SCHEMES, Block, is_seen, make_block
from turnwright_assembler.domain.effects import PlanCost, plan_costs
from turnwright_assembler.ports import ViewPart
from turnwright_assembler.sections import BlockIndex, indexed
from turnwright_assembler.sections.built_in import project_text
from turnwright_assembler.sections.plugin_sections import NOTHING, PacketPlugins, RunPacketPlugins
from turnwright_assembler.sections.system import system_text, tools_text
from turnwright_core.instructions import INSTRUCTION_PATHS, PROJECT_PATH, SYSTEM_PATH
from turnwright_core.schemes import BUILT_IN

_ROW_BYTES: Final = 800
"""Memory of a row besides its two texts, in bytes: objects, path, table slots, place and digest in the last packet."""


class OtherRulesError(Exception):
    """The rows were rendered with other schemes than are registered now: a snapshot must be read."""


class RunRows:
    """Blocks by path and the system message, as of `cursor`; rendered once when they arrive."""

    def __init__(self, divisor: int, packet_plugins: PacketPlugins = NOTHING) -> None:
        """Empty, for reading a snapshot. `divisor` is that of the token estimate."""
        self._packet_plugins = packet_plugins
        self._entries: dict[str, Entry] = {}
        """Entries of the schemes that plugins use."""
        self._kept: dict[str, object] = {}
        self.cursor: Cursor | None = None
        self.schemes = BUILT_IN
        self.system = packet_plugins.system(system_text(""), {})
        self.tools = ""
        self.project = ""
        """The section with the instructions of the project; empty: none."""
        self.size_bytes = getsizeof(self.system) + getsizeof(self.tools) + getsizeof(self.project)
        self._divisor = divisor
        self._blocks: dict[str, Block] = {}
        self._fixed: dict[str, Block] = {}
        """Plans and events."""
        self._fixed_ordered: tuple[Block, ...] | None = None
        self._latest: dict[str, int] = {}
        """The version of each plan; no packet shows deltas of others."""
        self._plan_costs: tuple[PlanCost, ...] = ()
        self._ordered: tuple[Block, ...] | None = None
        self._index: BlockIndex | None = None
        """The blocks that packets show."""
        self._sent = SentPacket()
        self._fresh: dict[str, str] = {}
        """Texts that show the body of an entry, with its path, of rows that came since the last packet."""
        self._fresh_sent = False

    def apply(self, part: ViewPart) -> None:
        """Apply added, changed and removed entries. Parts of one read belong together: apply all or drop the rows.

        Raises OtherRulesError.
        """
        if part.schemes:
            if self.cursor or self._blocks:
                raise OtherRulesError
            self.schemes = part.schemes
        if part.entries and self._fresh_sent:
            self._fresh, self._fresh_sent = {}, False
        for entry in part.entries:
            if entry.path in INSTRUCTION_PATHS:
                self._instruct(entry)
            else:
                block = make_block(entry, self._divisor, self.schemes, self._packet_plugins.views)
                self._replace(entry.path, block)
            if self._packet_plugins.schemes:
                self._keep_entry(entry.path, entry)
        for path in part.removed:
            if path == PROJECT_PATH:
                self._set_project("")
            self._replace(path, None)
            self._keep_entry(path, None)
        if part.cursor:
            self.cursor = part.cursor

    def ordered(self) -> tuple[Block, ...]:
        """The blocks in the order in which the run first saw them."""
        if self._ordered is None:
            self._ordered = tuple(sorted(self._shown(self._blocks.values()), key=_place))
        return self._ordered

    def index(self) -> BlockIndex:
        """The same by section."""
        if self._index is None:
            self._index = indexed(self.ordered())
        return self._index

    def fixed(self) -> tuple[Block, ...]:
        """The blocks that are plans, deltas and events."""
        if self._fixed_ordered is None:
            self._fixed_ordered = tuple(sorted(self._shown(self._fixed.values()), key=_place))
            self._plan_costs = plan_costs(self._fixed_ordered)
        return self._fixed_ordered

    def plan_costs(self) -> tuple[PlanCost, ...]:
        """What each plan costs, largest first."""
        self.fixed()
        return self._plan_costs

    def as_delta(self, messages: PacketMessages, base_digest: str) -> tuple[MessagesDelta, str]:
        """A packet, delta-encoded against the last one if that is the named base, else whole; and its digest."""
        return self._sent.replace(messages, base_digest), self._sent.digest

    def shows(self) -> dict[str, str]:
        """New texts that show the body of an entry, each with its path; the last packet may have them."""
        self._fresh_sent = True
        return self._fresh

    def __contains__(self, path: object) -> bool:
        return path in self._blocks

    def _instruct(self, entry: Entry) -> None:
        if entry.path == SYSTEM_PATH:
            text = self._packet_plugins.system(system_text(entry.attributes_json), entry.attributes)
            self._set_system(text, tools_text(entry.attributes_json))
        else:
            self._set_project(project_text(entry))

    def additions(self, gone: Container[str] = (), marker: Entry | None = None) -> RunPacketPlugins:
        """Plugins' additions to a packet of these rows, without those that are `gone` and with their marker."""
        kept = [entry for path, entry in self._entries.items() if path not in gone]
        if marker and marker.scheme in self._packet_plugins.schemes:
            kept = [*(entry for entry in kept if entry.path != marker.path), marker]
        entries = sorted(kept, key=lambda entry: (entry.position, entry.path))
        return RunPacketPlugins(self._packet_plugins, tuple(entries), self._kept)

    def _keep_entry(self, path: str, entry: Entry | None) -> None:
        """Cache an entry for plugins that use its scheme, if a model may see it."""
        if before := self._entries.pop(path, None):
            self.size_bytes -= getsizeof(before.body)
        if entry and entry.scheme in self._packet_plugins.schemes and is_seen(entry, self.schemes.rules(entry.scheme)):
            self._entries[path] = entry
            self.size_bytes += getsizeof(entry.body)

    def _set_project(self, text: str) -> None:
        self.size_bytes += getsizeof(text) - getsizeof(self.project)
        self.project = text

    def _set_system(self, text: str, tools: str) -> None:
        self.size_bytes += getsizeof(text) + getsizeof(tools) - getsizeof(self.system) - getsizeof(self.tools)
        self.system, self.tools = text, tools

    def _replace(self, path: str, block: Block | None) -> None:
        before = self._blocks.pop(path, None)
        if before is None and block is None:
            return
        self._ordered = None
        if before:
            self.size_bytes -= _weight(before)
        if block:
            self._blocks[path] = block
            self.size_bytes += _weight(block)
            if showing := block.showing:
                self._fresh |= dict.fromkeys(showing, path)
        if path in self._fixed or (block and block.scheme in FIXED_SCHEMES):
            self._replace_fixed(path, before, block)
        if self._index:
            if before and not self._is_stale(before):
                self._index.remove(before)
            if block and not self._is_stale(block):
                self._index.add(block)

    def _replace_fixed(self, path: str, before: Block | None, block: Block | None) -> None:
        self._fixed.pop(path, None)
        self._fixed_ordered = None
        if block and block.scheme in FIXED_SCHEMES:
            self._fixed[path] = block
        for one in (before, block):
            if one and one.plan and not one.plan.sequence:
                # A plan takes its deltas along, and brings them back.
                self._index = None
                self._latest.pop(one.plan.plan_id, None)
        if block and block.plan and not block.plan.sequence:
            self._latest[block.plan.plan_id] = block.plan.version

    def _shown(self, blocks: Iterable[Block]) -> list[Block]:
        return [block for block in blocks if not self._is_stale(block)]

    def _is_stale(self, block: Block) -> bool:
        """Whether it is a delta of an old version of its plan, or of a removed plan."""
        part = block.plan
        return part is not None and part.sequence > 0 and self._latest.get(part.plan_id) != part.version


def _place(block: Block) -> tuple[int, str]:
    return block.position, block.path


def _weight(block: Block) -> int:
    texts = [block.whole, block.condensed]
    if block.prompt:
        # Its section is made of both.
        texts += 2 * [block.prompt.whole, block.prompt.condensed]
    elif len(block.whole) > PIECE_CHARS_MAX:
        # Sent in pieces, which are copies.
        texts.append(block.whole)
    return _ROW_BYTES + sum(map(getsizeof, texts))
