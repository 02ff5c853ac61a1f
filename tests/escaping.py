"""Runs `escapes` as a command: BACKEND USER PLACE. Prints what became of each as JSON.

It is the executor that they are out for: it holds a secret in its environment, listens at sockets beside the project,
and answers datagrams. Before it starts the command it becomes the user.
"""

import asyncio
import ctypes
import json
import os
import shutil
import socket
import sys
import threading
from pathlib import Path

from turnwright_executor.shell import shell
from turnwright_kit.sandbox import command_process, finding, starting, supervisor

PR_SET_DUMPABLE = 4
PROGRAM = Path(__file__).with_name("escapes.py")


def become(user, place, python):
    """A user that cannot look into the superuser's home needs an interpreter and a supervisor that it can read."""
    shutil.copy(supervisor.__file__, place / "supervisor.py")
    starting.SUPERVISOR = (python, *command_process.SUPERVISOR[1:-1], str(place / "supervisor.py"))
    for each in (place, *place.rglob("*")):
        os.chown(each, user, user, follow_symlinks=False)
    os.setgroups([])
    os.setresgid(user, user, user)
    os.setresuid(user, user, user)
    # As a process is that has never been another user's: else it is closed to its own user, too.
    ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 1, 0, 0, 0)
    sys.base_prefix = "/usr"


def answer(datagrams):
    while True:
        _, address = datagrams.recvfrom(1)
        datagrams.sendto(b"x", address)


async def main(backend, user, place, python):
    await asyncio.to_thread(int)  # what it needs is imported by now
    if user:
        become(user, place, python)
    stream, abstract, unix = (socket.socket(socket.AF_UNIX) for _ in range(3))
    abstract.bind("\0" + str(place))
    stream.bind(str(place / "other" / "socket"))
    tcp, datagrams = socket.socket(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    tcp.bind(("127.0.0.1", 0))
    datagrams.bind(tcp.getsockname())
    unix = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    unix.bind(str(place / "other" / "datagrams"))
    for listening in (stream, abstract, tcp):
        listening.listen()
    threading.Thread(target=answer, args=(datagrams,), daemon=True).start()
    sandbox = await finding.find_sandbox(backend, place / "home", ["~/.cache"], [str(place / "tried")])
    told = {1: "", 2: ""}

    async def keep(channel, text):
        told[channel] += text

    words = (python, "-I", place / "tried" / "escapes.py", place, os.getpid(), tcp.getsockname()[1])
    one = shell.LocalShell(place / "project", sandbox=sandbox)
    await one.run(" ".join(map(str, words)), 250, keep, network=False)
    print(told[1] or json.dumps({"problem": told[2]}))


if __name__ == "__main__":
    place = Path(sys.argv[3])
    (place / "tried").mkdir()
    shutil.copy(PROGRAM, place / "tried")
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), place, sys.argv[4]))
