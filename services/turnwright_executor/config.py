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
    """A list of networks. Raises ValueError with a sentence."""
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
    max_loop_turns: int = setting(default=99, ge=1, le=10_000, description="Maximum number of turns in one loop.")
    max_commands: int = setting(
        default=99, ge=1, le=1000, description="Maximum number of commands in one turn. The rest are dropped."
    )
    max_strikes: int = setting(
        default=3, ge=1, le=100, description="A loop is given up after this many strikes in a row."
    )
    min_cycles: int = setting(default=3, ge=2, le=100, description="A cycle is detected after this many repetitions.")
    max_cycle_period: int = setting(default=4, ge=1, le=32, description="Longest cycle to look for, in turns.")

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
    brief_below: int = setting(
        default=16_384,
        ge=0,
        description="Models with a context window smaller than this many tokens get short instructions. 0: never.",
    )
    max_entry_tokens: int = setting(
        default=512, ge=1, description="Longest `known://` entry that a model may write, in tokens."
    )
    reply_bytes_max: int = setting(
        default=4 * 1024 * 1024,
        ge=65_536,
        description="Longest reply of a model, in bytes. A longer one ends the loop.",
    )
    turn_losses_max: int = setting(
        default=3,
        ge=1,
        le=1000,
        description="A loop fails with `crash_loop` after this many executors died in the same turn.",
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
    owner_poll_s: float = setting(
        default=1.0,
        gt=0,
        le=60,
        description="How often a watch checks whether another executor has taken over its run, in seconds.",
    )
    loops_max: int = setting(
        default=64, ge=1, le=10_000, description="Maximum number of loops that run at the same time."
    )
    tool_calls_max: int = setting(
        default=64, ge=1, le=10_000, description="Maximum number of client commands in progress. More are refused."
    )
    recover: bool = setting(
        default=True,
        description="Look for runs that have work but no owner, for example after an executor died.",
    )
    work_poll_s: float = setting(
        default=2.0, gt=0, le=3600, description="How often the executor looks for runs without an owner, in seconds."
    )
    lease_s: float = setting(
        default=0.0,
        ge=0,
        le=3600,
        description="How long a lease on a run lasts without renewal, in seconds. 0: what the store says.",
    )
    workspaces: str = setting(
        default="",
        description="Directories of the projects that this executor works on, separated by colons. Empty: all "
        "projects.",
    )
    generate_deadline_s: float = setting(default=3600.0, gt=0, description="Time limit for one model call, in seconds.")
    generate_attempts: int = setting(
        default=3, ge=1, le=10, description="How often a model call is tried if its stream stops in the middle."
    )

    tail_events: int = setting(
        default=4096, ge=16, description="How many events of a run are kept for watchers that reconnect."
    )
    tail_bytes: int = setting(
        default=4 * 1024 * 1024,
        ge=65_536,
        description="How much of a run's events is kept for watchers that reconnect, in bytes.",
    )
    event_heartbeat_s: float = setting(
        default=15.0, gt=0, description="A watcher gets a heartbeat after this many seconds of silence."
    )
    linger_s: float = setting(
        default=60.0, ge=0, description="How long a run's events stay in memory when nobody watches, in seconds."
    )

    file_bytes_max: int = setting(
        default=256 * 1024, ge=1024, description="Largest project file that is read, in bytes."
    )
    files_max: int = setting(default=20_000, ge=1, description="Maximum number of project files that are read.")
    sh_timeout_s: float = setting(default=300.0, gt=0, description="Time limit for a shell command, in seconds.")
    sh_grace_s: float = setting(
        default=2.0,
        ge=0,
        le=60,
        description="How long a command may take to exit after it was told to, in seconds. Then it is killed.",
    )
    sh_beat_s: float = setting(
        default=5.0,
        gt=0,
        le=3600,
        description="How often a running command called by a client reports that it is alive, in seconds. Keep it "
        "below `TURNWRIGHT_STREAM_GRACE_S`.",
    )
    sh_output_bytes: int = setting(
        default=1024 * 1024,
        ge=4096,
        # Bytes that are no text become three each (U+FFFD), and must fit into an entry even so.
        le=5 * 1024 * 1024,
        description="How much output of a shell command is kept per channel, in bytes: its start and its end.",
    )
    sh_processes: int = setting(
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
    web_fetch_timeout_s: float = setting(
        default=30.0,
        gt=0,
        le=600,
        description="Time limit for one page including redirects, and for one search, in seconds.",
    )
    web_page_bytes: int = setting(
        default=4 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="How much of a page is downloaded, in bytes."
    )
    web_text_bytes: int = setting(
        default=256 * 1024,
        ge=1024,
        le=8 * 1024 * 1024,
        description="How much of a page's text is kept, in bytes. The end is cut.",
    )
    web_redirects_max: int = setting(default=5, ge=0, le=20, description="Maximum number of redirects to follow.")
    web_prefetch_max: int = setting(
        default=3, ge=0, le=20, description="How many search results are opened right away. 0: none."
    )
    web_prefetch_timeout_s: float = setting(
        default=10.0,
        gt=0,
        le=600,
        description="How long a search waits for those pages, in seconds. The others are only listed.",
    )
    skill_files_max: int = setting(default=200, ge=1, le=5000, description="Maximum number of files in a skill.")
    skill_bytes_max: int = setting(
        default=4 * 1024 * 1024,
        ge=1024,
        le=16 * 1024 * 1024,
        description="Maximum size of a skill after decompression, in bytes.",
    )
    sh_memory_mb: int = setting(
        default=4096,
        ge=0,
        description="Maximum memory that all processes of a command hold together, in MiB. 0: no limit.",
    )

    @property
    def unconfigured_tools(self) -> frozenset[str]:
        """The tools that cannot work with these settings, so that no model is offered them."""
        return frozenset() if self.web_searxng_url else frozenset({"search"})
