"""The methods of an agent: the handshake, sessions, prompts and settings. Source: rows AG01-AG08, AP36-AP39."""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import re
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from turnwright.types.v1 import message_pb2, run_pb2, settings_pb2

from turnwright_acp.jsonrpc import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    Answer,
    Connection,
    RpcError,
)
from turnwright_acp.permissions import SessionPlace
from turnwright_acp.session import EditorSession
from turnwright_acp.shapes import (
    AudioBlock,
    Authenticate,
    Capabilities,
    ContentBlock,
    ForkSession,
    ImageBlock,
    Initialize,
    LinkBlock,
    ListSessions,
    LoadSession,
    NewSession,
    OfSession,
    Prompt,
    ResourceBlock,
    SetConfigOption,
    SetMode,
    TextBlock,
    capabilities_of,
    params_of,
)
from turnwright_acp.updates import MODES, REASONING, modes
from turnwright_client import Client, Reason, TurnwrightError
from turnwright_core import __version__
from turnwright_core.limits import IMAGE_BYTES_MAX
from turnwright_kit.logs import get_logger

VERSION: Final = 1
"""The only version of the protocol that is spoken."""
AUTH_REQUIRED: Final = -32000
NOT_FOUND: Final = -32002
SESSIONS_PAGE: Final = 50
SESSIONS_MAX: Final = 32
"""Maximum number of sessions that one editor has open."""
CANCELS: Final = {"session/prompt": "session/cancel"}
"""A prompt ends as cancelled once its task has, however it is cancelled."""
TOKEN: Final = {
    "id": "token",
    "name": "Token",
    "description": "Start the agent with TURNWRIGHT_TOKEN: `turnwright token create` makes one for the deployment.",
}
_FENCES: Final = re.compile("`+")
_MISSING: Final = (Reason.RUN_NOT_FOUND, Reason.PROJECT_NOT_FOUND, Reason.MODEL_NOT_FOUND, Reason.ENTRY_NOT_FOUND)
_log = get_logger("acp")

Connect = Callable[[], AbstractAsyncContextManager[Client]]


