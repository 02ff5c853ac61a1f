"""Asks a person at the terminal to decide on a proposal, without blocking the run's events."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from msgspec import Struct, field
from turnwright.types.v1 import proposal_pb2

from turnwright_cli.editing import can_pick
from turnwright_cli.effects import is_cut
from turnwright_cli.plain import shown_line
from turnwright_core.limits import COMMENT_BYTES_MAX

if TYPE_CHECKING:
    from turnwright_cli.keyboard import Keyboard

SHOW: Final = "[s]how all, "
"""Offered if the terminal shows only a part."""
HUNKS: Final = "by [h]unk, "
"""Offered if a change has several."""
ACCEPT: Final = "[a]ccept, "
QUESTION: Final = "[r]eject, reject with [c]omment, [e]dit, {}accept a[l]l?"
KIND: Final = "always this [k]ind ({}), "
"""Offered if a rule can say it; with its patterns."""
ANSWER: Final = "your answer (Ctrl-D leaves it for later):"
COMMENT: Final = "comment for the model:"
ANSWERS: Final = "Answer with one of the letters in brackets; Ctrl-D leaves the decision for later."


class PromptDecision(Struct, frozen=True):
    """Accept, or reject with or without a comment.

    An acceptance may have other `contents`, by path, or the `answer` to a question; with `edits` an editor is opened on
    the proposed content first, with `picks` its hunks are accepted one by one. `shows` does not decide: the whole
    proposal is shown first. `always`: rules of the run accept others of its kind.
    """

    accept: bool
    comment: str = ""
    contents: Mapping[str, str] = field(default_factory=dict)
    answer: str = ""
    edits: bool = False
    picks: bool = False
    shows: bool = False
    always: bool = False


_DECISIONS: Final[Mapping[str, PromptDecision]] = {
    **dict.fromkeys(("a", "accept", "y", "yes"), PromptDecision(accept=True)),
    **dict.fromkeys(("r", "reject", "n", "no"), PromptDecision(accept=False)),
    **dict.fromkeys(("e", "edit"), PromptDecision(accept=True, edits=True)),
    **dict.fromkeys(("h", "hunk", "hunks"), PromptDecision(accept=True, picks=True)),
    **dict.fromkeys(("s", "show"), PromptDecision(accept=False, shows=True)),
}


class Prompter:
    """Asks the person at the terminal: after `accept all` no more."""

    def __init__(self, keyboard: Keyboard, say: Callable[[str], None]) -> None:
        self.ask: Final = keyboard.ask
        self.away: Final = keyboard.released
        self._say = say
        self._accepts_all = False

    async def decide(self, proposal: proposal_pb2.Proposal) -> PromptDecision | None:
        """The decision; None to leave it for later. The proposal has been shown."""
        if proposal.HasField("question"):
            return await self._answered(proposal.question.options)
        kind = KIND.format(kind_words(proposal)) * bool(proposal.kind_targets)
        question = SHOW * is_cut(proposal) + ACCEPT + HUNKS * can_pick(proposal) + QUESTION.format(kind)
        while not self._accepts_all:
            word = await self.ask(question, one_key=True)
            if word is None:
                return None
            word = word.strip().lower()
            if word in ("c", "comment"):
                return await self._commented()
            if word in ("l", "all"):
                self._accepts_all = True
            elif word in ("k", "kind") and kind:
                return PromptDecision(accept=True, always=True)
            elif word in _DECISIONS and not (_DECISIONS[word].picks and not can_pick(proposal)):
                return _DECISIONS[word]
            else:
                self._say(ANSWERS)
        return PromptDecision(accept=True)

    async def _commented(self) -> PromptDecision | None:
        comment: str | None = ""
        while comment is not None and not comment.strip():
            # Who presses Enter after the letter has not said anything yet.
            comment = await self.ask(COMMENT, typed_ahead=True)
        return None if comment is None else PromptDecision(accept=False, comment=cut_comment(comment.strip()))

    async def _answered(self, options: Sequence[str]) -> PromptDecision | None:
        """The answer to a question; a number selects the option with that number."""
        while True:
            line = await self.ask(ANSWER)
            if line is None:
                return None
            if text := line.strip():
                chosen = int(text) - 1 if text.isascii() and text.isdecimal() and len(text) < 3 else -1
                return PromptDecision(
                    accept=True, answer=options[chosen] if 0 <= chosen < len(options) else cut_comment(text)
                )


def kind_words(proposal: proposal_pb2.Proposal) -> str:
    """The effects that are of the kind of one: `git add *`, or the name of its tool."""
    return ", ".join(shown_line(target) or proposal.tool for target in proposal.kind_targets)


def cut_comment(text: str) -> str:
    """The comment, truncated to the limit of the contract."""
    return text.encode("utf-8", "replace")[:COMMENT_BYTES_MAX].decode("utf-8", "ignore")
