"""An editor: it speaks the protocol to an agent whose client is connected to real services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager, nullcontext
from pathlib import Path
from typing import Any

from contract.acp.schemas import check_transcript
from services import Services
from turnwright_acp.agent import Agent
from unit.acp.lines import Message, Peer, served

PLANS = {"plan": {}}


class Editor:
    """Answers permissions by `decide`, and keeps the updates of each session."""

    def __init__(self, peer: Peer, project: Path) -> None:
        """`project` is the folder that it has open."""
        self.peer, self.project = peer, project
        self.decide: Callable[[Message], str | None] = lambda request: "allow_once"
        self.answers: dict[str, Callable[[Message], Any]] = {}
        self.asked: list[Message] = []
        self.order: list[Message] = []
        self.methods: dict[Any, str] = {}
        """The methods of its requests, by their ids."""
        self._waiting: dict[int, asyncio.Future[Message]] = {}
        self._heard = asyncio.Condition()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while True:
            try:
                message = await self.peer.next()
            except EOFError:
                return
            self.order.append(message)
            if "method" not in message:
                if future := self._waiting.pop(message["id"], None):
                    future.set_result(message)
            elif "id" in message:
                self.asked.append(message)
                await self._answer(message)
            async with self._heard:
                self._heard.notify_all()

    async def _answer(self, message: Message) -> None:
        if message["method"] == "session/request_permission":
            option = self.decide(message["params"])
            if option is None:
                return
            result: Any = {"outcome": {"outcome": "selected", "optionId": option}}
        else:
            result = self.answers[message["method"]](message["params"])
            if result is None:
                return
        await self.peer.send({"id": message["id"], "result": result})

    async def until(self, is_met: Callable[[], Any]) -> Any:
        """Wait until what was heard meets a condition, and return what it says."""
        async with self._heard:
            await self._heard.wait_for(is_met)
        return is_met()

    async def begin(self, method: str, params: Any) -> asyncio.Future[Message]:
        number = len(self.methods) + 1
        future: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._waiting[number], self.methods[number] = future, method
        await self.peer.send({"id": number, "method": method, "params": params})
        return future

    async def begin_prompt(self, session: str, text: str = "Do it.") -> asyncio.Future[Message]:
        return await self.begin("session/prompt", {"sessionId": session, "prompt": [{"type": "text", "text": text}]})

    async def call(self, method: str, **params: Any) -> Message:
        """The result of a request; fails if it is an error."""
        answer = await (await self.begin(method, params))
        assert "result" in answer, answer
        return answer["result"]

    async def refused(self, method: str, **params: Any) -> int:
        """The code of the error that a request is answered with."""
        answer = await (await self.begin(method, params))
        return answer["error"]["code"]

    async def tell(self, method: str, **params: Any) -> None:
        await self.peer.send({"method": method, "params": params})

    def place(self, session: str) -> Message:
        """The parameters that open a session again."""
        return {"sessionId": session, "cwd": str(self.project), "mcpServers": []}

    async def new(self) -> str:
        return (await self.call("session/new", cwd=str(self.project), mcpServers=[]))["sessionId"]

    async def prompt(self, session: str, text: str = "Do it.") -> Message:
        return await self.call("session/prompt", sessionId=session, prompt=[{"type": "text", "text": text}])

    def updates(self, session: str, *kinds: str) -> list[Message]:
        sent = [one["params"] for one in self.order if one.get("method") == "session/update"]
        return [
            one["update"]
            for one in sent
            if one["sessionId"] == session and (not kinds or one["update"]["sessionUpdate"] in kinds)
        ]

    def said(self, session: str, kind: str = "agent_message_chunk") -> str:
        return "".join(one["content"]["text"] for one in self.updates(session, kind))

    def told(self, method: str) -> list[Message]:
        """The parameters of the notifications of one method."""
        return [one["params"] for one in self.order if one.get("method") == method and "id" not in one]


@asynccontextmanager
async def editing(services: Services, capabilities: Any = None, model: str = "m", **agent: Any):
    """An editor of services in this process."""
    async with connected(
        Agent(lambda: nullcontext(services.client), model, **agent), services.files, capabilities
    ) as editor:
        yield editor


@asynccontextmanager
async def connected(agent: Agent, project: Path, capabilities: Any = None):
    """An editor that has initialized. All that it was sent is held to the schemas of the protocol."""
    async with served(agent.serve) as peer:
        editor = Editor(peer, project)
        try:
            await editor.call("initialize", protocolVersion=1, clientCapabilities=capabilities or {})
            yield editor
        finally:
            peer.end()
            await peer.task
            await editor._reading
    check_transcript(editor.order, editor.methods, has_plans="plan" in (capabilities or {}))
