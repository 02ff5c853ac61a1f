"""Every kind of command over two executors and two stores on PostgreSQL, while each of them is killed.

Each command goes to one executor and then, under its id, to the other, where it must be a duplicate. What they came to
is counted at the end: nothing is lost, nothing happens twice, and both executors and every watcher tell the same. Rows
RS08, RC10, RE03, RE08.
"""

import asyncio
import contextlib
import itertools
import random
import time

import pytest
import pytest_asyncio
from turnwright.types.v1 import session_command_pb2 as pb
from turnwright.types.v1 import settings_pb2
from turnwright_values.types import SessionState

from contract.store.harness import SECRET
from crash.stack import ENDURING, Stack, insisted
from crash.test_session_kills import Watched
from turnwright_client import Client, RunView
from turnwright_client.sessions import user_message

DONE = '<update status="200">All is done.</update>'
STANDS_S = 60
"""How long nothing may change while something is waited for: how long all of it takes says how busy the host is."""
GO_ON = '<update status="102">On.</update>'
TOOL = settings_pb2.ToolDescription(name="open_file", description="Opens a file in the editor.")
ENDS = (DONE,) * 5
"""Replies that end a loop also where an interrupted command has refuted the one before."""
MODELS = {
    "done": ENDS,
    "asks": (f"<sh>echo effect >> effects.txt</sh>{GO_ON}", *ENDS),
    "opens": (f'<open_file path="a.txt"/>{GO_ON}', *ENDS),
    "long": ("word " * 2000 + DONE, *ENDS),
}


def to_model(name: str, **more) -> settings_pb2.LoopSettings:
    settings = {"mode": settings_pb2.MODE_ACT, "client_tools": [TOOL] if name == "opens" else [], **more}
    return settings_pb2.LoopSettings(model=name, **settings)


class Standstill:
    """Fails what waits once nothing has changed for STANDS_S."""

    def __init__(self) -> None:
        self._seen: object = None
        self._since_s = time.monotonic()

    def check(self, seen: object, what: str) -> None:
        """`seen` is what there is to see of the progress."""
        if seen != self._seen:
            self._seen, self._since_s = seen, time.monotonic()
        if time.monotonic() - self._since_s > STANDS_S:
            raise TimeoutError(f"nothing has changed for {STANDS_S} s: {what}")


