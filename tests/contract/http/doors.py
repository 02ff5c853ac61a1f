"""A stack that serves HTTP, and clients of it that take no help from a library of ours."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

import httpx
from turnwright.executor.v1 import executor_service_pb2
from turnwright.settings.v1 import settings_service_pb2
from turnwright.types.v1 import model_pb2

from services import Services, running, token_for
from turnwright_executor.rpc.mounting import MOUNTED

WAIT_S = 60
EXECUTOR = "turnwright.executor.v1.ExecutorService"
SERVICES = (
    *executor_service_pb2.DESCRIPTOR.services_by_name.values(),
    *settings_service_pb2.DESCRIPTOR.services_by_name.values(),
    *MOUNTED,
)
METHODS = {f"/{service.full_name}/{rpc.name}": rpc for service in SERVICES for rpc in service.methods}
UNARY = [path for path, rpc in METHODS.items() if not (rpc.client_streaming or rpc.server_streaming)]
EVENTS = {"accept": "text/event-stream", "content-type": "application/json"}


@dataclass
class Door:
    """The stack, and a client without a token."""

    stack: Services
    http: httpx.AsyncClient
    url: str

    @property
    def port(self) -> int:
        return int(self.url.rpartition(":")[2])

    async def call(self, method: str, request: Any, token: str = "", **headers: str) -> httpx.Response:
        """A unary call in JSON. The method is of the executor, unless it is a path."""
        return await self.http.post(path_of(method), json=request, headers=bearer(token) | headers)

    @contextlib.asynccontextmanager
    async def events(self, request: Any, token: str, last: str = "", method: str = "WatchRun") -> AsyncIterator[Events]:
        headers = bearer(token) | EVENTS | ({"last-event-id": last} if last else {})
        async with self.http.stream("POST", path_of(method), json=request, headers=headers) as answer:
            yield Events(answer)

    async def act(self, token: str, run: str = "r", **task: Any) -> dict[str, Any]:
        task = {"project": self.stack.project, "run": run, "prompt": "Do it.", "settings": {"model": "m", "yolo": True}}
        answer = await self.call("Act", {"task": task}, token)
        assert answer.status_code == 200, answer.text
        return answer.json()["queued"]

    async def raw(self, data: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A connection on which these bytes were sent."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(data)
        await writer.drain()
        return reader, writer


@dataclass
class Events:
    """The events of an answer, as the standard of EventSource has them."""

    answer: httpx.Response

    async def __aiter__(self) -> AsyncIterator[tuple[str, str, dict[str, Any]]]:
        """Kind, id and data of each; no id is one of the event before."""
        kind, id_, data = "message", "", ""
        async for line in self.answer.aiter_lines():
            field, _, value = line.partition(": ")
            if field == "event":
                kind = value
            elif field == "id":
                id_ = value
            elif field == "data":
                data = value
            elif not line:
                yield kind, id_, json.loads(data)
                kind, data = "message", ""


def path_of(method: str) -> str:
    return method if method.startswith("/") else f"/{EXECUTOR}/{method}"


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"} if token else {}


def reason_of(error: dict[str, Any]) -> str:
    return error["details"][0]["debug"]["reason"]


@contextlib.asynccontextmanager
async def open_door(root: Any, **executor: Any) -> AsyncIterator[Door]:
    async with running(root, **{"http_listen": "127.0.0.1:0", **executor}) as stack:
        await stack.client.set_model(model_pb2.Model(alias="m", vendor_model="scripted/m"))
        url = stack.servers["executor"].http.url
        async with httpx.AsyncClient(base_url=url, timeout=WAIT_S, trust_env=False) as http:
            yield Door(stack, http, url)


ANN = token_for("ann")
