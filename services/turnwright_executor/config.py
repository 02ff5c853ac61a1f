"""Every knob of the executor, with its unit."""

from __future__ import annotations

from typing import Final, Literal
from urllib.parse import urlsplit

from turnwright_core.kit.settings import PeerSettings, setting
from turnwright_core.limits import TEMPERATURE_DEFAULT
from turnwright_executor.domain.networks import networks_of
from turnwright_executor.domain.tokens import TOKEN_DIVISOR

DEFAULT_LISTEN: Final = "127.0.0.1:7440"


def check_networks(text: str) -> str:
    networks_of(text)
    return text


def check_url(text: str) -> str:
    """An address of a server, or nothing. Raises ValueError with a sentence."""
    try:
        parts = urlsplit(text)
        is_address = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_address = False
    if text and not is_address:
        raise ValueError("must be an address such as http://localhost:8888")
    return text


class ExecutorSettings(PeerSettings):
    """Settings of the executor. Rows RU298-RU305 name the defaults of the loop controls."""

    assembler: str = setting(default="127.0.0.1:7442", description="Address of the assembler.")
    provider: str = setting(default="127.0.0.1:7443", description="Address of the provider.")

    temperature: float = setting(
        default=TEMPERATURE_DEFAULT, ge=0, le=2, description="Sampling temperature for runs that do not set one."
    )
    loop_turns_max: int = setting(default=99, ge=1, le=10_000, description="Maximum number of turns in one loop.")
    turn_commands_max: int = setting(
        default=99, ge=1, le=1000, description="Maximum number of commands in one turn. The rest are dropped."
    )
    strikes_max: int = setting(
        default=3, ge=1, le=100, description="A loop is given up after this many strikes in a row."
    )
    cycles_min: int = setting(default=3, ge=2, le=100, description="A cycle is detected after this many repetitions.")
    cycle_period_max: int = setting(default=4, ge=1, le=32, description="Longest cycle to look for, in turns.")

    client_roots: str = setting(
        default="",
        description="Directories in which derived tokens may register projects, separated by colons. Empty: they can "
        "use registered projects only.",
    )
    client_tools: str = setting(
        default="",
        description="Tools with effects outside the project that derived tokens may call without a run, such as "
        "`sh,env`, separated by commas.",
    )
    client_models: bool = setting(default=False, description="Allow derived tokens to add and remove models.")

    hooks: str = setting(
        default="",
        description="Hook plugins: entry points of `turnwright.hooks`, or `module:function`, separated by commas. "
        "Empty: all that are installed. `none`: none.",
    )
    hook_deadline_s: float = setting(
        default=5.0, gt=0, le=3600, description="Time limit for one call of a hook function, in seconds."
    )
    tools: str = setting(
        default="",
        description="Tool plugins: entry points of `turnwright.tools`, or `module:function`, separated by commas. "
        "Empty: all that are installed. `none`: none.",
    )
    tool_deadline_s: float = setting(
        default=60.0, gt=0, le=3600, description="Time limit for one step of a plugin's tool, in seconds."
    )

    token_divisor: int = setting(
        default=TOKEN_DIVISOR,
        ge=1,
        le=16,
        description="Characters per token in every estimate: tokens = ceil(characters / this).",
    )
    project_instructions: bool = setting(
        default=True,
        description="Whether AGENTS.md and CLAUDE.md of projects are read as instructions when a loop begins.",
    )
    known_tokens_max: int = setting(
        default=512, ge=1, description="Longest `known://` entry that a model may write, in tokens."
    )
    indeterminate: Literal["fail", "ask"] = setting(
        default="fail",
        description="What to do with an interrupted command such as `sh` that may or may not have run: `fail` tells "
        "the model; `ask` asks the person who decides on proposals (in a yolo run, nobody is asked).",
    )
    advertise: str = setting(
        default="",
        description="Address at which other executors reach this one. Empty: the address it listens on; for a "
        "wildcard, the host's own address and the port.",
    )
    loops_max: int = setting(
        default=64, ge=1, le=10_000, description="Maximum number of loops that run at the same time."
    )
    workspaces: str = setting(
        default="",
        description="Directories of the projects that this executor works on, separated by colons. Empty: all "
        "projects.",
    )
    generate_deadline_s: float = setting(default=3600.0, gt=0, description="Time limit for one model call, in seconds.")

    event_heartbeat_s: float = setting(
        default=15.0, gt=0, description="A watcher gets a heartbeat after at most this many seconds of silence."
    )

    file_bytes_max: int = setting(
        default=256 * 1024, ge=1024, description="Largest project file that is read, in bytes."
    )
    files_max: int = setting(default=20_000, ge=1, description="Maximum number of project files that are read.")
    sh_timeout_s: float = setting(default=300.0, gt=0, description="Time limit for a shell command, in seconds.")
    sh_output_bytes_max: int = setting(
        default=1024 * 1024,
        ge=4096,
        # Bytes that are no text become three each (U+FFFD), and must fit into an entry even so.
        le=5 * 1024 * 1024,
        description="How much output of a shell command is kept per channel, in bytes: its start and its end.",
    )
    sh_processes_max: int = setting(
        default=512, ge=8, description="Maximum number of processes of the user while a command runs."
    )
    sh_sandbox: Literal["auto", "bubblewrap", "limits"] = setting(
        default="auto",
        description="How commands are confined: `bubblewrap` (the executor refuses to start if it does not work), "
        "`limits` (resource limits only), or `auto` (the best that the host supports).",
    )
    sh_writable: str = setting(
        default="~/.cache:~/.npm:~/.cargo/registry:~/.cargo/git:~/go/pkg:~/.m2/repository:~/.gradle/caches:"
        "~/.gradle/wrapper",
        description="Directories outside the project that sandboxed commands may write to, separated by colons.",
    )
    sh_readable: str = setting(
        default="",
        description="Extra files and directories that sandboxed commands may read, such as `~/.gitconfig`, separated "
        "by colons. The project, system files, toolchains and caches are readable anyway.",
    )
    web_searxng_url: str = setting(
        default="",
        check=check_url,
        description="URL of the SearXNG instance that `search` uses. It must answer in JSON. Empty: models do not get"
        " the `search` tool.",
    )
    web_networks: str = setting(
        default="",
        check=check_networks,
        description="Private networks that pages may be fetched from, such as `10.0.0.0/8`, separated by commas.",
    )
    web_hosts: str = setting(
        default="",
        description="Hosts whose pages are opened without asking, such as `docs.python.org,*.wikipedia.org`, "
        "separated by commas. `*`: all. On other hosts, only addresses that come from a prompt, a search "
        "result or a link on an opened page are opened without asking.",
    )
    web_timeout_s: float = setting(
        default=30.0,
        gt=0,
        le=600,
        description="Time limit for one page including redirects, and for one search, in seconds.",
    )
    web_prefetch_max: int = setting(
        default=3, ge=0, le=20, description="How many search results are opened right away. 0: none."
    )
    sh_memory_mb_max: int = setting(
        default=4096,
        ge=0,
        description="Maximum memory that all processes of a command hold together, in MiB. 0: no limit.",
    )

    reply_bytes_max: int = 4 * 1024 * 1024
    """Longest reply of a model, in bytes. A longer one ends the loop."""
    record_after_s: float = 0.05
    """Seconds after which a reply with only pure commands is made durable although one of them is still running."""
    turn_losses_max: int = 3
    """A loop fails with `crash_loop` after so many executors died in the same turn."""
    tool_calls_max: int = 64
    """Commands of clients in progress. More are refused."""
    recover: bool = True
    """Whether runs are looked for that have work but no owner, for example after an executor died. The stack of a
    single command does not look: it must not go on with the work of another one."""
    work_poll_s: float = 2.0
    """Seconds between two looks for runs without an owner."""
    owner_poll_s: float = 1.0
    """Seconds between two looks of a watch whether another executor has taken over its run."""
    lease_s: float = 0.0
    """Seconds of a lease that this executor asks for; 0: what the store is set to."""
    tail_events: int = 4096
    """Events of a run that are kept for watchers that reconnect."""
    tail_bytes: int = 4 * 1024 * 1024
    """Most bytes of these."""
    linger_s: float = 60.0
    """Seconds that a run's events stay in memory when nobody watches."""
    web_page_bytes: int = 4 * 1024 * 1024
    """Bytes of a page that are downloaded."""
    web_prefetch_timeout_s: float = 10.0
    """Seconds that a search waits for the pages that it opens at once. The others are only listed."""
    skill_files_max: int = 200
    """Files of a skill."""
    skill_bytes_max: int = 4 * 1024 * 1024
    """Bytes of a skill, unpacked."""
    sh_grace_s: float = 2.0
    """Seconds that a command may take to exit after it was told to. Then it is killed."""
    sh_beat_s: float = 5.0
    """Seconds between two signs of life of a command that a client called: far below `stream_grace_s` of the store."""

    @property
    def opened_tools(self) -> frozenset[str]:
        """Tools that derived tokens may call without a run."""
        return frozenset(name.strip() for name in self.client_tools.split(","))

    @property
    def unconfigured_tools(self) -> frozenset[str]:
        """The tools that cannot work with these settings, so that no model is offered them."""
        return frozenset() if self.web_searxng_url else frozenset({"search"})
