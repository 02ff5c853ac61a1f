"""The contract of a tool: what it is given, what it may answer.

A tool has two beats. `prepare` looks at the command and either settles it or names the effect it wants; it changes
nothing in the world. `perform` carries out an effect that was accepted, now or in a later process. A tool finalises
its own record and nothing else: it returns what its record shall say and which entries change with it, and the
pipeline writes both together (row RU157). Failures are outcomes, not exceptions; an exception is a crash of the tool.
Source: architecture 6; rows RU029, RU149-RU157.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from msgspec import Struct, field

from turnwright_core.entries import Entry, EntryWrite, State

if TYPE_CHECKING:
    from turnwright_core.runs import AnswerFormat, Mode
    from turnwright_core.schemes import Scheme
    from turnwright_executor.domain.effects import Effect, EffectClass
    from turnwright_executor.tools.parameters import ToolParameter
    from turnwright_executor.tools.ports import Plans, Shell, Workspace
    from turnwright_grammar import Command


class Done(Struct, frozen=True):
    """A settled command: what its record says from now on, and the entries that change with it.

    `attributes` are merged into those of the record. `outcome` is `word:code`, empty when resolved.
    """

    body: str
    state: State = State.RESOLVED
    outcome: str = ""
    attributes: Mapping[str, Any] = field(default_factory=dict)
    writes: tuple[EntryWrite, ...] = ()


class Proposed(Struct, frozen=True):
    """A command that wants an effect on the world; `body` is shown with the proposal."""

    effect: Effect
    body: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    needs_decision: bool = True
    """False where the effect cannot harm: it happens without anybody's decision."""


def failed(outcome: str, body: str, **attributes: Any) -> Done:
    """A command that failed: `failed("not_found:404", "src/x.py is not in the project.")`."""
    return Done(body, State.FAILED, outcome, attributes)


class Entries(Protocol):
    """The run's view of the store, with everything that earlier commands of the turn wrote."""

    async def get(self, paths: Sequence[str]) -> list[Entry]:
        """The entries that exist among these paths, in their order."""

    async def find(
        self, pattern: str, body_pattern: str = "", *, limit: int = 1000, bodies: bool = True, files_only: bool = False
    ) -> list[Entry]:
        """The entries whose path matches, and whose body contains the body pattern; path order.

        Without `bodies` each body is empty and only `body_size_bytes` tells its length. `files_only`: of project files;
        `**` matches the paths of all other entries too.
        """

    def scheme(self, name: str) -> Scheme:
        """The rules of a scheme, registered ones included, as of the turn's begin."""

    async def write(self, writes: Sequence[EntryWrite]) -> None:
        """Write at once, before the command is settled: for output that grows."""


async def never(_paths: Sequence[str]) -> None:
    await asyncio.Event().wait()


class Context(Struct, frozen=True):
    """What a tool knows of the turn it works in."""

    turn: int
    loop: int
    mode: Mode
    yolo: bool
    record_path: str
    """Path of the command's own record, `log://turn_N/{tool}/{slug}`."""
    entries: Entries
    workspace: Workspace
    shell: Shell
    plans: Plans
    key: str = ""
    """The same at every attempt of an idempotent command: who carries it out recognises it by that; else empty."""
    ended: Callable[[Sequence[str]], Coroutine[Any, Any, None]] = never
    """Returns when somebody else has ended one of these growing entries: whoever fills them has to stop."""
    epoch: int = 0
    """Grows with each owner of the run: who carries something out for an executor refuses those before the latest.
    0: no lease holds the command, because a client called it."""
    no_web: bool = False
    """Whether nothing may be fetched: the task said so."""
    response_format: AnswerFormat | None = None
    """The form that the answer of the loop must have."""
    is_transcript: bool = False
    """Whether results have to contain what they show: the model is sent no packet that would."""


class Tool(Protocol):
    """One tool. Its module also has the text that the model reads, `{name}.md`, beside it."""

    name: str
    effect_class: EffectClass
    """What an interrupted command of this tool means for whoever goes on."""

    @property
    def parameters(self) -> Sequence[ToolParameter]:
        """What its commands take."""

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Settle the command, or say what it wants to do. Changes nothing in the world."""

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done:
        """Carry out an accepted effect. May be called again after a crash unless OUTSIDE."""
