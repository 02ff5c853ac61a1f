"""Supervisor: a process between the executor and one command, from which no process of the command escapes.

It is a child subreaper, so every process of the command stays its descendant, whatever session or group that process
creates. When the command's shell ends, it reports the exit code and stays. When the executor closes the control
channel, or is dead, it kills all its descendants and ends; likewise when the deadline has passed until which the
executor may work, because a stopped executor cannot do it. If the supervisor itself is killed, the executor finds its
processes by a mark (`process_mark`). The control channel is its standard input, a socket with one number per line: it
writes the command's process group and later its exit code, and reads new deadlines, and the end.

It runs as a script on the interpreter's bare modules: every command waits for its start, and `os`, `signal` and
`ctypes` would double that. Linux only.
Source: architecture 11 (children die with their executor).
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
    """Run the command in the arguments until the control channel ends, or until the deadline.

    The first arguments are the mark for its processes, and the deadline: milliseconds of CLOCK_BOOTTIME, 0 for none.
    """
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    prctl = _ctypes.dlsym(_ctypes.dlopen(None, 0), "prctl")  # type: ignore[arg-type]
    _ctypes.call_function(prctl, (PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0))
    control, wake = posix.dup(0), _wake_descriptor()
    nothing = posix.open("/dev/null", posix.O_RDWR)
    posix.dup2(nothing, 0)
    # A group of its own, so that signals to the command's group do not reach this process.
    mark, until, *argv = sys.argv[1:]
    _set_mark(int(mark))
    child = posix.posix_spawn(argv[0], argv, _environment(), setpgroup=0, setsigdef=_DEFAULT_IN_CHILD)
    # Readers of the command's output wait for its end, so this process must not hold the pipes.
    posix.dup2(nothing, 1)
    posix.dup2(nothing, 2)
    posix.close(nothing)
    _report(control, child)
    status = _serve(control, wake, child, int(until))
    _end(control, child, status)


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


def _end(control: int, child: int, status: int | None) -> None:
    """Kill until nobody is left: others may fork before they are hit."""
    wait_s = ROUND_S
    while send(posix.getpid(), signal.SIGKILL):
        time.sleep(wait_s)
        wait_s = min(2 * wait_s, ROUND_S_MAX)
        status = _last(child, status)
    status = _last(child, status)
    _report(control, -signal.SIGKILL if status is None else status)
    posix._exit(0)  # noqa: SLF001 - nothing is left to tidy up


def _last(child: int, status: int | None) -> int | None:
    ended = _reap(child)
    return status if ended is None else ended


if __name__ == "__main__":
    main()
