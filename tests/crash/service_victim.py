"""Services in processes of their own that can end themselves at an exact step of their work, as SIGKILL ends them.

Points are `before STEP N`, `after STEP N` and, for a model call, `amid generate N`: the Nth time a step is taken, or
the Nth part of a reply. At `pause STEP N` it is only stopped before the step, as SIGSTOP stops it. Counting begins
with SIGUSR1; of `after STEP N in summary` with the call that opens a turn which summarizes. A service lives once for
each line that comes in through the pipe `{name}.in`, which is a point, `last` or empty; its process id and its exit
status are told through `{name}.out`.
"""

import asyncio
import contextlib
import functools
import importlib
import inspect
import json
import os
import signal
import sys
from pathlib import Path

from turnwright_values.store import EndTurnRequest
from turnwright_values.types import RequestKind

from crash.victim import EndsAt
from turnwright_assembler.config import AssemblerSettings
from turnwright_assembler.wiring import build as build_assembler
from turnwright_executor.config import ExecutorSettings
from turnwright_executor.files.workspace import DiskWorkspace
from turnwright_executor.peers.assembler import AssemblerPackets
from turnwright_executor.peers.provider import ProviderModels
from turnwright_executor.peers.store import StoreLedger
from turnwright_executor.runs.leases import Leases
from turnwright_executor.shell.shell import LocalShell
from turnwright_executor.wiring import build as build_executor
from turnwright_kit.logs import configure_logs
from turnwright_kit.server import RunningServer, serve_until_stopped
from turnwright_kit.settings import load
from turnwright_provider.config import ProviderSettings
from turnwright_provider.wiring import build as build_provider
from turnwright_store.config import StoreSettings
from turnwright_store.rpc.ledger_servicer import LedgerRpcs
from turnwright_store.wiring import build as build_store

ON_DEMAND = (
    "turnwright_assembler.rpc.assembler_servicer",
    "turnwright_core.patterns.compiled",
    "turnwright_grammar.edits.apply",
    "turnwright_grammar.native",
    "turnwright_grammar.reader.parser",
    "turnwright_provider.rpc.provider_servicer",
    "turnwright_provider.vendors.http",
    "turnwright_provider.vendors.scripted",
)
"""What services load when they first need it: here before all lives, so that none of the many loads it again."""

FIXED = {
    "provider": {"flush_ms": 0},
    "executor": {"work_poll_s": 0.1, "owner_poll_s": 0.1, "turn_losses_max": 1000},
}
"""What no variable speaks for: looks in quick succession, and no turn that is given up for its lost owners."""

LAST_LIFE = {"lease_s": 600.0}
"""An executor that is to end the work keeps its runs, however slow the host is."""

SERVICES = {
    "store": (StoreSettings, build_store),
    "assembler": (AssemblerSettings, build_assembler),
    "provider": (ProviderSettings, build_provider),
    "executor": (ExecutorSettings, build_executor),
}

STEPS = {
    "create": (StoreLedger, "create_run"),
    "claim": (StoreLedger, "claim_work"),
    "begin": (StoreLedger, "end_turn"),
    "packet": (StoreLedger, "write_packet"),
    "write": (StoreLedger, "write"),
    "end": (StoreLedger, "end_turn"),
    "release": (StoreLedger, "release"),
    "set_plan": (StoreLedger, "set_plan"),
    "update_plan": (StoreLedger, "update_plan"),
    "start_agent": (StoreLedger, "start_agent"),
    "wait_agents": (StoreLedger, "wait_agents"),
    "settle_agents": (StoreLedger, "settle_agents"),
    "assemble": (AssemblerPackets, "assemble"),
    "count": (ProviderModels, "count_tokens"),
    "confirm": (Leases, "confirm"),
    "shell": (LocalShell, "run"),
    "file": (DiskWorkspace, "replace"),
    "generate": (ProviderModels, "generate"),
    "answer": (LedgerRpcs, "WriteEntries"),
    "ended": (LedgerRpcs, "EndTurn"),
}
"""The steps of an executor's turn, each a call to the world outside of its process, and two of a store's."""


def end_at(point):
    """Have the process end there."""
    when, step, number, *within = point.split(" ")
    kind, method = STEPS[step]
    end = EndsAt(int(number), signal.SIGSTOP if when == "pause" else signal.SIGKILL)
    inner = getattr(kind, method)
    if inspect.iscoroutinefunction(inner):
        wrapped = _around(inner, when, end, COUNTED.get(step, lambda _: True))
    else:
        wrapped = _stepping(inner, end)
    setattr(kind, method, wrapped)
    if within:
        _count_in_summary(end)


def _opens(args):
    """Whether a call of `end_turn` opens a turn without an end of another."""
    return any(isinstance(one, EndTurnRequest) and one.next and not one.turn for one in args)


COUNTED = {"begin": _opens, "end": lambda args: not _opens(args)}
"""Which calls of a method are the step, where it has several."""


def _count_in_summary(end):
    """Count from the call on that opens a turn which summarizes."""
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for kind, method in (STEPS["end"], STEPS["ended"]):
        setattr(kind, method, _opening(getattr(kind, method), end))


def _opening(inner, end):
    @functools.wraps(inner)
    async def opening(*args, **kwargs):
        kinds = {one.next.request.kind for one in args if isinstance(one, EndTurnRequest) and one.next}
        if RequestKind.COMPACTION in kinds:
            end.begin()
        return await inner(*args, **kwargs)

    return opening


def _around(inner, when, end, is_counted):
    @functools.wraps(inner)
    async def step(*args, **kwargs):
        if when in ("before", "pause") and is_counted(args):
            end()
        result = await inner(*args, **kwargs)
        if when == "after" and is_counted(args):
            end()
        return result

    return step


def _stepping(inner, end):
    async def steps(stream):
        async with stream as parts:
            async for part in parts:
                end()
                yield part

    @functools.wraps(inner)
    def begun(*args, **kwargs):
        return contextlib.aclosing(steps(inner(*args, **kwargs)))

    return begun


def live(name, point):
    """Serve until the end."""
    kind, build = SERVICES[name]
    settings = load(kind, **FIXED.get(name, {}), **(LAST_LIFE if point == "last" else {}))
    configure_logs(settings.log_level)
    if point not in ("", "last"):
        end_at(point)
    secret = settings.secret()
    asyncio.run(serve_until_stopped(RunningServer(build(settings, secret), settings.listen, secret, 1.0)))


def keep(name, service, folder, environment):
    """Live once for each line that comes in."""
    os.environ.update(environment)
    with (folder / f"{name}.err").open("a") as told:
        os.dup2(told.fileno(), sys.stderr.fileno())
    with (folder / f"{name}.in").open() as points, (folder / f"{name}.out").open("w") as ends:
        for line in points:
            child = os.fork()
            if not child:
                live(service, line.strip())
                os._exit(0)
            print(child, file=ends, flush=True)
            print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=ends, flush=True)


def main(plan):
    """Everything is imported once, for all services: each is kept by a fork, and each of its lives is a fork of that."""
    for module in ON_DEMAND:
        importlib.import_module(module)
    # Each life inherits this: it may be told to count before it is ready to, and then ends when its time is over.
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    for name, service, environment in json.loads(plan.read_text()):
        if not os.fork():
            keep(name, service, plan.parent, environment)
            os._exit(0)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
