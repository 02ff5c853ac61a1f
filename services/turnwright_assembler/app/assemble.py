"""Assembles a packet: reads changes, composes, demotes if necessary, and returns the writes that this requires.

CheckBudget does the same after the commands of a turn, for the next packet; only the writes are returned.

Source: architecture 2, 4, 12; RU142, RU199, RU204, RU214.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.assembler import AssembleRequest, CheckBudgetResponse, PacketReport
from turnwright_values.types import RequestKind, TurnRequest, ViewFilter

from turnwright_assembler.app.packet import ComposedPacket, MessagesDelta, PacketMessages, compose, short_pieces
from turnwright_assembler.app.reading import DEADLINE_S, RowsReader, StepRunner
from turnwright_assembler.app.run_cache import RunCache
from turnwright_assembler.app.run_rows import RunRows
from turnwright_assembler.app.title import title_rows
from turnwright_assembler.app.transcript import Transcript, fitting_transcript, needs_summary
from turnwright_assembler.app.transcript_rows import TranscriptRows
from turnwright_assembler.domain.account import ceiling_of
from turnwright_assembler.domain.blocks import Block
from turnwright_assembler.domain.effects import effects_of, turn_effects
from turnwright_assembler.domain.envelope import well_formed
from turnwright_assembler.domain.folding import Folded, fold
from turnwright_assembler.domain.ladder import LadderResult, TokenBudget, climb, turn_demotion
from turnwright_assembler.ports import RunReader
from turnwright_assembler.sections.plugin_sections import NOTHING, PacketPlugins
from turnwright_assembler.sections.prompt_editor import PromptContext, PromptEditor, PromptPlugin
from turnwright_core.chat.edited_conversation import added_chars_max, merge_added_replies, prompt_messages
from turnwright_core.chat.message import Message, Role, text_message
from turnwright_core.chat.prompt_edits import (
    PromptEdit,
    PromptMessage,
    apply_prompt_edits,
    check_shape,
    merge_assistant_texts,
)
from turnwright_core.chat.transcript import to_json_lines
from turnwright_core.errors import Reason, fault
from turnwright_core.packet_digest import CONVERSATION
from turnwright_core.text import tokens_of
from turnwright_kit.plugin_calls import PluginCalls, PluginError

# Plugins that edit prompts: each gets the prompt as it would be sent, and edits it with the five verbs.
#
# They are called in sequence, after eviction, so that later ones see earlier edits. Their edits are recorded, and the
# packet is assembled with these edits, now and in a replay. So plugins may be async, read clocks and files, and not be
# deterministic. If one fails, no packet is made (PLUGIN_FAILED).
# Source: rows OM22, OM25, OM26, OM31, OM35, OM36; architecture 4.


class PromptPlugins:
    """Calls the plugins that edit prompts."""

    def __init__(self, plugins: Sequence[PromptPlugin], deadline_s: float) -> None:
        """`deadline_s` limits all plugins of a prompt together, in seconds."""
        self._deadline_s = deadline_s
        self._calls = {one.plugin: PluginCalls(deadline_s) for one in plugins}
        self._plugins = tuple(plugins)

    def of(self, request: TurnRequest | None) -> tuple[PromptPlugin, ...]:
        """Those that are called for a turn with these settings, in the order of registration."""
        if request is None:
            return ()
        kind = request.kind or RequestKind.PRIMARY
        return tuple(one for one in self._plugins if kind in one.kinds)

    async def edits(
        self, messages: Sequence[PromptMessage], before: Sequence[PromptEdit], context: PromptContext
    ) -> tuple[PromptEdit, ...]:
        """The edits `before`, and those of the plugins; `messages` are those with `before`.

        Raises PLUGIN_FAILED, and the error of an edit that cannot be applied.
        """
        seen, edits = tuple(messages), tuple(before)
        ends_s = asyncio.get_running_loop().time() + self._deadline_s
        for one in self.of(context.request):
            editor = PromptEditor(one.plugin, seen, edits)
            seen, edits = await self._edited(one, editor, context, ends_s)
        return edits

    async def _edited(
        self, one: PromptPlugin, editor: PromptEditor, context: PromptContext, ends_s: float
    ) -> tuple[tuple[PromptMessage, ...], tuple[PromptEdit, ...]]:
        left_s = max(0.0, ends_s - asyncio.get_running_loop().time())
        failed: BaseException | None = None
        try:
            returned = await self._calls[one.plugin].call(one.function, editor, context, deadline_s=left_s)
        except PluginError as error:
            failed = error.fault
        # An edit that failed is the reason, whatever the plugin made of it.
        done = editor.close()
        if failed is None and returned is not None:
            failed = TypeError(
                f"it returned {type(returned).__name__}: edit the prompt with its methods, return nothing"
            )
        if failed is not None:
            raise one.failure("failed while it edited the prompt", failed)
        return done


# A packet with edits: what stands before and after its user message, as lines of a conversation.
#
# In a packet the user message is the only one that edits can name, by the path of the loop's prompt.
# Source: rows OM17-OM20, OM27, OM34; architecture 4.


def packet_message(packet: ComposedPacket) -> PromptMessage:
    return PromptMessage(packet.prompt.path if packet.prompt else "", Role.USER, text_message(Role.USER, packet.user))


def edited_packet(packet: ComposedPacket, edits: Sequence[PromptEdit], *, prefill: bool) -> tuple[PacketMessages, int]:
    """The messages of the packet with the edits, and the code points that these added.

    Raises PROMPT_MESSAGE_UNKNOWN, PROMPT_TARGET_MISSING, PROMPT_SHAPE_REFUSED.
    """
    own = packet_message(packet)
    [sections] = own.message.parts
    made = merge_assistant_texts(apply_prompt_edits([own], edits))
    check_shape(made, prefill=prefill)
    made = merge_added_replies(made)
    at = next(index for index, one in enumerate(made) if one.message.parts[0] is sections)
    added = made[at].message.parts[1:]
    before = _lines(one.message for one in made[:at])
    after = _lines([*([Message(Role.USER, added)] if added else ()), *(one.message for one in made[at + 1 :])])
    system, user, *tools = packet.messages
    messages = (system, *_conversation(before), user, *_conversation(after), *tools)
    return messages, sum(map(len, before)) + sum(map(len, after))


def _lines(messages: Iterable[Message]) -> Sequence[str]:
    return short_pieces([well_formed(line) for line in to_json_lines(messages)])


def _conversation(pieces: Sequence[str]) -> list[tuple[str, Sequence[str]]]:
    return [(CONVERSATION, pieces)] if pieces else []


R = TypeVar("R")
_Rows = RunRows | TranscriptRows


class Rules(Struct, frozen=True):
    """Settings that affect the bytes of packets."""

    token_divisor: int
    budget_ceiling: float


class Assembled(Struct, frozen=True):
    """A packet, the writes that must precede it, and whether it fits."""

    messages: MessagesDelta
    """Copied pieces are those of the packet that the caller has."""
    shows: Mapping[str, str]
    """Texts among the pieces that show the body of an entry, each with its path; for the store."""
    report: PacketReport


class Fitted(NamedTuple):
    """A packet, with the events folded and the entries demoted for it."""

    folded: Folded | None
    prompt: Block | None
    climbed: LadderResult[ComposedPacket]
    ceiling: int


class Assembler:
    """Builds packets; reads, and never writes."""

    def __init__(
        self,
        reader: RunReader,
        cache: RunCache,
        rules: Rules,
        packet_plugins: PacketPlugins = NOTHING,
        section_deadline_s: float = DEADLINE_S,
        prompt_plugins: Sequence[PromptPlugin] = (),
    ) -> None:
        """Read with this reader, and cache rows between turns; plugins bring parts of packets, or edit prompts.

        `section_deadline_s` limits each step of a packet that involves plugins, in seconds.
        """
        self.packet_plugins = packet_plugins
        self._prompt_plugins = PromptPlugins(prompt_plugins, section_deadline_s)
        self._cache = cache
        self.rules = rules
        self.runner = StepRunner(packet_plugins, section_deadline_s)
        self._packets = RowsReader(
            RunRows,
            partial(RunRows, rules.token_divisor, packet_plugins),
            lambda ask, rows: reader.read(ask.project, ask.run, rows.cursor, rows.schemes.version),
            lambda change, rows: change.filter is ViewFilter.PACKET and change.schemes_version == rows.schemes.version,
            self.runner,
        )
        self._transcripts = RowsReader(
            TranscriptRows,
            TranscriptRows,
            lambda ask, rows: reader.read_messages(ask.project, ask.run, rows.cursor),
            lambda change, _: change.filter is ViewFilter.MESSAGES,
            self.runner,
        )

    async def assemble(self, ask: AssembleRequest) -> Assembled:
        """Build the packet of a turn, or the request for a title, as of now. Raises TurnwrightError."""
        if ask.transcript:
            self._check_unfiltered()
        return await self._on_rows(ask, self._assembled)

    async def check(self, ask: AssembleRequest) -> CheckBudgetResponse:
        """Check whether the results of a turn fit into a packet (RU142). Raises TurnwrightError."""
        return await self._on_rows(ask, self._checked)

    async def _on_rows(self, ask: AssembleRequest, work: Callable[[AssembleRequest, _Rows], Awaitable[R]]) -> R:
        reader: RowsReader[RunRows] | RowsReader[TranscriptRows]
        reader = self._transcripts if ask.transcript else self._packets
        async with self._cache.hold((ask.project, ask.run)) as held:
            return await work(ask, await reader.up_to_date(ask, held))

    async def _assembled(self, ask: AssembleRequest, rows: _Rows) -> Assembled:
        if ask.kind is RequestKind.TITLE and isinstance(rows, TranscriptRows):
            rows = title_rows(rows)
        if ask.request is not None and self._prompt_plugins.of(ask.request):
            # They see the prompt with earlier edits applied.
            messages = apply_prompt_edits(await self.runner.run(self._prompt, ask, rows), ask.edits)
            context = PromptContext(ask.project, ask.run, ask.turn, ask.loop, ask.request)
            ask = replace(ask, edits=await self._prompt_plugins.edits(messages, ask.edits, context))
        if isinstance(rows, TranscriptRows):
            return self._transcript(ask, rows)
        return await self.runner.run(self._packet, ask, rows)

    def _prompt(self, ask: AssembleRequest, rows: _Rows) -> list[PromptMessage]:
        """The messages that edits can name."""
        if isinstance(rows, TranscriptRows):
            return prompt_messages(self.fit_transcript(ask, rows, is_draft=True).segments, rows.speaker)
        return [packet_message(self.fit(ask, rows).climbed.packet)]

    def _report(
        self, ask: AssembleRequest, rows: _Rows, digest: str, tokens: int, chars: int, added: int
    ) -> PacketReport:
        """What is reported of packets and transcripts alike; `added` are the tokens of edits."""
        assert rows.cursor is not None
        return PacketReport(
            digest=digest,
            tokens=tokens + added,
            ceiling=self.ceiling(ask),
            chars=chars,
            cursor=rows.cursor,
            render_version=self.packet_plugins.render_version,
            plugins=self.packet_plugins.plugins,
            edits=tuple(ask.edits),
            edit_tokens=added,
        )

    def _transcript(self, ask: AssembleRequest, rows: TranscriptRows) -> Assembled:
        made = self.fit_transcript(ask, rows)
        report = replace(
            self._report(ask, rows, made.digest, made.tokens, made.chars, made.edit_tokens),
            effects=made.effects,
            overflow=bool(made.unfit),
            compression=made.strength,
            unfit=made.unfit,
            after_reply=made.after_reply,
            replaced_chars=made.replaced_chars,
        )
        return Assembled(made.messages, {}, report)

    def _check_unfiltered(self) -> None:
        """Raises PLUGIN_FAILED where plugins change packets: what they would hide must not appear."""
        if self.packet_plugins.plugins:
            names = " ".join(self.packet_plugins.plugins)
            message = f"The plugins {names} change packets and take no part in transcripts: use the assembly `packet`."
            raise fault(Reason.PLUGIN_FAILED, message, plugin=names, part="transcript", error_id="")

    def fit_transcript(self, ask: AssembleRequest, rows: TranscriptRows, *, is_draft: bool = False) -> Transcript:
        """The transcript of these rows, after eviction if it would not fit. A draft has its segments."""
        return fitting_transcript(rows, ask, self.rules.token_divisor, self.budget(ask), is_draft=is_draft)

    async def _checked(self, ask: AssembleRequest, rows: _Rows) -> CheckBudgetResponse:
        if not isinstance(rows, TranscriptRows):
            return await self.runner.run(self._checked_packet, ask, rows)
        divisor = self.rules.token_divisor
        summarize = needs_summary(rows, replace(ask, turn=ask.turn + 1), divisor, self.budget(ask))
        return CheckBudgetResponse(
            (), tokens_of(rows.chars, divisor) + self._edit_tokens(ask), self.ceiling(ask), summarize
        )

    def ceiling(self, ask: AssembleRequest) -> int:
        """Maximum tokens of a packet; for a transcript at most the window without the reserve for the reply."""
        ceiling = ceiling_of(ask.context_length, self.rules.budget_ceiling)
        return min(ceiling, max(0, ask.context_length - ask.output_reserve)) if ask.transcript else ceiling

    def budget(self, ask: AssembleRequest) -> TokenBudget:
        whole = TokenBudget(self.ceiling(ask), ask.calibration)
        if not ask.edits:
            return whole
        return replace(whole, ceiling=max(0, whole.ceiling - whole.expected(self._edit_tokens(ask))))

    def _edit_tokens(self, ask: AssembleRequest) -> int:
        """The most tokens that its edits can add."""
        return tokens_of(added_chars_max(ask.edits), self.rules.token_divisor)

    def _folded(self, ask: AssembleRequest, rows: RunRows) -> Folded | None:
        return fold(rows.ordered, rows.fixed(), ask.turn, ask.loop, self.ceiling(ask), self.rules.token_divisor, rows)

    def _composed(
        self, ask: AssembleRequest, rows: RunRows, folded: Folded | None, blocks: tuple[Block, ...] | None = None
    ) -> ComposedPacket:
        """The packet of these blocks; None: of all that folding leaves."""
        ceiling, divisor = self.ceiling(ask), self.rules.token_divisor
        additions = rows.additions(folded.gone, folded.marker) if folded else rows.additions()
        index = None
        if blocks is None and folded:
            blocks = folded.blocks
        elif blocks is None:
            index, blocks = rows.index(), rows.ordered() if additions.entries else ()
        return compose(blocks, rows.system, ask.loop, ceiling, divisor, additions, rows.tools, index, rows.project)

    def _checked_packet(self, ask: AssembleRequest, rows: RunRows) -> CheckBudgetResponse:
        folded, budget = self._folded(ask, rows), self.budget(ask)
        packet = self._composed(ask, rows, folded)
        prompt = packet.prompt.path if packet.prompt else None
        blocks = folded.blocks if folded else rows.ordered()
        step = turn_demotion(blocks, ask.turn, prompt, budget, packet)
        effects = turn_effects(
            step, turn=ask.turn, loop=ask.loop, ceiling=budget.ceiling, taken=rows, schemes=rows.schemes
        )
        return CheckBudgetResponse(effects, packet.tokens + self._edit_tokens(ask), self.ceiling(ask))

    def fit(self, ask: AssembleRequest, rows: RunRows) -> Fitted:
        """The packet of these rows, with events folded and entries demoted as far as necessary."""
        folded, budget = self._folded(ask, rows), self.budget(ask)
        whole = self._composed(ask, rows, folded)
        climbed = LadderResult(whole, ())
        if budget.excess(whole.tokens):
            blocks = folded.blocks if folded else rows.ordered()
            prompt = whole.prompt.path if whole.prompt else None
            climbed = climb(whole, blocks, ask.turn, prompt, budget, partial(self._composed, ask, rows, folded))
        return Fitted(folded, whole.prompt, climbed, budget.ceiling)

    def _packet(self, ask: AssembleRequest, rows: RunRows) -> Assembled:
        folded, prompt, climbed, ceiling = self.fit(ask, rows)
        plans = rows.plan_costs()
        packet = climbed.packet
        sent, added = self.sent(ask, packet)
        messages, digest = rows.as_delta(sent, ask.base_digest)
        effects = effects_of(
            climbed,
            prompt,
            packet.figures,
            turn=ask.turn,
            loop=ask.loop,
            ceiling=ceiling,
            taken=rows,
            schemes=rows.schemes,
            plans=plans,
        )
        edit_tokens = tokens_of(added, self.rules.token_divisor)
        report = replace(
            self._report(ask, rows, digest, packet.tokens, packet.chars + added, edit_tokens),
            effects=(*folded.writes, *effects) if folded else effects,
            overflow=climbed.overflow,
            plan_tokens=sum([plan.tokens for plan in plans]),
        )
        return Assembled(messages, rows.shows(), report)

    def sent(self, ask: AssembleRequest, packet: ComposedPacket) -> tuple[PacketMessages, int]:
        """A packet as it is sent, with its edits: roles with their pieces, and the code points of the edits."""
        if not ask.edits:
            return packet.messages, 0
        return edited_packet(packet, ask.edits, prefill=ask.prefill)
