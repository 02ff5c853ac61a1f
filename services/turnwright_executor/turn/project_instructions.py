"""AGENTS.md and CLAUDE.md: read when a loop begins, and kept as an entry, so that all of its turns read the same.

Packets are made of the entry, never of the file: what was sent can be assembled again, and a file that changes during a
loop changes no prompt before the next one.
"""

from __future__ import annotations

from turnwright_core.entries import (
    Entry,
    EntryWrite,
    RemoveEntry,
    SetEntry,
    State,
    Tier,
    Visibility,
    to_attributes_json,
)
from turnwright_core.instructions import PROJECT_PATH
from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.project_instructions import (
    FILES,
    InstructionFile,
    ProjectInstructions,
    project_instructions,
)
from turnwright_executor.ports.ledger import Ledger
from turnwright_executor.tools.ports import OutsideProjectError, Workspace


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
