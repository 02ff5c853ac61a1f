"""Supervisor: a process between the executor and one command, from which no process of the command escapes.

It is a child subreaper, so every process of the command stays its descendant, whatever session or group that process
creates. When the command's shell ends, it reports the exit code and stays. When the executor closes the control
channel, or is dead, it kills all its descendants and ends; likewise when the deadline has passed until which the
executor may work, because a stopped executor cannot do it. If the supervisor itself is killed, the executor finds its
processes by a mark (`process_mark`). The control channel is its standard input, a socket with one number per line: it
writes the command's process group and later its exit code, and reads new deadlines, and the end.

Between fork and exec the command gets its limits, and where Landlock confines it (`landlock`), its rules and its
filter: they hold for it and for all that it starts, but not for the supervisor. Its arguments are words, each
`name=value`, then `--` and the command:

    mark=NUMBER         marks its processes, see `process_mark`
    input=DESCRIPTOR    what the command has as standard input; without it /dev/null
    until=MS            the deadline, milliseconds of CLOCK_BOOTTIME; 0: none
    limit=KIND:VALUE    a resource limit, by its number
    folder=PATH         a folder that is made for the command, and removed after it
    link=PATH:TARGET    a link that is made in there, with the folders above it
    rule=RIGHTS:PATH    Landlock: what the command may do at a path and below it; one that does not exist counts nothing
    filter=HEX          the program of seccomp

It runs as a script on the interpreter's bare modules: every command waits for its start, and `os`, `signal` and
`ctypes` would double that. Linux only.
Source: architecture 6, 11 (children die with their executor).
"""

from __future__ import annotations

import _ctypes
import _signal as signal  # type: ignore[import-not-found]
import posix
import resource
import select
import sys
import time

TYPE_CHECKING = False  # as typing has it, which takes longer to import than all of this
if TYPE_CHECKING:
    from collections.abc import Callable

PR_SET_CHILD_SUBREAPER = 36
"""See prctl(2): the process becomes the parent of orphaned descendants."""

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, PR_CAPBSET_READ, PR_CAPBSET_DROP = 38, 22, 23, 24
"""See prctl(2)."""

SECCOMP_MODE_FILTER = 2

LANDLOCK_CREATE_RULESET, LANDLOCK_ADD_RULE, LANDLOCK_RESTRICT_SELF = 444, 445, 446
"""System calls, which have one number on every machine."""

LANDLOCK_RULE_PATH_BENEATH = 1

ALL_RIGHTS = (1 << 16) - 1
"""What Landlock guards of files: everything that its version 6 knows."""

FILE_RIGHTS = 0b1100_0000_0000_0111
"""What of that can be allowed at something that is no folder."""

SCOPES = 0b11
"""What Landlock keeps within the command's own processes: abstract sockets, and signals."""

CAP_DAC_OVERRIDE = 1
"""All that a superuser keeps, for a project that is somebody else's. Owners and modes of files are not guarded by
Landlock."""

CAPABILITIES_MAX = 64

HOME, TEMPORARY = "home", "tmp"
"""In a command's folder: its home, and its temporary files."""

PROGRAMS = "/usr/bin:/bin:/run/current-system/sw/bin"
"""Where `rm` is, on any distribution."""

_CAPSET = {"x86_64": 126, "aarch64": 91}
_CAPABILITY_VERSION_3 = 0x20080522

ROUND_S = 0.002
"""Seconds after the first round of killing; each later wait doubles, up to ROUND_S_MAX."""

ROUND_S_MAX = 0.5

LOOK_MS = 1000
"""Milliseconds between two checks of the clock: timers of a wait stand still while the host sleeps."""

CLOCK_BOOTTIME = 7
"""See clock_gettime(2): it goes on while the host sleeps."""

_IGNORED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_DEFAULT_IN_CHILD = (*_IGNORED, signal.SIGPIPE, signal.SIGXFSZ, signal.SIGCHLD)
_DEAD = frozenset(("Z", "X"))


def descendants(root: int) -> list[tuple[int, int]]:
    """The living descendants, each with its group, nearest first; empty if the system does not tell."""
    children: dict[int, list[tuple[int, int, bool]]] = {}
    try:
        names = posix.listdir("/proc")
    except OSError:
        return []
    for name in names:
        if name.isdecimal() and (found := _stat(name)):
            state, parent, group = found
            children.setdefault(parent, []).append((int(name), group, state not in _DEAD))
    below = children.get(root, [])
    for process, *_ in below:
        below += children.get(process, ())
    return [(process, group) for process, group, is_alive in below if is_alive]


def _stat(name: str) -> tuple[str, int, int] | None:
    """State, parent and group of a process; None if it is gone."""
    try:
        # pathlib would cost ten times more, and there may be thousands.
        with open(f"/proc/{name}/stat", errors="replace") as file:
            state, parent, group = file.read().rpartition(")")[2].split(maxsplit=3)[:3]
    except (OSError, ValueError):
        return None
    return state, int(parent), int(group)


