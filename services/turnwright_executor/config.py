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
        default=TEMPERATURE_DEFAULT, ge=0, le=2, description="Sampling temperature of runs that name none."
    )
    max_loop_turns: int = setting(default=99, ge=1, le=10_000, description="Most turns of one loop.")
    max_commands: int = setting(
        default=99, ge=1, le=1000, description="Most commands of one turn; the rest is dropped."
    )
    max_strikes: int = setting(default=3, ge=1, le=100, description="Strikes in a row at which a loop is given up.")
    min_cycles: int = setting(default=3, ge=2, le=100, description="Repetitions at which a cycle is detected.")
    max_cycle_period: int = setting(default=4, ge=1, le=32, description="Longest cycle looked for, in turns.")

    client_roots: str = setting(
        default="",
        description="Directories in which derived tokens may make projects known, with colons between. Empty: they "
        "work in projects that are known already.",
    )
    client_tools: str = setting(
        default="",
        description="Tools with effects outside of the project that derived tokens may call without a run, such as "
        "`sh,env`, with commas between.",
    )
    client_models: bool = setting(default=False, description="Whether derived tokens may add and remove models.")

    hooks: str = setting(
        default="",
        description="Plugins that take part in turns: entry points of `turnwright.hooks`, or `module:function`, with "
        "commas between. Empty: all that are installed; `none`: none.",
    )
    hook_deadline_s: float = setting(
        default=5.0, gt=0, le=3600, description="Seconds that one call of a plugin's function may take."
    )
    tools: str = setting(
        default="",
        description="Plugins that bring tools: entry points of `turnwright.tools`, or `module:function`, with commas "
        "between. Empty: all that are installed; `none`: none.",
    )
    tool_deadline_s: float = setting(
        default=60.0, gt=0, le=3600, description="Seconds that one step of a plugin's tool may take."
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
        description="Models with a context window of fewer tokens read brief instructions and texts about tools; "
        "0: none does.",
    )
    max_entry_tokens: int = setting(
        default=512, ge=1, description="Longest `known://` entry that a model writes, in tokens."
    )
    reply_bytes_max: int = setting(
        default=4 * 1024 * 1024, ge=65_536, description="Longest reply of a model, in bytes; more ends the loop."
    )
    turn_losses_max: int = setting(
        default=3,
        ge=1,
        le=1000,
        description="Executors that may end in the middle of one turn; with so many the loop fails as `crash_loop`.",
    )
    indeterminate: Literal["fail", "ask"] = setting(
        default="fail",
        description="What becomes of a command like `sh` of which nobody knows whether it happened: `fail` tells the "
        "model, `ask` asks whoever decides on proposals (not in a yolo run, where nobody does).",
    )
    advertise: str = setting(
        default="",
        description="Address at which other executors reach this one. Empty: the address that it listens on; for a "
        "wildcard, the host's own address and the port.",
    )
    owner_poll_s: float = setting(
        default=1.0,
        gt=0,
        le=60,
        description="Seconds after which a watch looks whether another executor works on its run now.",
    )
    loops_max: int = setting(default=64, ge=1, le=10_000, description="Loops worked on at the same time.")
    tool_calls_max: int = setting(
        default=64, ge=1, le=10_000, description="Commands of clients under way at a time; one more is refused."
    )
    recover: bool = setting(
        default=True,
        description="Whether runs with work and no owner are looked for, as executors leave them.",
    )
    work_poll_s: float = setting(default=2.0, gt=0, le=3600, description="Seconds between two looks for such runs.")
    lease_s: float = setting(
        default=0.0, ge=0, le=3600, description="Seconds that a run is held without a word to the store; 0: as it says."
    )
    workspaces: str = setting(
        default="",
        description="Directories of the projects that are worked on here, with colons between. Empty: all projects.",
    )
    generate_deadline_s: float = setting(default=3600.0, gt=0, description="Longest model call, in seconds.")
    generate_attempts: int = setting(
        default=3, ge=1, le=10, description="Tries of a model call whose stream stops in the middle."
    )

    tail_events: int = setting(default=4096, ge=16, description="Events kept for watchers that come back, per run.")
    tail_bytes: int = setting(default=4 * 1024 * 1024, ge=65_536, description="The same in bytes.")
    event_heartbeat_s: float = setting(
        default=15.0, gt=0, description="Seconds of silence after which a watcher is told."
    )
    linger_s: float = setting(default=60.0, ge=0, description="Seconds that a run's events are kept when nobody looks.")

    file_bytes_max: int = setting(
        default=256 * 1024, ge=1024, description="Largest project file that is read, in bytes."
    )
    files_max: int = setting(default=20_000, ge=1, description="Most project files that are read.")
    sh_timeout_s: float = setting(default=300.0, gt=0, description="Longest run of a shell command, in seconds.")
    sh_grace_s: float = setting(
        default=2.0, ge=0, le=60, description="Seconds that a command has to end once told to; then it is killed."
    )
    sh_beat_s: float = setting(
        default=5.0,
        gt=0,
        le=3600,
        description="Seconds between two signs of life of a command that a client called; below the store's "
        "STREAM_GRACE_S.",
    )
    sh_output_bytes: int = setting(
        default=1024 * 1024,
        ge=4096,
        # Bytes that are no text become three each (U+FFFD), and must fit into an entry even so.
        le=5 * 1024 * 1024,
        description="Most output of a shell command that is kept, in bytes per channel: its beginning and its end.",
    )
    sh_processes: int = setting(default=512, ge=8, description="Most processes of the user while a command runs.")
    sh_sandbox: Literal["auto", "bubblewrap", "limits"] = setting(
        default="auto",
        description="How commands are confined beside limits: `bubblewrap` (then the executor does not start where "
        "that does not work), `limits` alone, or `auto`: the best that the host can do.",
    )
    sh_writable: str = setting(
        default="~/.cache:~/.npm:~/.cargo/registry:~/.cargo/git:~/go/pkg:~/.m2/repository:~/.gradle/caches:"
        "~/.gradle/wrapper",
        description="Directories beside the project that commands may write in a sandbox, with colons between.",
    )
    sh_readable: str = setting(
        default="",
        description="Files and directories that commands may read in a sandbox beside the project, system files, "
        "toolchains and caches, such as `~/.gitconfig`, with colons between.",
    )
    web_searxng_url: str = setting(
        default="",
        check=check_url,
        description="Address of the SearXNG instance that `search` asks; it has to answer in JSON. Empty: models are "
        "not offered `search`.",
    )
    web_networks: str = setting(
        default="",
        check=check_networks,
        description="Networks beside the public internet that pages may be fetched from, such as `10.0.0.0/8`, with "
        "commas between.",
    )
    web_hosts: str = setting(
        default="",
        description="Hosts whose pages are opened without asking, such as `docs.python.org,*.wikipedia.org`, with "
        "commas between; `*`: all. Of others only addresses that a prompt names, a search found or an opened page "
        "links to.",
    )
    web_fetch_timeout_s: float = setting(
        default=30.0, gt=0, le=600, description="Seconds for one page with its redirects, and for one search."
    )
    web_page_bytes: int = setting(
        default=4 * 1024 * 1024, ge=1024, le=64 * 1024 * 1024, description="Most of a page that is read, in bytes."
    )
    web_text_bytes: int = setting(
        default=256 * 1024,
        ge=1024,
        le=8 * 1024 * 1024,
        description="Most of a page's text that is kept, in bytes; the end is left out.",
    )
    web_redirects_max: int = setting(default=5, ge=0, le=20, description="Redirects that are followed to one page.")
    web_prefetch_max: int = setting(
        default=3, ge=0, le=20, description="Results of a search that are opened at once; 0: none."
    )
    web_prefetch_timeout_s: float = setting(
        default=10.0, gt=0, le=600, description="Seconds that a search waits for these; the rest is only listed."
    )
    skill_files_max: int = setting(default=200, ge=1, le=5000, description="Most files of one skill.")
    skill_bytes_max: int = setting(
        default=4 * 1024 * 1024, ge=1024, le=16 * 1024 * 1024, description="Most of one skill, unpacked, in bytes."
    )
    sh_memory_mb: int = setting(
        default=0, ge=0, description="Address space of a command's process in MiB; 0: no limit."
    )

    @property
    def unconfigured_tools(self) -> frozenset[str]:
        """The tools that cannot work with these settings, so that no model is offered them."""
        return frozenset() if self.web_searxng_url else frozenset({"search"})
