"""Follows a run, and knows by that what the run sees."""

from turnwright.types.v1 import cursor_pb2

from contract.store.harness import Run


class Watcher:
    """Applies what a watch says to a dict of entries."""

    def __init__(self, run: Run, **options) -> None:
        self.run = run
        self.stream = run.client.stream("WatchChanges", **run.address, **options)
        self.known = {}
        self.messages = []
        self.runs, self.loops, self.turns = [], [], []

    async def next(self):
        message = await anext(self.stream)
        assert message.HasField("send_time")
        self.messages.append(message)
        for path in message.removed_paths:
            self.known.pop(path, None)
        self.known |= {entry.path: entry for entry in message.entries}
        self.runs += [message.run] if message.HasField("run") else []
        self.loops += message.loops
        self.turns += message.turns
        return message

    async def until(self, cursor):
        """Follow up to a moment."""
        while not self.messages or not reached(self.messages[-1].cursor, cursor):
            await self.next()

    async def is_at(self, cursor):
        """Whether it knows just what the run saw at a moment, the prompt's entry left out."""
        then = await self.run.view(at=cursor_pb2.Moment(cursor=cursor))
        seen = {entry.path: plain(entry) for entry in then.entries if entry.scheme != "run"}
        return {path: plain(entry) for path, entry in self.known.items()} == seen

    async def close(self):
        await self.stream.aclose()


def plain(entry):
    """Without the digest: that of a streamed body comes with its folding, whenever that is."""
    copy = type(entry)()
    copy.CopyFrom(entry)
    copy.ClearField("hash")
    return copy


def reached(cursor, wanted):
    return cursor.run_revision >= wanted.run_revision and cursor.project_revision >= wanted.project_revision


def is_heartbeat(message):
    return not (message.entries or message.removed_paths or message.HasField("run") or message.loops or message.turns)