class Agent:
    """The agent of one connection."""

    def __init__(self, connect: Connect, model: str = "", *, is_remote: bool = False) -> None:
        """`connect` gives the client; it is called once, when it is first needed. `model`: of new sessions.

        `is_remote`: the client needs a token, which the process has got or not.
        """
        self._connect, self._model = connect, model
        self._auth_methods = [TOKEN] if is_remote else []
        self._leaving = AsyncExitStack()
        self._client: asyncio.Task[Client] | None = None
        self._can: Capabilities | None = None
        self._sessions: dict[str, EditorSession] = {}
        self._connection: Connection | None = None
        self._methods: dict[str, Callable[[dict[str, Any]], Awaitable[Answer]]] = {
            "initialize": self._initialize,
            "authenticate": self._authenticate,
            "session/new": self._new,
            "session/load": self._load,
            "session/resume": self._resume,
            "session/fork": self._fork,
            "session/list": self._list,
            "session/close": self._close,
            "session/delete": self._delete,
            "session/set_mode": self._set_mode,
            "session/set_config_option": self._set_config_option,
            "session/prompt": self._prompt,
        }

    async def serve(self, input_fd: int, output_fd: int) -> None:
        """Serve one editor until its input ends."""
        self._connection = Connection(input_fd, output_fd, self.handle, self.listen, CANCELS)
        try:
            await self._connection.serve()
        finally:
            await asyncio.gather(*(session.close() for session in self._sessions.values()))
            if self._client is not None:
                self._client.cancel()
                await asyncio.gather(self._client, return_exceptions=True)
            await self._leaving.aclose()

    async def handle(self, method: str, params: dict[str, Any]) -> Answer:
        found = self._methods.get(method)
        if found is None:
            raise RpcError(METHOD_NOT_FOUND, f"There is no method {method[:100]}.")
        if self._can is None and method != "initialize":
            raise RpcError(INVALID_REQUEST, "The first request is `initialize`.")
        try:
            return await found(params)
        except TurnwrightError as error:
            raise _rpc_error(error) from error

    def listen(self, method: str, params: dict[str, Any]) -> None:
        if method != "session/cancel":
            return
        session = self._sessions.get(params_of(OfSession, params).session_id)
        if session is not None:
            session.cancel()

    async def _initialize(self, params: dict[str, Any]) -> Answer:
        raw = params_of(Initialize, params).client_capabilities
        self._can = capabilities_of(raw)
        if isinstance(raw, dict) and "planCapabilities" in raw:
            _log.warning("capability_ignored", name="planCapabilities", use="plan")
        result = {
            "protocolVersion": VERSION,
            "agentInfo": {"name": "turnwright", "title": "Turnwright", "version": __version__},
            "agentCapabilities": {
                "loadSession": True,
                "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
                "mcpCapabilities": {"http": False, "sse": False},
                "sessionCapabilities": {"list": {}, "resume": {}, "close": {}, "fork": {}, "delete": {}},
            },
            "authMethods": self._auth_methods,
        }
        return Answer(result, self._begin)

    def _begin(self) -> None:
        """Connect while the editor thinks of its first session."""
        self._opening()

    def _opening(self) -> asyncio.Task[Client]:
        if self._client is None or (self._client.done() and self._client.exception() is not None):
            self._client = asyncio.create_task(self._leaving.enter_async_context(self._connect()), name="acp client")
        return self._client

    async def _ready(self) -> Client:
        return await asyncio.shield(self._opening())

    async def _authenticate(self, params: dict[str, Any]) -> Answer:
        method = params_of(Authenticate, params).method_id
        if method not in [one["id"] for one in self._auth_methods]:
            raise RpcError(INVALID_PARAMS, "There is no such method: `initialize` lists them.")
        client = await self._ready()
        async for _ in client.list_projects():
            break
        return Answer({})

    async def _new(self, params: dict[str, Any]) -> Answer:
        wanted = params_of(NewSession, params)
        root = _absolute(wanted.cwd)
        client = await self._ready()
        project = await client.init_project(str(root))
        run = await client.create_run(project.name, "", settings_pb2.RunSettings(model=self._model))
        place = SessionPlace(project.name, Path(project.root), run.run)
        return await self._open(place, run, is_named=True)

    async def _load(self, params: dict[str, Any]) -> Answer:
        return await self._reopen(params, replays=True)

    async def _resume(self, params: dict[str, Any]) -> Answer:
        return await self._reopen(params, replays=False)

    async def _reopen(self, params: dict[str, Any], *, replays: bool) -> Answer:
        wanted = params_of(LoadSession, params)
        _absolute(wanted.cwd)
        return await self._open(*await self._find(wanted.session_id), replays=replays)

    async def _fork(self, params: dict[str, Any]) -> Answer:
        wanted = params_of(ForkSession, params)
        _absolute(wanted.cwd)
        place, _ = await self._find(wanted.session_id)
        forked = await (await self._ready()).fork_run(place.project, place.run)
        place = SessionPlace(place.project, place.root, forked.run)
        return await self._open(place, forked, is_named=True)

    async def _find(self, session_id: str) -> tuple[SessionPlace, run_pb2.Run]:
        """The place of a session, and its run. Raises RpcError if there is none."""
        name, _, run = session_id.partition("/")
        client = await self._ready()
        async for project in client.list_projects():
            if project.name == name:
                return SessionPlace(name, Path(project.root), run), (await client.get_run(name, run)).run
        raise RpcError(NOT_FOUND, f"There is no session {session_id}.")

    async def _open(
        self,
        place: SessionPlace,
        run: run_pb2.Run,
        *,
        replays: bool = False,
        is_named: bool = False,
    ) -> Answer:
        """Open a session, in the place of one with its id. `is_named`: the answer says its id."""
        assert self._connection is not None
        assert self._can is not None
        if len(self._sessions) >= SESSIONS_MAX and place.id not in self._sessions:
            raise RpcError(INTERNAL_ERROR, f"At most {SESSIONS_MAX} sessions are open at once: close one.")
        await self._forget(place.id)
        session = self._sessions[place.id] = EditorSession(
            await self._ready(), self._connection, place, self._can, run.title
        )
        try:
            await session.open(replays=replays)
            options = await session.options()
        except BaseException:
            await session.close()
            if self._sessions.get(place.id) is session:
                del self._sessions[place.id]
            raise
        result: dict[str, Any] = {"modes": modes(session.mode)}
        if options:
            result["configOptions"] = options
        return Answer({"sessionId": place.id, **result} if is_named else result, session.release)

    async def _list(self, params: dict[str, Any]) -> Answer:
        wanted = params_of(ListSessions, params)
        client = await self._ready()
        skip = start = int(wanted.cursor or 0)
        found: list[dict[str, Any]] = []
        async for project in client.list_projects():
            if wanted.cwd is not None and Path(project.root) != _absolute(wanted.cwd):
                continue
            async for run in client.list_runs(project.name):
                if skip:
                    skip -= 1
                    continue
                if len(found) == SESSIONS_PAGE:
                    return Answer({"sessions": found, "nextCursor": str(start + SESSIONS_PAGE)})
                info = {"sessionId": f"{project.name}/{run.run}", "cwd": project.root}
                updated = run.update_time.ToJsonString()
                found.append({**info, "title": run.title or run.run, "updatedAt": updated})
        return Answer({"sessions": found})

    async def _close(self, params: dict[str, Any]) -> Answer:
        session = self._session(params_of(OfSession, params).session_id)
        await session.abort()
        await self._forget(session.id)
        return Answer({})

    async def _delete(self, params: dict[str, Any]) -> Answer:
        session_id = params_of(OfSession, params).session_id
        place, _ = await self._find(session_id)
        await (await self._ready()).delete_run(place.project, place.run)
        await self._forget(session_id)
        return Answer({})

    async def _forget(self, session_id: str) -> None:
        if session := self._sessions.pop(session_id, None):
            await session.close()

    async def _set_mode(self, params: dict[str, Any]) -> Answer:
        wanted = params_of(SetMode, params)
        session = self._session(wanted.session_id)
        if wanted.mode_id not in MODES:
            raise RpcError(INVALID_PARAMS, f"`modeId` must be one of {', '.join(MODES)}.")
        await session.set_mode(wanted.mode_id)
        return Answer({})

    async def _set_config_option(self, params: dict[str, Any]) -> Answer:
        wanted = params_of(SetConfigOption, params)
        session = self._session(wanted.session_id)
        match wanted.config_id:
            case "model":
                await session.set_model(wanted.value)
            case "reasoning" if wanted.value in REASONING:
                session.reasoning = wanted.value
            case _:
                raise RpcError(INVALID_PARAMS, "There is no such option, or it has no such value.")
        return Answer({"configOptions": await session.options()})

    async def _prompt(self, params: dict[str, Any]) -> Answer:
        wanted = params_of(Prompt, params)
        session = self._session(wanted.session_id)
        parts = parts_of(wanted.prompt, session.root)
        if not any(part.text.strip() for part in parts):
            raise RpcError(INVALID_PARAMS, "A prompt needs a text.")
        return Answer(await session.prompt(parts))

    def _session(self, session_id: str) -> EditorSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise RpcError(NOT_FOUND, f"Session {session_id} is not open: use session/new or session/load first.")
        return session


