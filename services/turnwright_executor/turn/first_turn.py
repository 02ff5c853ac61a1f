"""What the first turn of a run would begin with, for a preview: its settings and entries. Nothing is written."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct

from turnwright_core.entries import EntryWrite, SetEntry, Visibility
from turnwright_core.models import Model
from turnwright_core.runs import Assembly, CallStyle, Loop, Run, Turn, TurnRequest
from turnwright_core.turn_settings import with_settings_of_run
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.project_instructions import bytes_max
from turnwright_executor.tools.native import native_tools
from turnwright_executor.tools.ports import Workspace
from turnwright_executor.turn.knowledge import find_knowledge
from turnwright_executor.turn.loop_scope import Services, with_tools_of
from turnwright_executor.turn.opener import instructions_write, is_to_be_asked_of, prompt_write, turn_request
from turnwright_executor.turn.project_files import FileSync, in_batches
from turnwright_executor.turn.project_instructions import project_instruction_writes

BRIEF_BELOW_TOKENS: Final = 16_384
"""Context window, in tokens, below which a model gets short instructions: the long ones would fill a third of 8,192."""


class FirstTurn(Struct, frozen=True):
    """The turn as it would begin, and what would be written with it."""

    turn: Turn
    writes: tuple[EntryWrite, ...]


def run_instructions(services: Services, run: Run, request: TurnRequest, tools: Sequence[str]) -> EntryWrite:
    """The write of a run's instructions, for the settings of a turn and the tools that its loop offers."""
    is_brief = request.context_length < BRIEF_BELOW_TOKENS
    docs = services.tool_docs_brief if is_brief else services.tool_docs
    texts = {name: docs[name] for name in tools}
    native = native_tools(services.tools, texts) if request.calls is CallStyle.NATIVE else ()
    is_transcript = request.assembly is Assembly.TRANSCRIPT
    return instructions_write(run, texts, native, is_brief=is_brief, is_transcript=is_transcript)


async def first_turn(
    services: Services,
    address: RunAddress,
    run: Run,
    loop: Loop,
    model: Model,
    place: tuple[Workspace, FileSync] | None,
) -> FirstTurn:
    """The first turn of a run, with this loop. Without a place nothing of the project is read.

    Raises TurnwrightError.
    """
    services, tools = with_tools_of(services, loop.settings)
    settings, wanted = services.settings, loop.settings
    if is_to_be_asked_of(model, run.settings.calls):
        model = await services.models.describe(model)
    standing = turn_request(run.settings, model, tools, wanted, settings.temperature)
    request = with_settings_of_run(standing, run.settings)
    workspace, files = (None, None) if wanted.no_repo or place is None else place
    reads = settings.project_instructions and wanted.project_instructions is not False
    limit = bytes_max(request.context_length, settings.token_divisor)
    project = await project_instruction_writes(
        services.ledger, address, workspace if reads else None, limit, may_have=False
    )
    found = await find_knowledge(services.ledger, address, loop, settings.knowledge_tokens_max, settings.token_divisor)
    writes = [*await _shown(files), run_instructions(services, run, request, tools), *project, *found[1]]
    prompt = [prompt_write(loop)] if loop.prompt else []
    return FirstTurn(Turn(1, loop.sequence, request), (*writes, *prompt))


async def _shown(files: FileSync | None) -> list[EntryWrite]:
    """What the model is shown of the project's files at once: those that the project includes, and the list of all."""
    if files is None:
        return []
    changes = ((write, write.change) for write in await files.writes())
    shown = [
        write
        for write, change in changes
        if isinstance(change, SetEntry) and change.initial_visibility is Visibility.VISIBLE
    ]
    return [*next(in_batches(shown), []), files.manifest()]
