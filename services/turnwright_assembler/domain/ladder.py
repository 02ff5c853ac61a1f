"""The demotion ladder for packets that do not fit: before a model call, and after the commands of a turn.

Before a call, measure, demote, and measure again:

    1  the packet fits: nothing happens
    2  visible entries that the previous turn touched are summarized
    3  visible entries that any earlier turn touched are summarized
    4  the loop's prompt is summarized
    5  it still does not fit: the turn ends with 413, and nothing is demoted, because nothing is sent

Step 3 is for runs whose earlier turns had more room: as a transcript, or with a larger context window. Otherwise each
turn has kept its own additions small enough. All go at once, so that there is room for what the model reads next.

After the commands of a turn there is one step: if the next packet would not fit, visible entries that this turn touched
are summarized. This never ends the loop.

Plans and events are never demoted. The loop's prompt is only demoted in step 4, even if an earlier turn brought it,
because the task must stay visible as long as possible. Calibration only affects the comparison.
Source: RU142, RU143, RU212-RU219; decisions C4, C16, C34.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final, Generic, Protocol, TypeVar

from msgspec import Struct

from turnwright_assembler.domain.blocks import Block, summarized

EXEMPT_CATEGORIES: Final = frozenset({"plan", "hidden"})
"""Categories of plan:// and event:// (C34)."""


class Measured(Protocol):
    """The parts of a packet that the ladder uses."""

    @property
    def tokens(self) -> int:
        """Estimated tokens."""


P = TypeVar("P", bound=Measured)
P_co = TypeVar("P_co", bound=Measured, covariant=True)


class Rung(IntEnum):
    """The steps that leave an error entry. Their numbers are stored; they are taken in another order."""

    PREVIOUS_TURN = 2
    PROMPT = 3
    OVERFLOW = 4
    TURN = 5
    """After the commands of a turn, not before a call."""
    EARLIER_TURNS = 6


STEPS: Final = {
    Rung.PREVIOUS_TURN: "previous_turn",
    Rung.EARLIER_TURNS: "earlier_turns",
    Rung.PROMPT: "prompt",
    Rung.OVERFLOW: "overflow",
    Rung.TURN: "turn",
}
"""Names of the steps, in explanations and in paths of error entries."""


class TokenBudget(Struct, frozen=True):
    """Token limit of a packet. `calibration` is reported over estimated tokens of the previous turn; 0 is unknown."""

    ceiling: int
    calibration: float = 0.0

    def expected(self, tokens: int) -> int:
        """The tokens that the vendor is expected to count for an estimate. Source: C16."""
        # Rounded to nearest, so that reported / estimate x estimate gives the reported number.
        return round(tokens * self.calibration) if self.calibration else tokens

    def excess(self, tokens: int) -> int:
        """Tokens above the ceiling; 0 if the packet fits, including exactly."""
        return max(0, self.expected(tokens) - self.ceiling)


class LadderStep(Struct, frozen=True):
    """A step of the ladder that was taken."""

    rung: Rung
    demoted: tuple[str, ...]
    """Paths, in the packet's order; in an overflow those that were tried, and stay as they are."""
    tokens: int
    """Expected tokens of the packet before the step; in an overflow of what would be left."""
    excess: int
    """How far above the ceiling that was."""


class LadderResult(Struct, Generic[P_co], frozen=True):
    """The resulting packet, and the steps taken."""

    packet: P_co
    steps: tuple[LadderStep, ...]

    @property
    def overflow(self) -> bool:
        return any(step.rung is Rung.OVERFLOW for step in self.steps)

    @property
    def demoted(self) -> tuple[str, ...]:
        """Every path that was demoted, each once."""
        return tuple(path for step in self.steps if step.rung is not Rung.OVERFLOW for path in step.demoted)


def climb(
    packet: P,
    blocks: tuple[Block, ...],
    turn: int,
    prompt: str | None,
    budget: TokenBudget,
    compose: Callable[[tuple[Block, ...]], P],
) -> LadderResult[P]:
    """Demote blocks step by step until the packet fits; `prompt` is the path of the loop's prompt."""
    whole = packet
    steps: list[LadderStep] = []
    gone: tuple[str, ...] = ()
    for rung in (Rung.PREVIOUS_TURN, Rung.EARLIER_TURNS, Rung.PROMPT):
        excess = budget.excess(packet.tokens)
        if not excess:
            break
        demoted = tuple(block.path for block in blocks if _falls(block, rung, turn, prompt))
        if not demoted:
            continue
        steps.append(LadderStep(rung, demoted, budget.expected(packet.tokens), excess))
        gone += demoted
        falling = frozenset(demoted)
        blocks = tuple(summarized(block) if block.path in falling else block for block in blocks)
        packet = compose(blocks)
    if excess := budget.excess(packet.tokens):
        return LadderResult(whole, (LadderStep(Rung.OVERFLOW, gone, budget.expected(packet.tokens), excess),))
    return LadderResult(packet, tuple(steps))


def turn_demotion(
    blocks: tuple[Block, ...], turn: int, prompt: str | None, budget: TokenBudget, packet: Measured
) -> LadderStep | None:
    """What to demote after a turn's commands, if `packet`, the next one, does not fit; None: nothing."""
    excess = budget.excess(packet.tokens)
    demoted = tuple(block.path for block in blocks if _falls(block, Rung.TURN, turn, prompt)) if excess else ()
    return LadderStep(Rung.TURN, demoted, budget.expected(packet.tokens), excess) if demoted else None


def _falls(block: Block, rung: Rung, turn: int, prompt: str | None) -> bool:
    if not block.is_visible or block.category in EXEMPT_CATEGORIES:
        return False
    if rung is Rung.PROMPT or block.path == prompt:
        return rung is Rung.PROMPT and block.path == prompt
    if rung is Rung.EARLIER_TURNS:
        return block.turn < turn - 1
    return block.turn == (turn if rung is Rung.TURN else turn - 1)