def send(root: int, number: int) -> bool:
    below = descendants(root)
    for group in dict.fromkeys(group for _, group in below):
        if group != root:
            _send(posix.killpg, group, number)
    for process in (process for process, group in below if group == root):
        _send(posix.kill, process, number)
    return bool(below)


def _send(kill: Callable[[int, int], None], target: int, number: int) -> None:
    try:
        kill(target, number)
    except (ProcessLookupError, PermissionError):
        return


def main() -> None:
    """Run the command in the arguments until the control channel ends, or until the deadline."""
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    _prctl(PR_SET_CHILD_SUBREAPER, 1)
    control, wake = posix.dup(0), _wake_descriptor()
    nothing = posix.open("/dev/null", posix.O_RDWR)
    at = sys.argv.index("--")
    words, argv = [word.partition("=")[::2] for word in sys.argv[1:at]], sys.argv[at + 1 :]
    named = dict(words)
    given = int(named.get("input", nothing))
    posix.dup2(given, 0)
    if given != nothing:
        posix.close(given)
    _set_mark(int(named["mark"]))
    folder = named.get("folder", "")
    if folder:
        _make_folder(folder, [value for name, value in words if name == "link"])
    child = _begin(argv, words)
    # Readers of the command's output wait for its end, so this process must not hold the pipes.
    posix.dup2(nothing, 0)
    posix.dup2(nothing, 1)
    posix.dup2(nothing, 2)
    posix.close(nothing)
    _report(control, child)
    status = _serve(control, wake, child, int(named["until"]))
    _end(control, child, status, folder)


def _make_folder(folder: str, links: list[str]) -> None:
    """Make the command's own folder, with links in its home to what it shares with others."""
    posix.mkdir(folder, 0o700)
    for name in (HOME, TEMPORARY):
        posix.mkdir(f"{folder}/{name}", 0o700)
    for link in links:
        path, _, target = link.partition(":")
        names = path.split("/")
        for depth in range(1, len(names)):
            try:
                posix.mkdir(f"{folder}/{HOME}/{'/'.join(names[:depth])}", 0o700)
            except FileExistsError:
                continue
        posix.symlink(target, f"{folder}/{HOME}/{path}")


def _begin(argv: list[str], words: list[tuple[str, str]]) -> int:
    """Start the command, confined; returns its process, which has a group of its own: signals to it do not reach us."""
    environment = _environment()
    begun, beginning = posix.pipe()
    child = posix.fork()
    if child:
        posix.close(beginning)
        # Until it is the command, and hears signals; or has ended.
        posix.read(begun, 1)
        posix.close(begun)
        return child
    try:
        posix.setpgid(0, 0)
        for number in _DEFAULT_IN_CHILD:
            signal.signal(number, signal.SIG_DFL)
        _limit([value for name, value in words if name == "limit"])
        _confine([value for name, value in words if name == "rule"], dict(words).get("filter", ""))
        posix.execve(argv[0], argv, environment)
    except (OSError, ValueError) as error:
        posix.write(2, f"The command could not be started: {error}\n".encode(errors="replace"))
    finally:
        # Whatever happened, this process does not go on as a second supervisor.
        posix._exit(126)  # noqa: SLF001 - nothing is ours to tidy up


def _limit(limits: list[str]) -> None:
    """Set the limits. Where memory runs out a command is killed before any service."""
    for limit in limits:
        kind, _, value = limit.partition(":")
        resource.setrlimit(int(kind), (int(value), int(value)))
    try:
        with open("/proc/self/oom_score_adj", "w") as file:
            file.write("1000")
    except OSError:
        return  # it is not there on every system


