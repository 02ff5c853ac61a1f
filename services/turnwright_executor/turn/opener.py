"""Opening turns: the first one writes the loop's prompt and instructions, each one the files that changed on disk.

A turn that follows another one is opened by the call that ends that one, which saves a call and a commit. If more has
changed on disk than fits into that call, the turn is opened by a call of its own (BEGIN).
Source: architecture 2, 12.1; rows RU074, RU165, RU195-RU199, RU204; decision C31.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from msgspec.structs import replace

from turnwright_core.chat.timeline import IMAGES, SYNTHETIC
from turnwright_core.entries import Cursor, EntryWrite, SetEntry, State, Tier, Visibility, to_attributes_json
from turnwright_core.errors import Reason, fault
from turnwright_core.instructions import SYSTEM_PATH
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT
from turnwright_core.models import Model
from turnwright_core.owner_calls import TurnStart
from turnwright_core.runs import (
    AnswerFormat,
    Assembly,
    CallStyle,
    KnowledgeHit,
    Loop,
    LoopSettings,
    RequestKind,
    Run,
    RunSettings,
    Turn,
    TurnRequest,
)
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.ports.ledger import Claim, Ledger
from turnwright_executor.turn.images import image_paths
from turnwright_executor.turn.project_files import BATCH_WRITES, FileSync, in_batches

WITH_END_CHARS_MAX: Final = 256 * 1024
"""Maximum characters of paths and file texts that the end of the previous turn may carry."""


RESERVE_PART: Final = 4
"""A transcript keeps room for the longest reply of the model, but at most one part in so many of the window."""


class TurnOpener:
    """Opens the turns of one loop, while one executor works on it."""

    def __init__(
        self,
        ledger: Ledger,
        address: RunAddress,
        claim: Claim,
        loop: Loop,
        request: TurnRequest,
        instructions: EntryWrite,
        files: FileSync | None,
        images: Sequence[EntryWrite] = (),
        project: Sequence[EntryWrite] = (),
        knowledge: tuple[KnowledgeHit, ...] = (),
        shown: Sequence[EntryWrite] = (),
    ) -> None:
        """`instructions` are the run's instructions; `files` is None if it works without files.

        `images` go with the prompt of a new loop, as does `project`: what changes in its project's instructions, and
        `shown`: what was found for the prompt, which `knowledge` names for its first turn.
        """
        self._ledger = ledger
        self._address = address
        self._claim = claim
        self._loop = loop
        self._instructions = instructions
        self._files = files
        self._request = request
        self._images = images
        self.kind = RequestKind.PRIMARY
        """Of the turn that begins next."""
        self._project = project
        self._knowledge = knowledge
        self._shown = shown
        self._changed: list[EntryWrite] | None = None
        """What changed on disk, from when it was found until it is written."""

    async def begin(self, *, is_first: bool) -> tuple[Turn, Cursor]:
        """Begin a turn with a call of its own. Raises TurnwrightError; OSError if the project cannot be read."""
        batches = list(in_batches(await self._changes()))
        for batch in batches[:-1]:
            await self._ledger.write(self._address, self._claim.epoch, batch)
        # One by one: each may be as long as a message holds.
        for image in self._images if is_first else ():
            await self._ledger.write(self._address, self._claim.epoch, [image])
        writes = [*(batches[-1] if batches else []), *(self._standing() if is_first else [])]
        request = replace(self._request, kind=self.kind)
        new = TurnStart(replace(request, knowledge=self._knowledge) if is_first else request, writes)
        turn, ack = await self._ledger.begin_turn(self._address, self._claim.epoch, new)
        self.begun()
        return turn, ack.cursor

    async def with_end(self) -> TurnStart | None:
        """How EndTurn opens the next turn; None if it must be begun separately. Raises OSError as `begin` does."""
        changes = await self._changes()
        is_small = len(changes) <= BATCH_WRITES and _chars(changes) <= WITH_END_CHARS_MAX
        return TurnStart(replace(self._request, kind=self.kind), changes) if is_small else None

    def mirrored(self, writes: Iterable[EntryWrite]) -> None:
        """The open turn has written these entries of project files, or will write them with its end."""
        if self._files:
            self._files.mirrored(writes)

    def doubt(self) -> None:
        """Some of the open turn's writes of project files were rejected: look at the files again."""
        if self._files:
            self._files.doubt()

    def begun(self) -> None:
        """The next turn has begun."""
        self._changed, self.kind = None, RequestKind.PRIMARY
        if self._files:
            self._files.written()

    async def _changes(self) -> list[EntryWrite]:
        if self._changed is None:
            self._changed = await self._files.writes() if self._files else []
        return self._changed

    def _standing(self) -> list[EntryWrite]:
        is_new = self._claim.run.turn == 0
        return [
            *([self._files.manifest()] if self._files and is_new else []),
            self._instructions,
            *self._project,
            *self._shown,
            prompt_write(self._loop),
        ]


