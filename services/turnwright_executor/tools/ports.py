"""Ports of the tools: the project's files, a shell, the web, plans.

Paths are relative to the project's root, with forward slashes. The adapter guarantees confinement: a path that leaves
the root, through `..`, an absolute path or a symbolic link, raises OutsideProjectError, whatever the operation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct
from turnwright_values.store import StartAgentRequest
from turnwright_values.types import Agent

from turnwright_core.plans.plan import Plan
from turnwright_executor.domain.model_questions import ModelAnswer, ToolQuestion


class OutsideProjectError(Exception):
    """The path leaves the project's root. The text says which path."""


class FileText(Struct, frozen=True):
    """A file as read: its text (None if it is not readable as text), and the SHA-256 of its bytes in hexadecimal.

    `encoding` is empty for UTF-8; for another one (domain.encodings) the hash is that of the text in UTF-8. `foreign`
    is the likely encoding of a text that cannot be read here; empty if it is too long or binary.
    """

    text: str | None
    hash: str
    bytes_: int
    encoding: str = ""
    foreign: str = ""


class ScannedFile(Struct, frozen=True):
    """A project file found by a scan; `text` is None where it is not readable as text or over the size limit."""

    path: str
    text: str | None
    hash: str
    bytes_: int
    is_added: bool = False
    """Whether the project includes it with `add`."""


class TooMuchError(Exception):
    """A limit is exceeded. The text has the figure."""


class GatheredFiles(Struct, frozen=True):
    """The files at a path. `files`: bytes by path below the folder, or by name for a single file."""

    is_folder: bool
    files: Mapping[str, bytes]
    left_out: tuple[str, ...] = ()
    """Files that were not read, each with the reason: `notes.lnk (a link)`."""


class Workspace(Protocol):
    """The files of one project."""

    async def normalise(self, path: str, *, writing: bool = False) -> str:
        """The normalized path relative to the root: links resolved, no `..`, letters composed as in the file's name.

        Raises OutsideProjectError, OSError.

        The former also for directories of version control or of the runtime, for ignored files, and with `writing` for
        read-only ones.
        """

    async def read(self, path: str) -> FileText | None:
        """The file, None if there is none. Raises OutsideProjectError, OSError."""

    async def find(self, path: str) -> tuple[str, FileText | None]:
        """The normalized path and the file there, in one step. Raises as `normalise` and `read` do."""

    async def gather(self, path: str, files_max: int, bytes_max: int) -> GatheredFiles | None:
        """The file at a path, or all files below a folder; None if neither exists.

        Raises OutsideProjectError, TooMuchError, OSError.
        """

    async def replace(
        self, path: str, content: str | None, base_hash: str | None, like: str = "", encoding: str = ""
    ) -> bool:
        """Write or (None) delete atomically if the file still has the base hash; False if it has not.

        The path must be normalized; OutsideProjectError if it leads to another file by now. A file that already has the
        target content counts as done. A file keeps its permissions; a new one gets those of the file `like`, if given.
        `encoding` is that of the file as it is or becomes; empty: UTF-8.
        Raises OutsideProjectError, OSError.
        """


class ChangedFile(Struct, frozen=True):
    """A project file that changed; `kind` is `create`, `change` or `remove`."""

    path: str
    kind: str


class CommandEnd(Struct, frozen=True):
    """How a command ended: exit code (negative: signal), seconds, whether it hit the time limit."""

    exit_code: int
    duration_s: float
    timed_out: bool
    output_cut: bool
    """Whether the middle of its output was left out."""
    too_many_processes: bool = False
    out_of_memory: bool = False
    changed: tuple[ChangedFile, ...] | None = None
    """Project files that changed while the command ran, by path; None if they were not compared."""


class Shell(Protocol):
    """Runs commands under limits, in the project's root, without secrets in the environment."""

    @property
    def refusal(self) -> str:
        """Why no command runs here, and what to do; empty: they do."""

    @property
    def keeps_read_only(self) -> bool:
        """Whether commands can be prevented from changing the project."""

    async def run(
        self,
        command: str,
        timeout_s: float,
        on_output: Callable[[int, str], Awaitable[None]],
        *,
        read_only: bool = False,
        is_owners: bool = True,
        network: bool = True,
    ) -> CommandEnd:
        """Run to the end; output arrives as (channel, text), 1 standard output, 2 standard error.

        All its processes are killed at the time limit or on cancellation; output until then arrives before the call
        ends. `read_only` prevents changes to the project, and without `network` there is none, if that is supported.
        One that is not the home owner's (`is_owners`) shares no caches with other projects.
        """


class WebError(Exception):
    """A web request failed: `outcome` is `word:code`, the text tells the model what to do."""

    def __init__(self, outcome: str, text: str) -> None:
        super().__init__(text)
        self.outcome = outcome


class Plans(Protocol):
    """The plans of the run: the only way to write them. Async methods raise TurnwrightError."""

    async def get(self, plan_id: str, version: int = 0) -> Plan:
        """A plan with its deltas; 0: its latest version."""

    async def set(self, plan: Plan, key: str) -> Plan:
        """Create or replace a plan. Idempotent by `key`; an empty key: not idempotent."""

    async def update(self, plan_id: str, text: str, key: str) -> Plan:
        """Append to a plan. Idempotent by `key`."""

    def scoped(self, tool: str) -> Plans:
        """The plans of a plugin's tool: its names are prefixed, `{tool}-{plan_id}`, so it cannot reach other plans."""


class Agents(Protocol):
    """The agents of the loop. Async methods raise TurnwrightError."""

    @property
    def tools(self) -> Sequence[str]:
        """The tools of the loop, which are all that an agent can have."""

    async def start(self, wanted: StartAgentRequest) -> Agent:
        """Start the agent of the command with this record, or find it. The run and its spend are filled in."""

    async def wait(self, record: str, names: Sequence[str]) -> Sequence[Agent]:
        """Say that the command with this record waits for agents; how they are. No names: all of the loop."""


class ToolModels(Protocol):
    """Models, for tools that ask one while they work: at the cost of the run."""

    async def ask(self, question: ToolQuestion, number: int) -> ModelAnswer:
        """Ask. `number`: of the question in its call, from 0. Raises TurnwrightError if the run is lost."""


class Page(Struct, frozen=True):
    """A page as text. `address`: the final URL, after redirects."""

    address: str
    title: str
    text: str
    media_type: str
    is_cut: bool = False
    """Whether its end was left out."""


class Download(Struct, frozen=True):
    """The complete bytes of a download."""

    address: str
    media_type: str
    data: bytes


class WebResult(Struct, frozen=True):
    """One search result; each text is one line without control characters."""

    address: str
    title: str
    snippet: str


class Web(Protocol):
    """The web, as far as the operator allows. Every method raises WebError, and has a time limit."""

    async def page(self, address: str) -> Page:
        """The page at a canonical URL (domain.pages)."""

    async def download(self, address: str, bytes_max: int) -> Download:
        """Download a URL; an error if it exceeds the limit."""

    async def search(self, query: str, results_max: int) -> list[WebResult]:
        """Search results, best first."""
