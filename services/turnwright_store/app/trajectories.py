"""Trajectories of Refact as runs: each message becomes the entries that make the same message here.

A reply is a turn, and a message of a user that a reply follows is the prompt of a loop; other messages of users are
injected ones. Ids of messages here are paths, which follow from the place of a message: a message without an id is
repaired in the same way each time.
Source: rows RT03, RT04, RC08.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re
from collections.abc import Generator, Iterator
from typing import Any, Final

from msgspec import Struct, field
from msgspec.structs import replace
from turnwright.types.v1 import command_record_pb2
from turnwright_values.store import SetEntry
from turnwright_values.types import (
    Assembly,
    CallStyle,
    Entry,
    Loop,
    LoopSettings,
    Mode,
    PlanKind,
    State,
    Tier,
    Turn,
    TurnRequest,
    TurnResult,
    Usage,
    Visibility,
)

from turnwright_core.chat.message import image_type
from turnwright_core.chat.timeline import CALLS, IMAGES, INJECT_TOOL, KNOWLEDGE_TOOL
from turnwright_core.checks import check_bytes, over_limit
from turnwright_core.errors import TurnwrightError
from turnwright_core.events import RunEvent, event_write
from turnwright_core.json_text import JsonObject
from turnwright_core.limits import (
    BODY_BYTES_MAX,
    CALL_NAME_CHARS_MAX,
    IMAGE_BYTES_MAX,
    IMAGES_BYTES_MAX,
    IMAGES_MAX,
    PLAN_BODY_BYTES_MAX,
    PLAN_DELTA_BYTES_MAX,
    PLAN_DELTAS_MAX,
    PROMPT_BYTES_MAX,
    REPLY_CALLS_MAX,
)
from turnwright_core.plans.plan import MAIN, delta_path, plan_path, version_path
from turnwright_core.runs import COMPLETED, RUNNING
from turnwright_core.text import cut_bytes, scheme_of
from turnwright_core.titles import TITLE_CHARS_MAX, one_line
from turnwright_core.value_methods import to_attributes_json
from turnwright_store.app.document_elements import ElementError, SeenEntry
from turnwright_store.domain import events
from turnwright_store.domain.write_rules import check_event

Row = SeenEntry | Loop | Turn
SUMMARY_BYTES_MAX: Final = 2048
_UNTITLED: Final = "New Chat"
_USERS: Final = ("user", "goal")
_WITH_IMAGES: Final = (*_USERS, "tool")
_DATA_URL: Final = re.compile(r"data:image/[a-z0-9.+-]+;base64,")
_SHOWN_ONLY: Final = ("cd_instruction", "error", "summarization", "compression_report", "diff")


class _Content(Struct, frozen=True):
    """What a message says, and the images that it shows."""

    text: str
    images: tuple[bytes, ...] = ()


class _Call(Struct, frozen=True):
    path: str
    name: str
    call_id: str
    vendor_id: str
    ordinal: int


class Trajectory(Struct):
    """A conversation on its way to be a run; `persona` is its first system message."""

    now_ms: int
    model: str = ""
    title: str = ""
    persona: str | None = None
    revision: int = 0
    position: int = 0
    _user: _Content | None = None
    """The message of a user that a reply may follow."""
    _loop: Loop | None = None
    _turn: Turn | None = None
    _number: int = 0
    _loops: int = 0
    _calls: dict[str, _Call] = field(default_factory=dict)
    """Calls without a result, by the id of the vendor."""
    _names: dict[str, int] = field(default_factory=dict)
    _plan: SeenEntry | None = None
    _version: int = 0
    _deltas: list[SeenEntry] = field(default_factory=list)
    """Of the plan that is not replaced yet."""

    @property
    def turns(self) -> int:
        return self._number

    @property
    def loops(self) -> int:
        return self._loops

    def set_title(self, title: str) -> None:
        """Take its title, except the one that says that it has none yet."""
        title = one_line(title)[:TITLE_CHARS_MAX].rstrip()
        self.title = "" if title == _UNTITLED else title

    def take(self, message: Any) -> list[Row]:
        """What one message becomes. Raises ElementError, and has changed nothing then."""
        if not isinstance(message, dict) or not isinstance(role := message.get("role"), str) or not role:
            raise ElementError("a message needs a role")
        try:
            content = _content_of(message.get("content"), has_images=role in _WITH_IMAGES)
            if role in _USERS:
                check_bytes("content", content.text, PROMPT_BYTES_MAX)
                rows = list(self._before())
                self._user = content
                return rows
            check_bytes("content", content.text, BODY_BYTES_MAX)
            return list(self._rows(role, content, message))
        except TurnwrightError as error:
            raise ElementError(error.message) from None

    def end(self) -> list[Row]:
        """What is left when all messages were taken: the last turn and loop, and what nobody has answered."""
        rows = [*self._ended_turn(COMPLETED), *self._ended_loop()]
        return [*rows, *self._before(), *([self._plan] if self._plan else []), *self._deltas]

    def _rows(self, role: str, content: _Content, message: JsonObject) -> Iterator[Row]:
        text = content.text
        match role:
            case "assistant":
                yield from self._reply(text, message)
            case "tool":
                yield from self._result(content, message)
            case "event":
                yield from self._before()
                yield from self._event(text, message)
            case "plan":
                yield from self._before()
                yield from self._new_plan(text)
            case "context_file":
                yield from self._before()
                path = self._free(f"log://turn_{self._number}/{KNOWLEDGE_TOOL}/files")
                yield self._entry(path, text, {"tool": KNOWLEDGE_TOOL})
            case "system" if self.persona is None and not self.position:
                self.persona = text
            case "system":
                raise ElementError("a system message after the first is not part of a conversation here")
            case _ if role in _SHOWN_ONLY:
                raise ElementError(f"a message of the role {role} is for readers alone")
            case _:
                raise ElementError(f"{role[:80]!r} is a role unknown to this version")

    def _before(self) -> Iterator[Row]:
        """The message of a user before one that is no reply."""
        user, self._user = self._user, None
        if user:
            shown = yield from self._kept_images(user)
            path = self._free(f"log://turn_{self._number}/{INJECT_TOOL}/message")
            yield self._entry(path, user.text, {"tool": INJECT_TOOL, **shown})

    def _kept_images(self, content: _Content) -> Generator[Row, None, JsonObject]:
        """The entries of images that are not kept yet; returns the attribute of their message."""
        paths = []
        for data in content.images:
            path = f"image://imported_{hashlib.sha256(data).hexdigest()[:32]}"
            paths.append(path)
            if self._free(path) == path:
                attributes = {"mime": image_type(data), "bytes": len(data)}
                yield self._entry(path, base64.b64encode(data).decode(), attributes)
        return {IMAGES: paths} if paths else {}

    # ---- Replies and their calls

    def _reply(self, text: str, message: JsonObject) -> Iterator[Row]:
        number = self._number + 1
        calls, kept = _calls_of(message.get("tool_calls"), number)
        reasoning = message.get("reasoning_content")
        user, self._user = self._user, None
        if user or self._loop is None:
            yield from self._ended_turn(COMPLETED)
            yield from self._ended_loop()
        yield from self._ended_turn(RUNNING)
        if self._loop is None:
            self._loops += 1
            prompt = user or _Content("")
            shown = yield from self._kept_images(prompt)
            images = tuple(shown.get(IMAGES, ()))
            settings = LoopSettings(Mode.ACT, self.model, images=images, assembly=Assembly.TRANSCRIPT)
            self._loop = Loop(self._loops, settings, prompt.text, first_turn=number, create_ms=self.now_ms)
        self._number = number
        if user:
            asked = {"mode": Mode.ACT.name.lower(), "loop": self._loops}
            yield self._entry(f"prompt://{number}", prompt.text, {**asked, **shown})
        if isinstance(reasoning, str) and reasoning:
            yield self._entry(f"reasoning://{number}", reasoning, {})
        yield self._entry(f"assistant://{number}", text, {CALLS: kept} if kept else {})
        self._calls = {call.vendor_id: call for call in calls}
        request = TurnRequest(self.model, calls=CallStyle.NATIVE, assembly=Assembly.TRANSCRIPT, mode=Mode.ACT)
        finish = message.get("finish_reason")
        result = TurnResult(
            finish=finish[:64] if isinstance(finish, str) else "stop", usage=_usage_of(message.get("usage"))
        )
        self._turn = Turn(number, self._loops, request, result, self.now_ms, self.now_ms)
        self._loop = replace(
            self._loop, turns=self._loop.turns + 1, summary=cut_bytes(text, SUMMARY_BYTES_MAX), revision=self.revision
        )

    def _ended_turn(self, status: int) -> Iterator[Row]:
        turn, self._turn = self._turn, None
        if turn and turn.result:
            yield replace(turn, result=replace(turn.result, status=status), revision=self._next_revision())

    def _ended_loop(self) -> Iterator[Row]:
        loop, self._loop = self._loop, None
        if loop:
            yield replace(loop, status=COMPLETED, reason="text", end_ms=self.now_ms, revision=self._next_revision())

    def _result(self, content: _Content, message: JsonObject) -> Iterator[Row]:
        asked = message.get("tool_call_id")
        call = self._calls.get(asked) if isinstance(asked, str) else None
        if call is None:
            raise ElementError("it is the result of no call of the reply before, or of one that has a result")
        yield from self._before()
        del self._calls[call.vendor_id]
        record = command_record_pb2.CommandRecord(
            tool=call.name,
            ordinal=call.ordinal,
            effect_class=command_record_pb2.EFFECT_CLASS_PURE,
            call_id=call.call_id,
            vendor_call_id=call.vendor_id if len(call.vendor_id) <= 256 else "",
        )
        record.settled.SetInParent()
        failed = message.get("tool_failed") is True
        images = yield from self._kept_images(content)
        entry = self._entry(call.path, content.text, images)
        shown = replace(
            entry.entry,
            record=record.SerializeToString(),
            state=State.FAILED if failed else State.RESOLVED,
            outcome="failed:500" if failed else "",
        )
        yield replace(entry, entry=shown)

    # ---- Events and plans

    def _event(self, text: str, message: JsonObject) -> Iterator[Row]:
        extra = message.get("extra")
        event = (extra.get("event") if isinstance(extra, dict) else None) or message.get("event")
        if not isinstance(event, dict):
            raise ElementError("an event needs `event` with subkind, source and payload")
        event = {name: event.get(name) for name in ("subkind", "source", "payload")}
        if event["subkind"] == "plan_delta" and self._plan:
            yield from self._plan_delta(text)
            return
        path = self._free(f"event://turn_{self._number}/{event['subkind']}/imported")
        check_event(path, SetEntry(text, to_attributes_json({"event": event})))
        yield self._entry(path, text, {"event": event})

    def _new_plan(self, text: str) -> Iterator[Row]:
        check_bytes("content", text, PLAN_BODY_BYTES_MAX)
        if self._plan:
            yield from self._replaced_plan(self._plan.entry)
        self._version += 1
        attributes = {"version": self._version, "kind": PlanKind.MARKDOWN.name.lower(), "mode": ""}
        self._plan = self._entry(plan_path(MAIN), text, attributes, Tier.CLIENT)
        yield self._notice(events.plan_set(MAIN, self._version, PlanKind.MARKDOWN))

    def _replaced_plan(self, plan: Entry) -> Iterator[Row]:
        """A version that was replaced is kept, archived with its deltas."""
        deltas, self._deltas = self._deltas, []
        kept = self._entry(version_path(MAIN, self._version), plan.body, plan.attributes, Tier.CLIENT)
        for one in (kept, *deltas):
            yield replace(one, entry=replace(one.entry, visibility=Visibility.ARCHIVED))

    def _plan_delta(self, text: str) -> Iterator[Row]:
        check_bytes("content", text, PLAN_DELTA_BYTES_MAX)
        sequence = len(self._deltas) + 1
        if sequence > PLAN_DELTAS_MAX:
            raise ElementError(f"the plan has {PLAN_DELTAS_MAX} deltas, and can have no more")
        self._deltas.append(self._entry(delta_path(MAIN, self._version, sequence), text, {}, Tier.CLIENT))
        yield self._notice(events.plan_delta(MAIN, self._version, sequence))

    def _notice(self, event: RunEvent) -> SeenEntry:
        write = event_write(self._number, event)
        assert isinstance(write.change, SetEntry)
        return self._entry(write.path, write.change.body or "", json.loads(write.change.attributes_json or "{}"))

    # ---- Entries

    def _free(self, path: str) -> str:
        """The path, or with a number if it is taken, as writes get it."""
        count = self._names[path] = self._names.get(path, 0) + 1
        return path if count == 1 else f"{path}+{count}"

    def _next_revision(self) -> int:
        self.revision += 1
        return self.revision

    def _entry(self, path: str, body: str, attributes: JsonObject, writer: Tier = Tier.SYSTEM) -> SeenEntry:
        self.position += 1
        entry = Entry(
            path=path,
            scheme=scheme_of(path) or "",
            body=body,
            body_size_bytes=len(body.encode()),
            attributes_json=to_attributes_json(attributes),
            visibility=Visibility.VISIBLE,
            state=State.RESOLVED,
            writer=writer,
            turn=self._number,
            loop=self._loops,
            position=self.position,
            write_count=1,
            revision=self._next_revision(),
            update_ms=self.now_ms,
        )
        return SeenEntry(entry, 0, self.now_ms, entry.revision, 0)


def _content_of(content: Any, *, has_images: bool) -> _Content:
    """What a message says, which may be in parts; parts that have no place in it are named. Raises LIMIT_EXCEEDED."""
    if content is None:
        return _Content("")
    if isinstance(content, str):
        return _Content(content)
    if not isinstance(content, list):
        raise ElementError("its content is neither a text nor a list of parts")
    texts, images = [], []
    for part in content:
        if not isinstance(part, dict):
            raise ElementError("a part of its content is not an object")
        text = part.get("text", part.get("m_content"))
        kind = part.get("type", part.get("m_type"))
        if kind == "text" and isinstance(text, str):
            texts.append(text)
        elif has_images and (data := _image_in(part, kind, text)) is not None:
            images.append(data)
        elif "file_content" in part:
            texts.append(f"{part.get('file_name')}:\n{part['file_content']}")
        else:
            texts.append(f"({str(kind)[:40]})")
    # A loop shows no more, and its prompt may be sent again.
    images, more = images[:IMAGES_MAX], images[IMAGES_MAX:]
    texts += [f"({image_type(data)})" for data in more]
    if (size := sum(map(len, images))) > IMAGES_BYTES_MAX:
        raise over_limit("content", IMAGES_BYTES_MAX, size, "bytes of images")
    return _Content("\n".join(texts), tuple(images))


def _image_in(part: JsonObject, kind: Any, text: Any) -> bytes | None:
    """The image that a part has; None if it has none, or only its address. Raises ElementError, LIMIT_EXCEEDED."""
    address = part.get("image_url")
    url = address.get("url") if isinstance(address, dict) else address
    if isinstance(url, str) and (begin := _DATA_URL.match(url)):
        encoded = url[begin.end() :]
    elif isinstance(kind, str) and kind.startswith("image/") and isinstance(text, str):
        encoded = text
    else:
        return None
    try:
        data = base64.b64decode(encoded, validate=True)
    except (binascii.Error, ValueError):
        raise ElementError("its image is not in base64") from None
    if not image_type(data):
        raise ElementError("its image is none that models accept: PNG, JPEG, GIF or WebP")
    if len(data) > IMAGE_BYTES_MAX:
        raise over_limit("content", IMAGE_BYTES_MAX, len(data), "bytes of an image")
    return data


def _calls_of(calls: Any, number: int) -> tuple[list[_Call], list[JsonObject]]:
    """The calls of a reply, and as its attributes keep them. Raises ElementError."""
    if calls is None:
        return [], []
    if not isinstance(calls, list) or len(calls) > REPLY_CALLS_MAX:
        raise ElementError(f"its tool_calls are not a list of at most {REPLY_CALLS_MAX}")
    found, kept = [], []
    for ordinal, call in enumerate(calls):
        function = call.get("function") if isinstance(call, dict) else None
        name, arguments = (
            (function.get("name"), function.get("arguments")) if isinstance(function, dict) else (None, None)
        )
        if not (isinstance(name, str) and name and isinstance(arguments, str) and isinstance(call.get("id"), str)):
            raise ElementError("a tool call needs an id, and a function with name and arguments")
        name = name[:CALL_NAME_CHARS_MAX]
        word = "".join(letter if letter.isalnum() and letter.isascii() else "_" for letter in name)
        path = f"log://turn_{number}/{word}/{ordinal}"
        one = _Call(path, name, f"call_{number}_{ordinal}", call["id"], ordinal)
        found.append(one)
        kept.append({"path": path, "name": name, "arguments": arguments, "id": one.vendor_id, "call_id": one.call_id})
    return found, kept


def _usage_of(usage: Any) -> Usage:
    numbers = usage if isinstance(usage, dict) else {}
    prompt, completion, total = (
        value if isinstance(value := numbers.get(f"{name}_tokens"), int) and 0 <= value < 2**53 else 0
        for name in ("prompt", "completion", "total")
    )
    return Usage(prompt_tokens=prompt, completion_tokens=completion, total_tokens=total or prompt + completion)
