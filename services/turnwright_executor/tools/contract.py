"""The contract of a tool: its inputs, and its possible answers.

A tool has two steps. `prepare` either settles the command or returns the effect that it proposes; it has no effect
outside the store. `perform` carries out an accepted effect, possibly in a later process. A tool only returns the
content of its record and the entries that change with it, and the pipeline writes both together (row RU157). Failures
are outcomes; an exception other than RefusedError counts as a crash of the tool.
Source: architecture 6; rows RU029, RU149-RU157.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from msgspec import Struct, field
from turnwright_values.store import EntryWrite
from turnwright_values.types import Entry

from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.json_text import JsonMapping
from turnwright_executor.domain.command_record import Done, failed

if TYPE_CHECKING:
    from turnwright_values.types import Mode, ResponseFormat

    from turnwright_core.schemes import Scheme
    from turnwright_executor.domain.effects import Effect, EffectClass
    from turnwright_executor.tools.parameters import ToolParameter
    from turnwright_executor.tools.ports import Agents, Plans, Shell, ToolModels, Workspace
    from turnwright_grammar.reply import Command

A = TypeVar("A")


class Proposed(Struct, frozen=True):
    """A command that wants an effect; `body` is shown with the proposal."""

    effect: Effect
    body: str
    attributes: JsonMapping = field(default_factory=dict)
    needs_decision: bool = True
    """False if the effect cannot do harm: it happens without a decision."""


class RefusedError(Exception):
    """Raised by a step of a tool for a command that cannot be carried out; `done` is its result."""

    def __init__(self, done: Done) -> None:
        super().__init__(done.body)
        self.done = done


class OutcomeUnknownError(Exception):
    """Raised by `perform` when contact to where the effect happens was lost: it may have happened, or not."""


class WaitingError(Exception):
    """Raised by `perform` where the result is yet to come: the loop is parked, and `perform` called once more then."""

    def __init__(self, effect: Effect, body: str) -> None:
        super().__init__(body)
        self.effect = effect
        self.body = body


async def result_of(step: Awaitable[A]) -> A | Done:
    """The answer of a tool's step, which may refuse the command."""
    try:
        return await step
    except RefusedError as refused:
        return refused.done


def refusal(outcome: str, body: str) -> RefusedError:
    """The error that settles a command as `failed(outcome, body)`."""
    return RefusedError(failed(outcome, body))


async def answered(
    asked: Awaitable[A], outcomes: Mapping[Reason, str], advice: Mapping[Reason, str] = MappingProxyType({})
) -> A:
    """Await the store's answer. Raises RefusedError, with what to do, for errors that the command has caused."""
    try:
        return await asked
    except TurnwrightError as error:
        if error.reason not in outcomes:
            raise
        raise refusal(outcomes[error.reason], error.message + advice.get(error.reason, "")) from None


class Entries(Protocol):
    """The run's view of the store, including everything that earlier commands of the turn wrote."""

    async def get(self, paths: Sequence[str]) -> list[Entry]:
        """The entries that exist among these paths, in order."""

    async def find(
        self, pattern: str, body_pattern: str = "", *, limit: int = 1000, bodies: bool = True, files_only: bool = False
    ) -> list[Entry]:
        """The entries whose path matches, and whose body contains the body pattern; path order.

        Without `bodies` each body is empty and only `body_size_bytes` tells its length. `files_only`: of project files;
        `**` matches the paths of all other entries too.
        """

    def scheme(self, name: str) -> Scheme:
        """The rules of a scheme, including registered ones, as of the begin of the turn."""

    async def write(self, writes: Sequence[EntryWrite]) -> None:
        """Write at once, before the command is settled: for growing output."""


async def never_repeats(_paths: Sequence[str]) -> None:
    await asyncio.Event().wait()


def noop(*_: object) -> None:
    """The default of callbacks."""


class Context(Struct, frozen=True):
    """What a tool knows about the turn it works in: made once a turn, except for the fields of the command."""

    turn: int
    loop: int
    mode: Mode
    entries: Entries
    workspace: Workspace
    shell: Shell
    plans: Plans
    agents: Agents | None = None
    """The agents of the loop; None where none can be started."""
    models: ToolModels | None = None
    """Models that the command's tool may have asked; None for a client's command, for which no budget pays."""
    record_path: str = ""
    """Path of the command's own record, `log://turn_N/{tool}/{slug}`."""
    key: str = ""
    """Idempotency key, the same at every attempt of an idempotent command; else empty."""
    ended: Callable[[Sequence[str]], Coroutine[Any, Any, None]] = never_repeats
    """Returns when somebody else has ended one of these streaming entries: their producer must stop."""
    not_started: Callable[[], None] = noop
    """To be called before an error leaves `perform` if its outside effect has not started: it is not in doubt then."""
    stopped: Callable[[Done], None] = noop
    """To be called before a cancellation leaves `perform`, if there is more to say of it than that it was stopped."""
    epoch: int = 0
    """Fencing token: increases with each owner of the run, so that external systems can refuse an older one.

    0: a client's command, which holds no lease.
    """
    is_owners: bool = True
    """Whether the person behind the command is the home's owner: who decided on it, else who asked for the loop."""
    network: bool = True
    """Whether what it runs may use the network: the owner's may, another's where a rule of the project allows it."""
    yolo: bool = False
    """Whether nobody reviews what the command does."""
    project: str = ""
    run: str = ""
    principal: str = ""
    """The person behind the command: who decided on it, else who asked for the loop."""
    comment: str = ""
    """What whoever accepted the command's proposal has said."""
    no_web: bool = False
    """Whether fetching is forbidden by the task."""
    response_format: ResponseFormat | None = None
    """The response format of the loop."""
    is_transcript: bool = False
    """Whether results have to contain what they show: the model is sent no packet that would."""


class Tool(Protocol):
    """One tool. Its documentation for the model is in `{name}.md` next to its module. Its steps raise RefusedError."""

    name: str
    effect_class: EffectClass
    """What happens to an interrupted command of this tool."""

    @property
    def parameters(self) -> Sequence[ToolParameter]:
        """The parameters of its commands."""

    async def prepare(self, command: Command, context: Context) -> Done | Proposed:
        """Settle the command, or propose an effect. Has no effect outside the store."""

    async def perform(self, effect: Effect, command: Command, context: Context) -> Done | Proposed:
        """Carry out an accepted effect, or propose the next. May be called again after a crash unless OUTSIDE.

        Raises OutcomeUnknownError if nobody can say whether it happened.
        """
