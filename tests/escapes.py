"""What a command tries that wants out of its sandbox: a program that runs inside of it.

It tries one escape after the other, each in a process of its own, and prints what became of each as JSON: "out", or why
not. Each function raises if it is kept, and returns if it got out; nothing that it does would harm the host.
"""

import ctypes
import errno
import json
import mmap
import os
import platform
import signal
import socket
import sys
from pathlib import Path

LIBC = ctypes.CDLL(None, use_errno=True)
MACHINE = platform.machine()
PTRACE_SEIZE, PR_CAPBSET_READ = 0x4206, 23
NEWUSER, NEWNS, SIGCHLD = 0x10000000, 0x00020000, 17
ESCAPES = {}
WAIT_S = 60
"""Seconds for an answer of the host: where there is none, the system says so at once."""


def escape(function):
    ESCAPES[function.__name__] = function
    return function


def call(name, *words):
    """A system call by its number here. Raises OSError."""
    numbers = {"x86_64": 0, "aarch64": 1}
    number = CALLS[name][numbers[MACHINE]] if isinstance(CALLS[name], tuple) else CALLS[name]
    whole = (ctypes.c_long(word) if isinstance(word, int) else word for word in words)
    return done(LIBC.syscall(number, *whole))


def done(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


CALLS = {
    "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282), "keyctl": (250, 219),
    "add_key": (248, 217), "io_uring_setup": 425, "clone": (56, 220), "clone3": 435, "setns": (308, 268),
    "process_vm_readv": (310, 270), "fsopen": 430, "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265), "pidfd_open": 434, "pidfd_getfd": 438, "mount": (165, 40),
}  # fmt: skip


# ---- Files outside, and what must stay hidden


def reads(name):
    def read_it():
        assert (PLACE / name).read_text().startswith("hush")

    read_it.__name__ = f"reads {name}"
    return read_it


SECRETS = (
    "home/token", "people/user/.ssh/id", "people/user/.aws/credentials", "people/user/.kube/config",
    "people/user/.config/gcloud/key.json", "people/user/.netrc", "people/user/.cache/huggingface/token",
    "other/secret", "store.db",
)  # fmt: skip
for each in SECRETS:
    escape(reads(each))


@escape
def lists_the_home():
    assert list((PLACE / "home").iterdir())


@escape
def reads_through_a_link():
    Path("link").unlink(missing_ok=True)
    Path("link").symlink_to(PLACE / "home" / "token")
    assert Path("link").read_text()


@escape
def takes_a_hard_link():
    os.link(PLACE / "other" / "secret", "hard")
    assert Path("hard").read_text()


@escape
def moves_it_here():
    (PLACE / "other" / "movable").rename("moved")


@escape
def writes_outside():
    with (PLACE / "other" / "written").open("a") as file:
        file.write("x")


@escape
def makes_a_file_outside():
    os.close(os.open(PLACE / "other" / f"made-{os.getpid()}", os.O_CREAT | os.O_WRONLY))


@escape
def truncates_outside():
    os.truncate(PLACE / "other" / "written", 0)


@escape
def removes_outside():
    (PLACE / "other" / "removable").unlink()


@escape
def makes_a_folder_outside():
    (PLACE / "other" / f"folder-{os.getpid()}").mkdir()


@escape
def changes_the_host():
    """Only opened: nothing is written."""
    for path in ("/proc/sys/kernel/core_pattern", "/proc/sysrq-trigger", "/etc/passwd"):
        with Path(path).open("r+"):
            return


@escape
def opens_a_file_by_its_handle():
    handle = (ctypes.c_uint32 * 34)(128)
    mount = ctypes.c_int()
    call("name_to_handle_at", -100, str(PLACE / "other" / "secret").encode(), handle, ctypes.byref(mount), 0)
    call("open_by_handle_at", os.open(".", os.O_RDONLY), handle, os.O_RDONLY)


@escape
def makes_a_device():
    os.mknod(f"device-{os.getpid()}", 0o660 | 0o020000, os.makedev(1, 1))


@escape
def reads_what_another_command_keeps():
    assert (PLACE / "tmp" / "another").read_text()


# ---- Other processes


@escape
def reads_the_environment_of_the_executor():
    assert b"HUSH" in Path(f"/proc/{VICTIM}/environ").read_bytes()


@escape
def walks_through_the_executors_root():
    assert (Path(f"/proc/{VICTIM}/root") / str(PLACE).lstrip("/") / "other" / "secret").read_text()


@escape
def traces_the_executor():
    done(LIBC.ptrace(PTRACE_SEIZE, VICTIM, None, None))


@escape
def reads_the_memory_of_the_executor():
    """At an address that there is not: only who may read is told so."""
    nowhere = (ctypes.c_uint64 * 2)(8, 1)
    kept = ctypes.create_string_buffer(1)
    here = (ctypes.c_uint64 * 2)(ctypes.addressof(kept), 1)
    try:
        call("process_vm_readv", VICTIM, here, 1, nowhere, 1, 0)
    except OSError as error:
        if error.errno != errno.EFAULT:
            raise


@escape
def takes_a_descriptor_of_the_executor():
    call("pidfd_getfd", call("pidfd_open", VICTIM, 0), 0, 0)


@escape
def signals_the_executor():
    os.kill(VICTIM, 0)


# ---- Sockets


def connects(kind, family, address):
    with socket.socket(family, kind) as connected:
        connected.settimeout(WAIT_S)
        connected.connect(address)
        if kind == socket.SOCK_DGRAM:
            connected.send(b"x")


@escape
def connects_to_a_socket_of_the_host():
    connects(socket.SOCK_STREAM, socket.AF_UNIX, str(PLACE / "other" / "socket"))


@escape
def connects_to_an_abstract_socket():
    connects(socket.SOCK_STREAM, socket.AF_UNIX, "\0" + str(PLACE))


@escape
def sends_to_a_socket_through_a_pair():
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", str(PLACE / "other" / "datagrams"))


@escape
def sends_to_a_socket_through_a_raw_pair():
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    one.sendto(b"x", str(PLACE / "other" / "datagrams"))


@escape
def connects_to_a_port_of_the_host():
    connects(socket.SOCK_STREAM, socket.AF_INET, ("127.0.0.1", PORT))


@escape
def is_answered_by_the_host():
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.settimeout(WAIT_S)
        asking.connect(("127.0.0.1", PORT))
        asking.send(b"x")
        assert asking.recv(1)


# ---- The kernel


@escape
def makes_a_user_namespace():
    done(LIBC.unshare(NEWUSER | NEWNS))


@escape
def clones_into_a_user_namespace():
    if not call("clone", NEWUSER | SIGCHLD, 0, 0, 0, 0):
        os._exit(0)


@escape
def clones_by_the_newer_call():
    arguments = (ctypes.c_uint64 * 11)(NEWUSER, 0, 0, 0, SIGCHLD)
    if not call("clone3", arguments, ctypes.sizeof(arguments)):
        os._exit(0)


@escape
def mounts():
    """A file system that there is not: only who may mount is told so."""
    try:
        call("mount", b"none", b".", b"nothing", 0, None)
    except OSError as error:
        if error.errno != errno.ENODEV:
            raise


@escape
def makes_a_file_system():
    call("fsopen", b"tmpfs", 0)


@escape
def enters_a_namespace_of_the_executor():
    call("setns", os.open(f"/proc/{VICTIM}/ns/mnt", os.O_RDONLY), 0)


@escape
def uses_keys():
    call("add_key", b"user", b"turnwright-test", b"x", 1, -2)


@escape
def makes_a_ring():
    parameters = (ctypes.c_uint32 * 30)()
    call("io_uring_setup", 1, parameters)


@escape
def handles_page_faults():
    call("userfaultfd", 1)


@escape
def loads_a_program_into_the_kernel():
    attributes = (ctypes.c_uint32 * 32)(1, 4, 4, 1)
    call("bpf", 0, attributes, ctypes.sizeof(attributes))


@escape
def measures_the_kernel():
    attributes = (ctypes.c_uint32 * 32)(1, 128, 0)
    call("perf_event_open", attributes, 0, -1, -1, 0)


@escape
def keeps_a_superusers_capabilities():
    """CAP_SYS_ADMIN and CAP_NET_ADMIN, now or by a program that it starts."""
    held = int(Path("/proc/self/status").read_text().partition("CapEff:")[2].split()[0], 16)
    assert held >> 21 & 1 or held >> 12 & 1


@escape
def calls_as_32_bits():
    """The same number is another call: 20 is getpid by `int 0x80`."""
    code = mmap.mmap(-1, 4096, prot=mmap.PROT_READ | mmap.PROT_WRITE | mmap.PROT_EXEC)
    code.write(bytes.fromhex("b814000000cd80c3"))
    function = ctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))
    assert function() == os.getpid()


@escape
def calls_as_x32():
    done(LIBC.syscall(0x40000000 + 39))


# ---- All of them


def outcome(function):
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        signal.alarm(2 * WAIT_S)
        try:
            function()
            told = "out"
        except BaseException as error:  # noqa: BLE001 - whatever kept it
            told = repr(error)
        os.write(writer, told.encode()[:500])
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        told = file.read().decode()
    _, status = os.waitpid(child, 0)
    return told or f"ended by {status}"


if __name__ == "__main__":
    PLACE, VICTIM, PORT = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    json.dump({name: outcome(function) for name, function in ESCAPES.items()}, sys.stdout)