class Chat:
    """A run that gets every kind of command, each from both executors."""

    def __init__(self, stack: Stack, clients: list[Client], run: str) -> None:
        self.stack = stack
        self.run = run
        self.clients = clients
        self._turns = itertools.cycle((clients, clients[::-1]))
        self._ids = itertools.count(1)
        self.prompts: list[str] = []
        """The prompts that its messages must be, in their order."""

    async def give(self, *, run: str = "", **kind) -> None:
        """Give a command to one executor, and again to the other."""
        one, other = next(self._turns)
        command_id = f"{self.run} {next(self._ids)}"
        where = (self.stack.project, run or self.run, command_id)
        await insisted(lambda: one.submit(*where, **kind))
        again = await insisted(lambda: other.submit(*where, **kind))
        assert again.duplicate, kind

    async def say(self, text: str, model: str = "done", **more) -> None:
        self.prompts.append(text)
        await self.give(user_message=user_message(text, settings=to_model(model, **more)))

    async def until(self, *states: str) -> None:
        """Until it is told by one of the executors that the run is at a state and its queue is empty."""
        [client, _] = next(self._turns)
        standstill = Standstill()
        while True:
            run = (await insisted(lambda: client.get_run(self.stack.project, self.run))).run
            state = SessionState(run.state).name.lower()
            if state in states and not run.loops_queued:
                return
            standstill.check(run.revision, f"{self.run} is {state}, and not {states}: {run}")
            await asyncio.sleep(0.05)

    async def waiting(self) -> str:
        [path] = (await insisted(lambda: self.clients[0].get_run(self.stack.project, self.run))).proposals
        return path

    async def messages(self, client: Client | None = None, run: str = "") -> list:
        async def read() -> list:
            told = (client or self.clients[0]).list_messages(self.stack.project, run or self.run)
            return [message async for message in told]

        return await insisted(read)

    async def revision(self) -> int:
        return (await insisted(lambda: self.clients[0].get_run(self.stack.project, self.run))).run.revision

    async def through_every_command(self, number: int) -> None:
        """One round; `number` tells rounds apart."""
        tag = f"{self.run}.{number}"
        await self.say(f"{tag} one.")
        await self.give(set_draft=pb.SetDraft(text=f"{tag} half a sent"))
        await self.say(f"{tag} two.")
        patch = settings_pb2.RunSettingsPatch(temperature=number % 20 / 10)
        await self.give(set_params=pb.SetParams(patch=patch))
        await self.until("completed")
        await self._decisions(tag)
        await self._edits(tag)
        await self.say(f"{tag} long.", "long")
        # The prompt of a loop that is aborted before its first turn is in the list of loops alone.
        await self._until_shown(self.prompts[-1])
        await self.give(abort=pb.AbortSession())
        await self.until("idle", "completed")
        await self.give(set_draft=pb.SetDraft())

    async def _decisions(self, tag: str) -> None:
        await self.say(f"{tag} ask.", "asks")
        await self.until("paused")
        await self.give(approve_tools=pb.ApproveTools(calls=[await self.waiting()]))
        await self.until("completed")
        await self.say(f"{tag} ask again.", "asks")
        await self.until("paused")
        await self.give(reject_tools=pb.RejectTools(calls=[await self.waiting()], reason="No."))
        await self.until("completed")
        await self.say(f"{tag} open.", "opens")
        await self.until("waiting_ide")
        result = pb.IdeToolResult(call=await self.waiting(), content=f"{tag} is open.")
        await self.give(ide_tool_result=result)
        await self.until("completed")

    async def _edits(self, tag: str) -> None:
        """Commands about messages; each leaves the prompts as `prompts` has them."""
        await self.say(f"{tag} edit.")
        await self.until("completed")
        last = next(one for one in reversed(await self.messages()) if one.path.startswith("prompt://"))
        self.prompts[-1] = f"{tag} rewritten."
        await self.give(update_message=pb.UpdateMessage(message_id=last.path, content=self.prompts[-1]))
        await self.give(regenerate=pb.Regenerate())
        await self.until("completed")
        reply = next(one for one in reversed(await self.messages()) if one.path.startswith("assistant://"))
        branch = pb.BranchFromChat(source=self.run, up_to_message_id=reply.path)
        await self.give(run=f"{self.run}-branch-{tag.rpartition('.')[2]}", branch_from_chat=branch)
        await self.give(remove_message=pb.RemoveMessage(message_id=reply.path))
        turn = (await insisted(lambda: self.clients[0].get_run(self.stack.project, self.run))).run.turn
        await self.say(f"{tag} away.")
        await self.until("completed")
        await self.give(rewind_to_turn=pb.RewindToTurn(turn=turn))
        self.prompts.pop()
        place = await self._place_of_last_prompt()
        retry = pb.RetryFromIndex(
            from_index=place,
            expected_revision=await self.revision(),
            message=user_message(f"{tag} retried.", settings=to_model("done")),
        )
        self.prompts[-1] = f"{tag} retried."
        await self.give(retry_from_index=retry)
        await self.until("completed")
        await self.say(f"{tag} cut.")
        await self.until("completed")
        cut = pb.TruncateMessages(
            from_index=await self._place_of_last_prompt(), expected_revision=await self.revision()
        )
        await self.give(truncate_messages=cut)
        self.prompts.pop()

    async def _until_shown(self, prompt: str) -> None:
        standstill = Standstill()
        while prompt not in (texts := self._texts(await self.messages())):
            standstill.check(texts, f"{prompt} is not shown")
            await asyncio.sleep(0.05)

    @staticmethod
    def _texts(messages: list) -> list[str]:
        return [one.message.parts[0].text for one in messages if one.path.startswith("prompt://")]

    async def _place_of_last_prompt(self) -> int:
        found = await self.messages()
        return max(place for place, one in enumerate(found) if one.path.startswith("prompt://"))

    async def account(self) -> None:
        """Both executors tell the same, and it is what the commands came to."""
        one, other = [await self.messages(client) for client in self.clients]
        assert one == other
        assert self._texts(one) == self.prompts
        runs = [await insisted(lambda c=client: c.get_run(self.stack.project, self.run)) for client in self.clients]
        assert runs[0].run == runs[1].run
        assert not runs[0].run.loops_queued


