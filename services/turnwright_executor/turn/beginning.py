"""How a loop begins: the settings of its turns, and what its first turn writes; for a preview of it, too.

Source: architecture 2, 12.1; rows RU074, RU195-RU199; decision C31.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace
from turnwright_values.store import ClaimRunResponse, EntryWrite, RemoveEntry, SetEntry
from turnwright_values.types import (
    Assembly,
    CallStyle,
    Entry,
    Loop,
    LoopSettings,
    Model,
    RequestKind,
    ResponseFormat,
    Run,
    RunSettings,
    SearchHit,
    State,
    Tier,
    Turn,
    TurnRequest,
    Visibility,
)

from turnwright_core.chat.timeline import APPENDED, IMAGES, KNOWLEDGE_TOOL, SYNTHETIC
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.instructions import PROJECT_PATH, SYSTEM_PATH
from turnwright_core.json_text import JsonObject
from turnwright_core.limits import CONTEXT_LENGTH_DEFAULT, SEARCH_QUERY_CHARS_MAX
from turnwright_core.models import window_of
from turnwright_core.text import count_tokens
from turnwright_core.turn_settings import with_settings_of_run
from turnwright_core.value_methods import to_attributes_json
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.project_instructions import (
    FILES,
    InstructionFile,
    ProjectInstructions,
    bytes_max,
    project_instructions,
)
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.tools.native import native_tools
from turnwright_executor.tools.ports import OutsideProjectError, Workspace
from turnwright_executor.tools.registry import texts_of
from turnwright_executor.tools.tool_search import SEARCH_TOOLS
from turnwright_executor.turn.images import image_paths
from turnwright_executor.turn.loop_scope import Services, is_native, tools_begun_with, with_tools_of
from turnwright_executor.turn.project_files import FileSync, in_batches
from turnwright_kit.logs import get_logger

# AGENTS.md and CLAUDE.md: read when a loop begins, and kept as an entry, so that all of its turns read the same.
#
# Packets are made of the entry, never of the file: what was sent can be assembled again, and a file that changes during
# a loop changes no prompt before the next one.


async def project_instruction_writes(
    ledger: Ledger, address: RunAddress, workspace: Workspace | None, bytes_max: int, *, may_have: bool
) -> tuple[EntryWrite, ...]:
    """What a loop that begins writes of its project's instructions: nothing if they are as the run has them.

    Without a `workspace` they are off. `may_have`: whether the run may have some from an earlier loop.
    """
    found = await _read(workspace, bytes_max) if workspace else None
    entries = await ledger.get_entries(address, [PROJECT_PATH]) if may_have else []
    before = entries[0] if entries else None
    if found is None:
        return (EntryWrite(PROJECT_PATH, RemoveEntry(), Tier.SYSTEM),) if before else ()
    if before and _is_same(before, found):
        return ()
    change = SetEntry(
        body=found.text,
        attributes_json=to_attributes_json(found.attributes),
        visibility=Visibility.VISIBLE,
        state=State.RESOLVED,
    )
    return (EntryWrite(PROJECT_PATH, change, Tier.SYSTEM),)


def _is_same(entry: Entry, found: ProjectInstructions) -> bool:
    is_shown = entry.visibility is Visibility.VISIBLE
    return is_shown and entry.body == found.text and entry.attributes == found.attributes


async def _read(workspace: Workspace, bytes_max: int) -> ProjectInstructions | None:
    files = [file for name in FILES if (file := await _file(workspace, name))]
    return project_instructions(files, bytes_max)


async def _file(workspace: Workspace, name: str) -> InstructionFile | None:
    """A file at the root of the project; None if there is none."""
    try:
        path, found = await workspace.find(name)
    except (OutsideProjectError, OSError) as error:
        return InstructionFile(name, problem=str(error))
    if found is None:
        return None
    if found.text is None:
        problem = "neither UTF-8 nor UTF-16 text, or larger than TURNWRIGHT_FILE_BYTES_MAX"
        return InstructionFile(path, problem=f"{path} is {problem}.")
    return InstructionFile(path, found.text, found.hash)


# Knowledge of the project for a loop: entries that the words of its prompt find in the store's full-text search.
#
# Searched once, when the loop begins. What was found is written as an entry of the log before the prompt: a message of
# transcripts, and in packets a part of `<log>`, as long as there is room for it. The hits are stored on the turn.
# Source: architecture 4; row RL01; issue 15.6.

KNOWLEDGE_PATH: Final = "log://turn_{turn}/knowledge"

HITS_MAX: Final = 20
"""Maximum number of entries that are searched for."""

SCORE_SHARE_MIN: Final = 0.25
"""Entries are left out whose score is below this share of the best one's: they have only words that many have."""

