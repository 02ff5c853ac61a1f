"""Every knob of the executor, with its unit."""

from __future__ import annotations

from typing import Any, Final, Literal
from urllib.parse import urlsplit

from turnwright_core.limits import TEMPERATURE_DEFAULT
from turnwright_executor.domain.git_urls import git_urls
from turnwright_executor.domain.networks import networks_of
from turnwright_executor.domain.tokens import TOKEN_DIVISOR
from turnwright_executor.domain.tool_servers import allowed_hosts
from turnwright_kit.addresses import host_of
from turnwright_kit.sandbox.sandbox import SH_READABLE, SH_SANDBOX, SH_WRITABLE, SandboxChoice
from turnwright_kit.settings import HttpPort, PeerSettings, checked_listen, setting
from turnwright_ui import files as files_of_the_page

DEFAULT_LISTEN: Final = "127.0.0.1:7440"

# What holds wherever the files and commands of projects are: on an executor's host, or on a sandbox host.

FILE_BYTES_MAX: Final[Any] = setting("Largest project file that is read, in bytes.", 256 * 1024, ge=1024)
FILES_MAX: Final[Any] = setting("Maximum number of project files that are read.", 20_000, ge=1)
# At most: bytes that are not text become three each (U+FFFD), and must still fit into an entry.
SH_OUTPUT_BYTES_MAX: Final[Any] = setting(
    "How much output of a shell command is kept per channel, in bytes: its start and its end.",
    1024 * 1024,
    ge=4096,
    le=5 * 1024 * 1024,
)
SH_PROCESSES_MAX: Final[Any] = setting("Maximum number of processes of the user while a command runs.", 512, ge=8)
SH_MEMORY_MB_MAX: Final[Any] = setting(
    "Maximum memory that all processes of a command hold together, in MiB. 0: no limit.", 4096, ge=0
)


def check_networks(text: str) -> str:
    networks_of(text)
    return text


def check_tool_hosts(text: str) -> str:
    allowed_hosts(text)
    return text


def check_git_urls(text: str) -> str:
    git_urls(text)
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


def check_origins(text: str) -> str:
    """Origins separated by commas. Raises ValueError with a sentence."""
    for each in filter(None, text.split(",")):
        parts = urlsplit(each)
        if parts.scheme not in ("http", "https") or each != f"{parts.scheme}://{parts.netloc}" or not parts.netloc:
            raise ValueError("must be origins such as https://agents.example.com, without a path, separated by commas")
    return text


def check_hosts(text: str) -> str:
    """Names of hosts separated by commas. Raises ValueError with a sentence."""
    if any(not host_of(each) or host_of(each) != each.lower().strip("[]") for each in filter(None, text.split(","))):
        raise ValueError("must be names such as agents.example.com, without a port, separated by commas")
    return text


