"""The filter of a command's system calls where Landlock confines it: a program for the kernel's seccomp.

Landlock guards files. What else a command could reach past it is refused here: sockets, other namespaces and mounts,
kernel interfaces that have often been broken, clocks and modules. Everything else is allowed, so that compilers, tests
and package managers work; calls that are newer than this list do not exist for a command, as on an older kernel.

- No UNIX sockets: Landlock does not guard their paths (databases, containers, agents). Pairs of connected ones are
  allowed, but none that could be sent elsewhere.
- Internet sockets only with network. Landlock knows ports, not addresses, so not even the host's own is left then.
- A namespace or mount of its own could show other files at allowed paths. `clone3` hides its flags from a filter; libc
  falls back to `clone` where it does not exist.
- Calls of another architecture, 32 bits and x32 have other numbers: they end the process.

Tracing and reading other processes is guarded by Landlock: those outside of the command cannot be reached, while
debuggers work inside. Source: seccomp(2), landlock(7); ADR 69.
"""

from __future__ import annotations

import errno
import platform
import socket
from collections.abc import Iterator
from typing import Final

from msgspec import Struct

Instruction = tuple[int, int, int, int]
"""Code, jump if true, jump if false, constant: struct sock_filter."""

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _ARCHITECTURE, _ARGUMENTS = 0, 4, 16
"""Offsets in struct seccomp_data; of an argument, 8 bytes each, the lower half counts."""

_ALLOW, _KILL, _ERROR = 0x7FFF0000, 0x80000000, 0x00050000
_X32: Final = 0x40000000

NAMESPACES: Final = 0x7E020080
"""Flags of clone(2) and unshare(2): CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID, NET, TIME."""

_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C
_NETLINK_ROUTE: Final = 0


class Architecture(Struct, frozen=True):
    """The numbers of one kind of machine."""

    audit: int
    newest: int
    """The newest call that is known here; all machines number new ones alike."""
    denied: tuple[int, ...]
    """Refused whatever their arguments."""
    clone: int
    unshare: int
    ioctl: int
    socket: int
    socketpair: int


# Since 2019 new calls have one number on all machines: io_uring, pidfd_getfd, mounts, quotactl_fd, open_tree_attr.
_MISSING: Final = (425, 426, 427, 435)
"""io_uring_setup, io_uring_enter, io_uring_register, clone3: programs know kernels without them."""
_MOUNTS: Final = (428, 429, 430, 431, 432, 433, 442, 443, 467)

ARCHITECTURES: Final = {
    "x86_64": Architecture(
        audit=0xC000003E,
        newest=469,
        denied=(
            *_MOUNTS, 165, 166, 155, 161, 308,  # mount umount2 pivot_root chroot setns
            321, 298, 323, 246, 320, 175, 313, 176,  # bpf perf_event_open userfaultfd kexec modules
            248, 249, 250, 304, 300,  # add_key request_key keyctl open_by_handle_at fanotify_init
            169, 167, 168, 163, 179, 103, 153,  # reboot swapon swapoff acct quotactl syslog vhangup
            164, 227, 159, 305, 170, 171, 172, 173,  # clocks, names of the host, ports of the machine
        ),
        clone=56, unshare=272, ioctl=16, socket=41, socketpair=53,
    ),
    "aarch64": Architecture(
        audit=0xC00000B7,
        newest=469,
        denied=(
            *_MOUNTS, 40, 39, 41, 51, 268,
            280, 241, 282, 104, 294, 105, 273, 106,
            217, 218, 219, 265, 262,
            142, 224, 225, 89, 60, 116, 58,
            170, 112, 171, 266, 161, 162,
        ),
        clone=220, unshare=97, ioctl=29, socket=198, socketpair=199,
    ),
}  # fmt: skip


def is_known(machine: str = "") -> bool:
    """Whether there is a filter for this kind of machine."""
    return (machine or platform.machine()) in ARCHITECTURES


def program(*, network: bool, machine: str = "") -> bytes:
    """The filter for a command, with or without network, as the kernel takes it."""
    numbers = ARCHITECTURES[machine or platform.machine()]
    steps = (
        (_LOAD, 0, 0, _ARCHITECTURE),
        *_unless(numbers.audit, _KILL),
        (_LOAD, 0, 0, _NUMBER),
        (_AT_LEAST, 0, 1, _X32),
        (_RETURN, 0, 0, _KILL),
        (_AT_LEAST, 0, 1, numbers.newest + 1),
        _refused(errno.ENOSYS),
        *(step for number in _MISSING for step in _case(number, _refused(errno.ENOSYS))),
        *(step for number in numbers.denied for step in _case(number, _refused(errno.EPERM))),
        *(step for number in (numbers.clone, numbers.unshare) for step in _case(number, *_without(NAMESPACES))),
        *_case(numbers.ioctl, *_argument(1), *_case(_TIOCSTI, _refused()), *_case(_TIOCLINUX, _refused()), _ALLOWED),
        *_case(numbers.socket, *_sockets(network=network)),
        # A pair of datagram sockets could send to any address; for the kernel a raw one is such a pair.
        *_case(
            numbers.socketpair,
            *_argument(1),
            (0x54, 0, 0, 0xF),
            *_case(socket.SOCK_DGRAM, _refused()),
            *_case(socket.SOCK_RAW, _refused()),
            _ALLOWED,
        ),
        _ALLOWED,
    )
    return b"".join(
        code.to_bytes(2, "little") + bytes((yes, no)) + constant.to_bytes(4, "little")
        for code, yes, no, constant in steps
    )


_ALLOWED: Final[Instruction] = (_RETURN, 0, 0, _ALLOW)


def _refused(number: int = errno.EPERM) -> Instruction:
    return _RETURN, 0, 0, _ERROR | number


def _unless(constant: int, action: int) -> Iterator[Instruction]:
    yield _EQUAL, 1, 0, constant
    yield _RETURN, 0, 0, action


def _case(constant: int, *steps: Instruction) -> Iterator[Instruction]:
    """Steps, the last of which returns, for one value of what is loaded."""
    yield _EQUAL, 0, len(steps), constant
    yield from steps


def _argument(index: int) -> Iterator[Instruction]:
    yield _LOAD, 0, 0, _ARGUMENTS + 8 * index


def _without(bits: int) -> Iterator[Instruction]:
    """Allow a call whose first argument has none of these bits."""
    yield from _argument(0)
    yield _ANY_BIT, 0, 1, bits
    yield _refused()
    yield _ALLOWED


def _sockets(*, network: bool) -> Iterator[Instruction]:
    """Allow sockets of the internet, and those that libc asks for the host's addresses."""
    if network:
        yield from _argument(0)
        for family in (socket.AF_INET, socket.AF_INET6):
            yield from _case(family, _ALLOWED)
        asked = (*_argument(2), *_case(_NETLINK_ROUTE, _ALLOWED), _refused(errno.EACCES))
        yield from _case(socket.AF_NETLINK, *asked)
    yield _refused(errno.EACCES)