HEAD: Final = "Found in the project by words of the prompt, best first. `get` a path to read all of it.\n"

_log = get_logger("knowledge")


async def find_knowledge(
    ledger: Ledger, address: RunAddress, loop: Loop, tokens_max: int, divisor: int
) -> tuple[tuple[SearchHit, ...], list[EntryWrite]]:
    """The hits for a loop, and the write that shows them; as many as fit into this many tokens. Raises nothing."""
    query = loop.prompt[:SEARCH_QUERY_CHARS_MAX]
    if not tokens_max or not query.strip():
        return (), []
    try:
        found = await ledger.search(address.project, query, HITS_MAX)
    except TurnwrightError as error:
        # A loop that begins without knowledge is better than none.
        _log.warning("knowledge_search_failed", run=address.run, reason=error.reason.name)
        return (), []
    shown = _fitting(found, tokens_max, divisor)
    if not shown:
        return (), []
    hits = tuple(replace(one, snippet="") for one, _ in shown)
    change = SetEntry(
        body=HEAD + "".join(text for _, text in shown),
        attributes_json=to_attributes_json({"tool": KNOWLEDGE_TOOL, "target": f"{len(hits)} found"}),
        visibility=Visibility.VISIBLE,
        state=State.RESOLVED,
    )
    return hits, [EntryWrite(KNOWLEDGE_PATH, change, Tier.PLUGIN)]


def _fitting(found: Sequence[SearchHit], tokens_max: int, divisor: int) -> Sequence[tuple[SearchHit, str]]:
    """The entries, best first, with their texts, as long as these fit."""
    left = tokens_max - count_tokens(HEAD, divisor)
    score_min = SCORE_SHARE_MIN * max((one.score for one in found), default=0.0)
    shown: list[tuple[SearchHit, str]] = []
    for one in (one for one in found if one.score >= score_min):
        passage = " ".join(one.snippet.split())
        text = f"* {one.path}: {passage}\n"
        left -= count_tokens(text, divisor)
        if left < 0:
            break
        shown.append((one, text))
    return shown


RESERVE_PART: Final = 4
"""A transcript keeps room for the longest reply of the model, but at most one part in so many of the window."""

BRIEF_BELOW_TOKENS: Final = 16_384
"""Context window, in tokens, below which a model gets short instructions: the long ones would fill a third of 8,192."""


class LoopBeginning(Struct, frozen=True):
    """What the first turn of a loop writes, beside files of the project."""

    writes: tuple[EntryWrite, ...]
    """Instructions of the run and of the project, what was found for the prompt, and the prompt."""
    knowledge: tuple[SearchHit, ...]
    """What was found for the prompt."""
    images: Sequence[EntryWrite] = ()
    """Those that the loop names, one write each."""


async def loop_beginning(
    services: Services,
    address: RunAddress,
    run: Run,
    loop: Loop,
    loop_request: TurnRequest,
    tools: Sequence[str],
    workspace: Workspace | None,
    tools_before: str = "",
) -> LoopBeginning:
    """What a loop begins with, if its turns have these settings and tools; without its images.

    Without a workspace nothing of the project is read. `tools_before`: the version of the tools of servers that the
    run has kept. Raises TurnwrightError.
    """
    settings, wanted = services.settings, loop.settings
    request = with_settings_of_run(loop_request, run.settings)
    reads = settings.project_instructions and wanted.project_instructions is not False
    project = await project_instruction_writes(
        services.ledger,
        address,
        workspace if reads else None,
        bytes_max(request.context_length, settings.token_divisor),
        may_have=run.turn > 0,
    )
    knowledge, found = await find_knowledge(
        services.ledger, address, loop, settings.knowledge_tokens_max, settings.token_divisor
    )
    prompt = [prompt_write(loop)] if loop.prompt else []
    kept = [services.snapshot.write()] if services.snapshot.version not in ("", tools_before) else []
    instructions = run_instructions(services, run, request, tools)
    return LoopBeginning((instructions, *kept, *project, *found, *prompt), knowledge)