def parts_of(blocks: list[ContentBlock], root: Path) -> list[message_pb2.Part]:
    """A prompt as the parts of a message. Raises RpcError for what cannot be taken."""
    parts = []
    for index, block in enumerate(blocks):
        match block:
            case TextBlock(text):
                parts.append(message_pb2.Part(text=text))
            case LinkBlock(uri):
                parts.append(message_pb2.Part(text=f"@{_name_in(root, uri)}"))
            case ResourceBlock(resource) if resource.text is not None:
                fence = "`" * max(3, 1 + max(map(len, _FENCES.findall(resource.text)), default=0))
                text = f"{_name_in(root, resource.uri)}:\n{fence}\n{resource.text}\n{fence}"
                parts.append(message_pb2.Part(text=text))
            case ResourceBlock(resource):
                parts.append(message_pb2.Part(text=f"@{_name_in(root, resource.uri)}"))
            case ImageBlock(data, mime):
                parts.append(message_pb2.Part(image=message_pb2.Image(data=_image(index, data), mime=mime)))
            case AudioBlock():
                raise RpcError(INVALID_PARAMS, f"`prompt[{index}]` is audio, which is not taken: `initialize` says so.")
    return parts


def _image(index: int, data: str) -> bytes:
    try:
        found = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise RpcError(INVALID_PARAMS, f"`data` of `prompt[{index}]` is not base64.") from None
    if not 0 < len(found) <= IMAGE_BYTES_MAX:
        size = f"The image of `prompt[{index}]` has {len(found)} bytes"
        message = f"{size}: send one of 1 to {IMAGE_BYTES_MAX} bytes, or name a file."
        raise RpcError(INVALID_PARAMS, message)
    return found


def _name_in(root: Path, uri: str) -> str:
    """The path of a file below the project's root; what lies elsewhere keeps its name."""
    path = unquote(urlsplit(uri).path) if uri.startswith("file:") else uri
    with contextlib.suppress(ValueError):
        return Path(path).relative_to(root).as_posix()
    return path


def _absolute(cwd: str) -> Path:
    path = Path(cwd)
    if not path.is_absolute() or "\x00" in cwd:
        raise RpcError(INVALID_PARAMS, "`cwd` must be an absolute path.")
    return path


def _rpc_error(error: TurnwrightError) -> RpcError:
    data = {"reason": error.reason.name}
    if error.reason in _MISSING:
        return RpcError(NOT_FOUND, error.message, data)
    if error.reason is Reason.UNAUTHENTICATED:
        return RpcError(AUTH_REQUIRED, error.message, data)
    return RpcError(INVALID_PARAMS if error.reason is Reason.INVALID_FIELD else INTERNAL_ERROR, error.message, data)