def _confine(rules: list[str], program: str) -> None:
    """Confine this process, once and for all: its capabilities, its files, its system calls."""
    if not rules:
        return
    _drop_capabilities()
    _done(_prctl(PR_SET_NO_NEW_PRIVS, 1), "it cannot give up new rights")
    attributes = b"".join(number.to_bytes(8, sys.byteorder) for number in (ALL_RIGHTS, 0, SCOPES))
    ruleset = _done(system_call(LANDLOCK_CREATE_RULESET, attributes, len(attributes), 0), "Landlock takes no rules")
    for rule in rules:
        rights, _, path = rule.partition(":")
        _allow(ruleset, path, int(rights))
    _done(system_call(LANDLOCK_RESTRICT_SELF, ruleset, 0), "Landlock cannot confine it")
    posix.close(ruleset)
    code = (_Byte * (len(program) // 2)).from_buffer_copy(bytes.fromhex(program))
    header = (len(code) // 8).to_bytes(8, sys.byteorder) + _ctypes.addressof(code).to_bytes(8, sys.byteorder)
    _done(_prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header), "its system calls cannot be filtered")


def _allow(ruleset: int, path: str, rights: int) -> None:
    """Allow this at a path and below it."""
    try:
        place = posix.open(path, posix.O_PATH | posix.O_CLOEXEC)
    except OSError:
        return  # what does not exist needs no right
    if posix.fstat(place).st_mode & 0o170000 != 0o040000:
        rights &= FILE_RIGHTS
    rule = rights.to_bytes(8, sys.byteorder) + place.to_bytes(4, sys.byteorder)
    added = system_call(LANDLOCK_ADD_RULE, ruleset, LANDLOCK_RULE_PATH_BENEATH, rule, 0)
    _done(added, f"Landlock takes no rule for {path}")
    posix.close(place)


def _drop_capabilities() -> None:
    """Drop what Landlock does not guard against: with CAP_PERFMON alone all other processes could be read."""
    kept = 0
    if not posix.geteuid():
        for number in range(CAPABILITIES_MAX):
            if number != CAP_DAC_OVERRIDE and _prctl(PR_CAPBSET_READ, number) == 1:
                _done(_prctl(PR_CAPBSET_DROP, number), "it cannot give up capabilities")
        kept = (_prctl(PR_CAPBSET_READ, CAP_DAC_OVERRIDE) == 1) << CAP_DAC_OVERRIDE
    header = _CAPABILITY_VERSION_3.to_bytes(4, sys.byteorder) + bytes(4)
    sets = b"".join(number.to_bytes(4, sys.byteorder) for number in (kept, kept, 0, 0, 0, 0))
    _done(system_call(_CAPSET[posix.uname().machine], header, sets), "it cannot give up capabilities")


def _done(result: int, problem: str) -> int:
    if result < 0:
        raise OSError(problem)
    return result


class _Byte(_ctypes._SimpleCData):  # type: ignore[type-arg]  # noqa: SLF001 - `ctypes` is slower to import
    _type_ = "c"


_LIBRARY = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]


def _prctl(*words: int | bytes) -> int:
    return _call("prctl", *(*words, 0, 0, 0, 0)[:5])


def system_call(*words: int | bytes | None) -> int:
    """The result of a system call, by its number; negative: it failed."""
    return _call("syscall", *words)


def _call(name: str, *words: int | bytes | None) -> int:
    result: int = _ctypes.call_function(_ctypes.dlsym(_LIBRARY, name), words)
    return result


def _set_mark(mark: int) -> None:
    if mark:
        try:
            resource.setrlimit(resource.RLIMIT_RTTIME, (mark, mark))
        except (OSError, ValueError):
            return  # not everywhere is this allowed; then it is held by its parent alone


def _environment() -> dict[bytes, bytes]:
    """The original environment: the interpreter adds a locale to its own if there is none."""
    with open("/proc/self/environ", "rb") as file:
        pairs = (line.partition(b"=") for line in file.read().split(b"\0"))
    return {name: value for name, _, value in pairs if name}


def _wake_descriptor() -> int:
    """Readable whenever a child has ended."""
    reader, writer = posix.pipe()
    posix.set_blocking(writer, False)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
    return reader


def _serve(control: int, wake: int, child: int, until_ms: int) -> int | None:
    """Reap children until the control channel ends or the deadline; returns the command's exit code if it has ended."""
    status: int | None = None
    buffer = b""
    poller = select.poll()
    poller.register(control, select.POLLIN)
    poller.register(wake, select.POLLIN)
    while True:
        left_ms = until_ms - int(time.clock_gettime(CLOCK_BOOTTIME) * 1000)
        if until_ms and left_ms <= 0:
            return status
        for descriptor, _ in poller.poll(min(left_ms, LOOK_MS) if until_ms else None):
            if descriptor == control:
                received = _receive(control)
                if not received:
                    return status
                *words, buffer = (buffer + received).split(b"\n")
                until_ms = int(words[-1]) if words else until_ms
                continue
            posix.read(wake, 4096)
            if (ended := _reap(child)) is not None:
                status = ended
                _report(control, status)


def _receive(control: int) -> bytes:
    try:
        return posix.read(control, 4096)
    except OSError:
        return b""


def _reap(child: int) -> int | None:
    """Reap dead children; returns the exit code of the command if it is among them."""
    status = None
    while True:
        try:
            process, ended = posix.waitpid(-1, posix.WNOHANG)
        except ChildProcessError:
            return status
        if not process:
            return status
        if process == child:
            status = posix.waitstatus_to_exitcode(ended)


def _report(control: int, number: int) -> None:
    try:
        posix.write(control, b"%d\n" % number)
    except OSError:
        return  # nobody hears it any more


def _end(control: int, child: int, status: int | None, folder: str) -> None:
    """Kill until nobody is left: others may fork before they are hit. Then remove the command's folder."""
    wait_s = ROUND_S
    while send(posix.getpid(), signal.SIGKILL):
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, ROUND_S_MAX)
        status = _last(child, status)
    status = _last(child, status)
    _report(control, -signal.SIGKILL if status is None else status)
    if folder:
        # A fixed path: the command's own may lead into the project.
        posix.execve("/bin/sh", ("sh", "-c", 'exec rm -rf -- "$0"', folder), {"PATH": PROGRAMS})
    posix._exit(0)  # noqa: SLF001 - nothing is left to tidy up


def _last(child: int, status: int | None) -> int | None:
    ended = _reap(child)
    return status if ended is None else ended


if __name__ == "__main__":
    main()