class ExecutorSettings(PeerSettings):
    """Settings of the executor. Rows RU298-RU305 name the defaults of the loop controls."""

    runs_commands = True

    assembler: str = setting("Address of the assembler.", "127.0.0.1:7442")
    provider: str = setting("Address of the provider.", "127.0.0.1:7443")

    title_model: str = setting(
        "Alias of a cheap model that is asked once for the title of each run, after its first reply. The call is "
        "charged to the run. Empty: none is asked, and the title is the beginning of the first prompt.",
        "",
    )
    temperature: float = setting("Sampling temperature for runs that do not set one.", TEMPERATURE_DEFAULT, ge=0, le=2)
    loop_turns_max: int = setting("Maximum number of turns in one loop.", 99, ge=1, le=10_000)
    turn_commands_max: int = setting("Maximum number of commands in one turn. The rest are dropped.", 99, ge=1, le=1000)
    agents_depth_max: int = setting(
        "How deep agents may start agents: with 1, agents start none themselves. 0: the tools `delegate` and "
        "`wait_agents` are not offered.",
        2,
        ge=0,
        le=8,
    )
    agents_at_once_max: int = setting(
        "Maximum number of agents of one loop that work at the same time.", 8, ge=1, le=100
    )
    agents_per_loop_max: int = setting("Maximum number of agents that one loop starts in all.", 32, ge=1, le=1000)
    strikes_max: int = setting("A loop is given up after this many strikes in a row.", 3, ge=1, le=100)
    cycles_min: int = setting("A cycle is detected after this many repetitions.", 3, ge=2, le=100)
    cycle_period_max: int = setting("Longest cycle to look for, in turns.", 4, ge=1, le=32)

    client_roots: str = setting(
        "Directories below which everybody with an identity may register projects, separated by colons. Who registers "
        "one owns it.",
        "",
    )

    places: str = setting(
        "Directory for the work trees and clones of runs that do not share that of their project. Executors that share "
        "projects need the same one, and it is of one store alone. Empty: `places` in the home.",
        "",
    )

    git_urls: str = setting(
        "Which git repositories are cloned as projects (docs/places.md): what their URLs begin with, such as "
        "`https://git.example.com/team`, separated by commas. Everybody with an identity may have them. Empty: none.",
        "",
        check=check_git_urls,
    )
    git_projects: str = setting(
        "Directory for the clones that are projects. Executors that share projects need the same one. Empty: "
        "`projects` in the home.",
        "",
    )
    git_mb_max: int = setting(
        "Largest repository that is cloned, in MiB: as it is sent, and its files as they are checked out.", 2048, ge=1
    )
    git_deadline_s: float = setting("Time limit for a clone, in seconds.", 600.0, gt=0, le=3000)

    hooks: str = setting(
        "Hook plugins: entry points of `turnwright.hooks`, or `module:function`, separated by commas. "
        "Empty: all that are installed. `none`: none.",
        "",
    )
    hook_deadline_s: float = setting("Time limit for one call of a hook function, in seconds.", 5.0, gt=0, le=3600)
    tools: str = setting(
        "Tool plugins: entry points of `turnwright.tools`, or `module:function`, separated by commas. "
        "Empty: all that are installed. `none`: none.",
        "",
    )
    tool_servers: str = setting(
        "File with the servers of tools for all projects (docs/tools.md), read again when it changes. Empty: none.",
        "",
    )
    tool_hosts: str = setting(
        "Where the owners of projects may have servers of tools of their own: hosts, `*.example.com`, networks such as "
        "`10.0.0.0/8`, and `public` for all public addresses, separated by commas. Empty: nowhere.",
        "",
        check=check_tool_hosts,
    )
    mcp: str = setting(
        "Address of the process that calls MCP servers (docs/mcp.md). Empty: the executor starts one when a server is "
        "first needed.",
        "",
    )
    tool_deadline_s: float = setting("Time limit for one step of a plugin's tool, in seconds.", 60.0, gt=0, le=3600)

    token_divisor: int = setting(
        "Characters per token in every estimate: tokens = ceil(characters / this).", TOKEN_DIVISOR, ge=1, le=16
    )
    project_instructions: bool = setting(
        "Whether AGENTS.md and CLAUDE.md of projects are read as instructions when a loop begins.", True
    )
    knowledge_tokens_max: int = setting(
        "How much a new loop is shown of what the words of its prompt find in the project, in tokens. 0: nothing.",
        0,
        ge=0,
        le=100_000,
    )
    known_tokens_max: int = setting("Longest `known://` entry that a model may write, in tokens.", 512, ge=1)
    indeterminate: Literal["fail", "ask"] = setting(
        "What to do with an interrupted command such as `sh` that may or may not have run: `fail` tells "
        "the model; `ask` asks the person who decides on proposals (in a yolo run, nobody is asked).",
        "fail",
    )
    http_listen: str = setting(
        "Address at which this executor also serves HTTP, such as `127.0.0.1:7444`: the Connect protocol, gRPC-Web and "
        "server-sent events. Empty: none. If it is not set, `turnwright serve` takes 127.0.0.1:7444.",
        "",
        check=checked_listen,
    )
    http_origins: str = setting(
        "Origins of web pages that may call by HTTP, such as `https://agents.example.com`, separated by commas. Empty: "
        "only pages of the same address.",
        "",
        check=check_origins,
    )
    http_hosts: str = setting(
        "Names by which it is called by HTTP, such as `agents.example.com`, without a port, separated by commas. "
        "Others are refused, because a page can have its own name lead here. Empty: those of this host if it listens "
        "on loopback, else any.",
        "",
        check=check_hosts,
    )
    advertise: str = setting(
        "Address at which other executors reach this one. Empty: the address it listens on; for a "
        "wildcard, the host's own address and the port.",
        "",
    )
    loops_max: int = setting(
        "Maximum number of loops that run at the same time. One that sleeps until a rate limit has passed is not "
        "counted.",
        64,
        ge=1,
        le=10_000,
    )
    workspaces: str = setting(
        "Directories of the projects that this executor works on, separated by colons. Empty: all projects.", ""
    )
    generate_deadline_s: float = setting("Time limit for one model call, in seconds.", 3600.0, gt=0)

    event_heartbeat_s: float = setting(
        "A watcher gets a heartbeat after at most this many seconds of silence.", 15.0, gt=0
    )

    file_bytes_max: int = FILE_BYTES_MAX
    files_max: int = FILES_MAX
    sh_timeout_s: float = setting("Time limit for a shell command, in seconds.", 300.0, gt=0)
    sh_output_bytes_max: int = SH_OUTPUT_BYTES_MAX
    sh_processes_max: int = SH_PROCESSES_MAX
    sh_sandbox: SandboxChoice = SH_SANDBOX
    sh_writable: str = SH_WRITABLE
    sh_readable: str = SH_READABLE
    web_searxng_url: str = setting(
        "URL of the SearXNG instance that `search` uses. It must answer in JSON. Empty: models do not get"
        " the `search` tool.",
        "",
        check=check_url,
    )
    web_networks: str = setting(
        "Private networks that pages may be fetched from, such as `10.0.0.0/8`, separated by commas.",
        "",
        check=check_networks,
    )
    web_hosts: str = setting(
        "Hosts whose pages are opened without asking, such as `docs.python.org,*.wikipedia.org`, "
        "separated by commas. `*`: all. On other hosts, only addresses that come from a prompt, a search "
        "result or a link on an opened page are opened without asking.",
        "",
    )
    web_timeout_s: float = setting(
        "Time limit for one page including redirects, and for one search, in seconds.", 30.0, gt=0, le=600
    )
    web_prefetch_max: int = setting("How many search results are opened right away. 0: none.", 3, ge=0, le=20)
    sh_memory_mb_max: int = SH_MEMORY_MB_MAX

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
    web_text_bytes: int = 256 * 1024
    """Bytes of a page's text that are kept: far more than a packet holds."""
    web_redirects_max: int = 5
    """Redirects that are followed for one page."""
    web_prefetch_timeout_s: float = 10.0
    """Seconds that a search waits for the pages that it opens at once. The others are only listed."""
    skill_files_max: int = 200
    """Files of a skill."""
    skill_bytes_max: int = 4 * 1024 * 1024
    """Bytes of a skill, unpacked."""
    matches_max: int = 1000
    """Entries that one pattern acts upon. More are refused."""
    sandbox_away_s: float = 8.0
    """Seconds that a loop which begins, or a turn, waits for a sandbox host that is away."""
    sh_grace_s: float = 2.0
    """Seconds that a command may take to exit after it was told to. Then it is killed."""
    sh_beat_s: float = 5.0
    """Seconds between two signs of life of a command that a client called: far below `stream_grace_s` of the store."""

    @property
    def http(self) -> HttpPort | None:
        origins = tuple(filter(None, self.http_origins.split(",")))
        hosts = tuple(host_of(each) for each in self.http_hosts.split(",") if each)
        return HttpPort(self.http_listen, origins, hosts, files=files_of_the_page) if self.http_listen else None

    @property
    def trusted_hosts(self) -> tuple[str, ...]:
        """Patterns of hosts whose pages are opened without asking."""
        return tuple(filter(None, (host.strip().lower() for host in self.web_hosts.split(","))))

    @property
    def unconfigured_tools(self) -> frozenset[str]:
        """The tools that cannot work with these settings, so that no model is offered them."""
        return frozenset() if self.web_searxng_url else frozenset({"search"})