def _chars(writes: Sequence[EntryWrite]) -> int:
    bodies = (write.change.body or "" for write in writes if isinstance(write.change, SetEntry))
    return sum(map(len, bodies)) + sum(len(write.path) for write in writes)


def turn_request(
    given: RunSettings,
    model: Model,
    tools: Sequence[str],
    settings: LoopSettings,
    temperature: float,
    begun: TurnRequest | None = None,
) -> TurnRequest:
    """The settings of a loop's turns; the store adds those that the run has when each begins.

    `begun` are those of an earlier turn of the loop: changed settings of a run apply from its next loop on.
    """
    window = model.context_length or CONTEXT_LENGTH_DEFAULT
    is_transcript = settings.assembly is Assembly.TRANSCRIPT
    request = TurnRequest(
        model=model.alias,
        vendor_model=model.vendor_model,
        context_length=window,
        temperature=temperature,
        tools=tuple(tools),
        reasoning=settings.reasoning,
        calls=CallStyle.NATIVE if is_transcript else call_style(given.calls, model),
        mode=settings.mode,
        persona=given.persona,
        response_format=settings.response_format,
        kind=RequestKind.PRIMARY,
        assembly=Assembly.TRANSCRIPT if is_transcript else Assembly.PACKET,
        output_reserve=min(model.output_tokens_max, window // RESERVE_PART) if is_transcript else 0,
    )
    if begun is None:
        return request
    return replace(request, calls=begun.calls)


def _form_of_answer(form: AnswerFormat | None) -> str:
    if form is None:
        return ""
    meets = f"meets this JSON Schema:\n{form.schema}" if form.schema else "is an object."
    return f"\n\nThe answer that ends the work, at status 200, is JSON and nothing else. It {meets}"


def prompt_write(loop: Loop) -> EntryWrite:
    """The prompt of a loop, at the number of its first turn."""
    attributes: dict[str, Any] = {"mode": loop.settings.mode.name.lower(), "loop": loop.sequence}
    if images := image_paths(loop):
        attributes[IMAGES] = images
    if loop.settings.synthetic:
        attributes[SYNTHETIC] = True
    change = SetEntry(
        body=loop.prompt + _form_of_answer(loop.settings.response_format),
        attributes_json=to_attributes_json(attributes),
        visibility=Visibility.VISIBLE,
        state=State.RESOLVED,
    )
    return EntryWrite("prompt://{turn}", change, Tier.PLUGIN)


def call_style(wanted: CallStyle, model: Model) -> CallStyle:
    """How the model is to call tools. AUTO is NATIVE if the model is known to support it."""
    is_native = wanted is CallStyle.NATIVE or (wanted is CallStyle.AUTO and model.capabilities.tools is True)
    return CallStyle.NATIVE if is_native else CallStyle.TAGS


def is_to_be_asked_of(model: Model, calls: CallStyle) -> bool:
    """Whether the vendor must be asked about the model, because its alias lacks something that the loop needs."""
    return not model.context_length or (calls is CallStyle.AUTO and model.capabilities.tools is None)


def instructions_write(
    run: Run,
    tools: Mapping[str, str],
    native: Sequence[Mapping[str, Any]] = (),
    *,
    is_brief: bool = False,
    is_transcript: bool = False,
) -> EntryWrite:
    """The write of the run's instructions: tool set, tool documentation, persona. They become the system message.

    `native` are the definitions for native tool calling. Brief instructions are for models with a small window.
    """
    attributes = {
        "persona": run.settings.persona,
        "tools": list(tools),
        **({"native_tools": list(native)} if native else {"tool_docs": dict(tools)}),
        **({"brief": True} if is_brief else {}),
        **({"transcript": True} if is_transcript else {}),
    }
    change = SetEntry(body="", attributes_json=to_attributes_json(attributes), state=State.RESOLVED)
    return EntryWrite(SYSTEM_PATH, change, Tier.SYSTEM)


def begun_with(claim: Claim, loop: Loop) -> TurnRequest | None:
    """The settings of the loop's latest turn that has some."""
    turns = [*claim.recent_turns, *([claim.open_turn] if claim.open_turn else [])]
    return turns[-1].request if turns and turns[-1].loop == loop.sequence else None


def model_of(claim: Claim, loop: Loop) -> Model:
    """The model of a loop. Raises MODEL_NOT_FOUND."""
    if claim.model is None:
        raise fault(
            Reason.MODEL_NOT_FOUND,
            f"The model {loop.settings.model} of this loop is gone. Add it again, or continue the run with another.",
            model=loop.settings.model,
        )
    return claim.model