async def agree(watched: list[Watched], late: Watched) -> None:
    """Until all watchers have the state of one that came late, at the latest number."""
    standstill = Standstill()
    while not late.view.cursor or any(one.view != late.view for one in watched):
        places = [(one.view.cursor and one.view.cursor.SerializeToString()) for one in (*watched, late)]
        standstill.check(places, str([difference(one.view, late.view) for one in watched]))
        await asyncio.sleep(0.05)


def difference(view: RunView, other: RunView) -> list[str]:
    """What two views tell differently."""
    fields = ("cursor", "run", "state", "draft", "queue", "pause_reasons", "proposals", "partial")
    found = [f"{name}: {getattr(view, name)} {getattr(other, name)}" for name in fields
             if getattr(view, name) != getattr(other, name)]  # fmt: skip
    paths = sorted({*view.entries, *other.entries})
    return found + [
        f"{path}: {view.entries.get(path)} {other.entries.get(path)}"
        for path in paths
        if view.entries.get(path) != other.entries.get(path)
    ]


async def chat_and_kill(stack: Stack, runs: int, rounds: int, kills: int) -> None:
    """Chats go through every command while services are killed one after the other, and watchers come and go."""
    dice = random.Random(rounds)
    async with contextlib.AsyncExitStack() as entered:
        clients = [
            await entered.enter_async_context(Client.connect(stack.at(name), SECRET, policy=ENDURING))
            for name in ("executor0", "executor1")
        ]
        chats = [Chat(stack, clients, f"chat{number}") for number in range(runs)]
        for chat in chats:
            await insisted(lambda chat=chat: clients[0].create_run(stack.project, chat.run, RUN))
        watched = {chat.run: [Watched(stack, chat.run) for _ in MANNERS] for chat in chats}
        following = [
            asyncio.create_task(one.follow(clients[place % 2], **manner))
            for those in watched.values()
            for place, (one, manner) in enumerate(zip(those, MANNERS, strict=True))
        ]

        rounds_over = 0

        async def converse(chat: Chat) -> None:
            nonlocal rounds_over
            for number in range(rounds):
                await chat.through_every_command(number)
                rounds_over += 1

        talking = asyncio.gather(*map(converse, chats))
        killed = 0
        try:
            while not talking.done() and killed < kills:
                await asyncio.sleep(0.3 + dice.random() * 0.7)
                if killed * runs * rounds > kills * (rounds_over + runs):
                    # Each round has its share of the kills.
                    continue
                life = stack.lives[dice.choice(VICTIMS)]
                life.kill()
                life.start()
                killed += 1
            await talking
            for chat in chats:
                await chat.account()
                late = Watched(stack, chat.run)
                following.append(asyncio.create_task(late.follow(clients[0])))
                await agree(watched[chat.run], late)
        finally:
            talking.cancel()
            for task in following:
                task.cancel()
            await asyncio.gather(talking, *following, return_exceptions=True)
    # Of a command whose executor was killed in it nobody knows whether it happened: it is not done again.
    assert 0 <= runs * rounds - stack.effects["effect"] <= killed
    print(f"{killed} kills, {runs} chats of {rounds} rounds")
    assert stack.complaints() == {}


RUN = settings_pb2.RunSettings(model="done")
VICTIMS = ("executor0", "executor1", "store0", "store1")
MANNERS = ({}, {"drops_after": 4}, {"stalls_s": 0.05})
"""How watchers watch: all the time, with connections that they drop, and slowly."""


@pytest_asyncio.fixture
async def replicas(tmp_path, postgres_url):
    stack = Stack(tmp_path, postgres_url, executors=2, stores=2)
    await stack.start()
    for name, replies in MODELS.items():
        # 25 rounds of a chat are too long for a window of 32,768 tokens.
        await stack.add_model(name, *replies, context_length=1_000_000)
    yield stack
    stack.close()


@pytest.mark.asyncio
@pytest.mark.timeout(180)
async def test_every_command_happens_once_on_two_replicas_of_which_some_are_killed(replicas):
    await chat_and_kill(replicas, runs=1, rounds=1, kills=2)


@pytest.mark.soak
@pytest.mark.asyncio
@pytest.mark.timeout(1800)
async def test_every_command_happens_once_in_100_kills(replicas):
    await chat_and_kill(replicas, runs=4, rounds=25, kills=100)