async def first_turn(
    services: Services,
    address: RunAddress,
    run: Run,
    loop: Loop,
    model: Model,
    place: tuple[Workspace, FileSync] | None,
) -> tuple[Turn, list[EntryWrite]]:
    """The first turn of a run as it would begin with this loop, and what would be written: nothing is.

    Without a place nothing of the project is read. Raises TurnwrightError.
    """
    model = await with_vendor_limits(services, model, run.settings.calls)
    kept = await tools_begun_with(services, address.project, model, run.settings)
    services, tools = with_tools_of(services, run, loop.settings, kept)
    loop_request = turn_request(run.settings, model, tools, loop.settings, services.settings.temperature)
    loop_request = replace(loop_request, tools_version=services.snapshot.version)
    workspace, files = (None, None) if loop.settings.no_repo or place is None else place
    beginning = await loop_beginning(services, address, run, loop, loop_request, tools, workspace)
    turn = Turn(1, loop.sequence, with_settings_of_run(loop_request, run.settings))
    return turn, [*await _shown(files), *beginning.writes]


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


async def with_vendor_limits(services: Services, model: Model, calls: CallStyle) -> Model:
    """The model, with what its vendor says if its alias lacks something that the loop needs."""
    lacks = not model.context_length or (calls is CallStyle.AUTO and model.capabilities.tools is None)
    return await services.models.describe(model) if lacks else model


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
    window = window_of(model) or CONTEXT_LENGTH_DEFAULT
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
        output_reserve=output_reserve(model.output_tokens_max, window) if is_transcript else 0,
    )
    return request if begun is None else replace(request, calls=begun.calls)


def output_reserve(output_tokens_max: int, context_length: int) -> int:
    """Tokens of a window that are kept free for the reply."""
    return min(output_tokens_max, context_length // RESERVE_PART)


def _form_of_answer(form: ResponseFormat | None) -> str:
    if form is None:
        return ""
    meets = f"meets this JSON Schema:\n{form.schema}" if form.schema else "is an object."
    return f"\n\nThe answer that ends the work, at status 200, is JSON and nothing else. It {meets}"


def prompt_write(loop: Loop) -> EntryWrite:
    """The prompt of a loop, at the number of its first turn."""
    attributes: JsonObject = {"mode": loop.settings.mode.name.lower(), "loop": loop.sequence}
    if images := image_paths(loop):
        attributes[IMAGES] = images
    if loop.settings.synthetic:
        attributes[SYNTHETIC] = True
    if appended := _form_of_answer(loop.settings.response_format):
        attributes[APPENDED] = appended
    change = SetEntry(
        body=loop.prompt + appended,
        attributes_json=to_attributes_json(attributes),
        visibility=Visibility.VISIBLE,
        state=State.RESOLVED,
    )
    return EntryWrite("prompt://{turn}", change, Tier.PLUGIN)


def call_style(wanted: CallStyle, model: Model) -> CallStyle:
    """How the model is to call tools. AUTO is NATIVE if the model is known to support it."""
    return CallStyle.NATIVE if is_native(wanted, model) else CallStyle.TAGS


def run_instructions(services: Services, run: Run, request: TurnRequest, tools: Sequence[str]) -> EntryWrite:
    """The write of the run's instructions: tool set, tool documentation, persona. They become the system message."""
    is_brief = request.context_length < BRIEF_BELOW_TOKENS
    by_names = services.snapshot.tools if SEARCH_TOOLS in tools else {}
    texts = texts_of({name: services.tools[name] for name in tools if name not in by_names}, is_brief=is_brief)
    native = native_tools(services.tools, texts) if request.calls is CallStyle.NATIVE else ()
    attributes = {
        # Not even as null: that is what keeps long attributes from the fast encoder.
        **({} if run.settings.persona is None else {"persona": run.settings.persona}),
        "tools": list(texts),
        **({"native_tools": list(native)} if native else {"tool_docs": texts}),
        **({"brief": True} if is_brief else {}),
        **({"transcript": True} if request.assembly is Assembly.TRANSCRIPT else {}),
    }
    change = SetEntry(body="", attributes_json=to_attributes_json(attributes), state=State.RESOLVED)
    return EntryWrite(SYSTEM_PATH, change, Tier.SYSTEM)


def begun_with(claim: ClaimRunResponse, loop: Loop) -> TurnRequest | None:
    """The settings of the loop's latest turn that has some."""
    turns = [*claim.recent_turns, *([claim.open_turn] if claim.open_turn else [])]
    return turns[-1].request if turns and turns[-1].loop == loop.sequence else None


def model_of(claim: ClaimRunResponse, loop: Loop) -> Model:
    """The model of a loop. Raises MODEL_NOT_FOUND."""
    if claim.model is None:
        raise fault(
            Reason.MODEL_NOT_FOUND,
            f"The model {loop.settings.model} of this loop is gone. Add it again, or continue the run with another.",
            model=loop.settings.model,
        )
    return claim.model
