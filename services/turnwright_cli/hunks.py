"""Accepting some hunks of a proposed change: the others are left out, and the model reads why."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from msgspec import Struct
from turnwright.executor.v1 import proposal_pb2 as inbox_pb2
from turnwright.types.v1 import proposal_pb2

from turnwright_cli.plain import safe_line
from turnwright_core.patterns.patch import PatchHunk, hunks_of, without_hunks

QUESTION: Final = "this hunk: [y]es, [n]o, [a]ll from here on, [d]one, none from here on?"
ANSWERS: Final = "Answer with y, n, a or d; Ctrl-D leaves the decision for later."
REASON: Final = "why not the others? (for the model; Enter: no reason):"

Ask = Callable[[str], Awaitable[str | None]]


class PickedHunks(Struct, frozen=True):
    """What was accepted: the contents of files of which hunks are left out, and a comment for the model.

    Without `accept`, nothing was.
    """

    accept: bool
    contents: dict[str, str]
    comment: str


def can_pick(proposal: proposal_pb2.Proposal) -> bool:
    """Whether all that it does is to change files, in several hunks.

    A file that comes or goes does so as a whole, and a diff that was cut does not have all hunks.
    """
    modify = proposal_pb2.FILE_CHANGE_KIND_MODIFY
    changes = proposal.files.changes
    return all(one.kind == modify for one in changes) and sum(one.patch.count("\n@@ ") for one in changes) > 1


async def picked(
    answer: inbox_pb2.GetProposalResponse, ask: Ask, show: Callable[[str, str], None]
) -> PickedHunks | str | None:
    """Ask about each hunk; None leaves the decision for later, a text says why it cannot be taken.

    `show` prints a title and a hunk.
    """
    proposed = {one.path: one.content for one in answer.contents}
    changes = answer.proposal.files.changes
    try:
        hunks = [(one.path, hunk) for one in changes for hunk in hunks_of(one.patch)]
    except ValueError:
        return "The diff is too long to be accepted in parts; edit it instead."
    left = await _left_out(hunks, ask, show)
    if left is None:
        return None
    contents = {}
    for path in {path for path, _ in left}:
        text = without_hunks(proposed.get(path, ""), [hunk for at, hunk in left if at == path])
        if text is None:
            return f"The diff of {safe_line(path)} does not fit its content; edit it instead."
        contents[path] = text
    if not left:
        return PickedHunks(accept=True, contents={}, comment="")
    reason = await ask(REASON)
    if reason is None:
        return None
    summary = f"{len(left)} of {len(hunks)} hunks were left out."
    return PickedHunks(len(left) < len(hunks), contents, f"{summary} {reason.strip()}".strip())


async def _left_out(
    hunks: list[tuple[str, PatchHunk]], ask: Ask, show: Callable[[str, str], None]
) -> list[tuple[str, PatchHunk]] | None:
    left: list[tuple[str, PatchHunk]] = []
    for index, (path, hunk) in enumerate(hunks):
        show(f"{safe_line(path)}, hunk {index + 1} of {len(hunks)}", hunk.text)
        while True:
            word = await ask(QUESTION)
            if word is None:
                return None
            match word.strip().lower():
                case "y" | "yes":
                    break
                case "n" | "no":
                    left.append((path, hunk))
                    break
                case "a" | "all":
                    return left
                case "d" | "done":
                    return [*left, *hunks[index:]]
                case _:
                    show(ANSWERS, "")
    return left
