"""Vendors that refuse what the real ones refuse: one for each wire, over real HTTP, with their caches and signatures.

    vendor = STRICT["anthropic"](script)
    async with SseServer([vendor] * 100) as server: ...
    assert not vendor.refusals

`script` is called with the number of the request, from 0, and returns what the model replies. Each rule is one that a
vendor documents or was seen to have (research/wire); a request that breaks one is refused with 400 and noted.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from sse_server import Answer, Request, chat, events, json_answer

Body = dict[str, Any]

CACHE_MARKS_MAX = 4
LOOKBACK_BLOCKS = 20
"""Anthropic looks for a cached prefix this many blocks before each mark."""

CHAT_CALLS_MAX = 128
CHAT_ID_CHARS_MAX = 40
"""OpenAI refuses longer call ids in chat completions."""

_ID = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True)
class Reply:
    """What a model replies: text, and calls as (tool, arguments), the arguments an object or broken text."""

    text: str = ""
    calls: Sequence[tuple[str, Any]] = ()
    thinks: bool = True

    def arguments(self) -> Iterator[tuple[int, str, str]]:
        for place, (name, given) in enumerate(self.calls):
            yield place, name, given if isinstance(given, str) else json.dumps(given)


Script = Callable[[int], Reply | Answer]


class RefusedError(Exception):
    """What is wrong with a request."""


class StrictVendor:
    """What the vendors share: a script, refusals, a cache of prefixes, and opaque data that must come back unchanged."""

    wire: ClassVar[str]
    marks: ClassVar[bool] = False

    def __init__(self, script: Script) -> None:
        self.script = script
        self.bodies: list[Body] = []
        """The requests that were accepted."""
        self.refusals: list[str] = []
        self.cached_shares: list[float] = []
        """Of each request, how much of it was cached."""
        self._signed: dict[str, str] = {}
        """Signature -> what it was given for."""
        self._cache: set[str] = set()

    def __call__(self, request: Request) -> Answer:
        body = request.json
        try:
            self.check(body)
        except RefusedError as refused:
            self.refusals.append(str(refused))
            return json_answer({"error": {"message": str(refused), "type": "invalid_request_error"}}, 400)
        self.bodies.append(body)
        told = self.script(len(self.bodies) - 1)
        if isinstance(told, Answer):
            return told
        total, cached = self._counted(list(self.blocks(body)))
        self.cached_shares.append(cached / max(1, total))
        return self.answer(told, len(self.bodies), total, cached)

    def check(self, body: Body) -> None:
        """Raise RefusedError."""
        raise NotImplementedError

    def answer(self, reply: Reply, number: int, total: int, cached: int) -> Answer:
        raise NotImplementedError

    def blocks(self, body: Body) -> Iterable[Any]:
        """The prompt, as what is cached one by one."""
        raise NotImplementedError

    def sign(self, given_for: str, number: int) -> str:
        signature = f"signature-{number}-{len(self._signed)}"
        self._signed[signature] = given_for
        return signature

    def verify(self, signature: str, given_for: str) -> None:
        given = self._signed.get(signature)
        need(given == given_for, f"Invalid signature {signature!r} for {given_for!r}: it was given for {given!r}")

    def _counted(self, blocks: list[Any]) -> tuple[int, int]:
        """The tokens of a prompt, and those that were cached; the prefixes are cached from now on."""
        texts = [json.dumps(unmarked(block)) for block in blocks]
        prefixes = list(itertools.accumulate(texts))
        ends = [place for place, block in enumerate(blocks) if "cache_control" in json.dumps(block)]
        if not self.marks:
            ends = list(range(len(blocks)))
        looked = {place for end in ends for place in range(max(0, end - LOOKBACK_BLOCKS), end + 1)}
        found = [place for place in looked if prefixes[place] in self._cache]
        self._cache |= {prefixes[end] for end in ends}
        cached = len(prefixes[max(found)]) // 4 if found else 0
        return len(prefixes[-1]) // 4, cached


def need(holds: object, words: str) -> None:
    if not holds:
        raise RefusedError(words)


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: unmarked(one) for name, one in value.items() if name != "cache_control"}
    return [unmarked(one) for one in value] if isinstance(value, list) else value


def marks_in(value: Any) -> int:
    if isinstance(value, dict):
        return ("cache_control" in value) + sum(map(marks_in, value.values()))
    return sum(map(marks_in, value)) if isinstance(value, list) else 0


def an_object(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (TypeError, ValueError):
        return False


class StrictChat(StrictVendor):
    """Chat completions, as OpenAI, Mistral and the chat templates of local models take them."""

    wire = "chat"

    def check(self, body: Body) -> None:
        need(marks_in(body) <= CACHE_MARKS_MAX, "A maximum of 4 blocks with cache_control may be provided.")
        need(body["messages"], "messages must not be empty")
        open_calls: list[str] = []
        before = ""
        for place, message in enumerate(body["messages"]):
            role, content = message["role"], message.get("content")
            need(role in ("system", "user", "assistant", "tool"), f"unknown role {role}")
            need(role != "system" or not place, "System message must be at the beginning.")
            need(content or message.get("tool_calls") or role == "tool", f"messages.{place} is empty")
            parts = content if isinstance(content, list) else []
            need(all(part.get("text", "x") for part in parts), f"messages.{place} has an empty part")
            if role == "tool":
                need(
                    message["tool_call_id"] in open_calls, "a tool message must answer one of the preceding tool_calls"
                )
                need(isinstance(content, str), f"messages.{place}.content must be text")
                open_calls.remove(message["tool_call_id"])
            else:
                need(not open_calls, f"no tool message answers {open_calls}")
                need(role != before, f"roles must alternate: two messages of {role}")
            calls = message.get("tool_calls") or ()
            need(len(calls) <= CHAT_CALLS_MAX, f"Invalid 'messages[{place}].tool_calls': array too long.")
            open_calls += self._calls(calls)
            need(len(set(open_calls)) == len(open_calls), "Duplicate tool_call ids")
            self._thoughts(message)
            before = role
        need(not open_calls, f"no tool message answers {open_calls}")
        need(before in ("user", "tool"), "Expected last role User or Tool, got assistant")

    def _calls(self, calls: Iterable[Body]) -> Iterator[str]:
        for call in calls:
            need(call["id"] and len(call["id"]) <= CHAT_ID_CHARS_MAX, f"bad id {call['id']!r}")
            need(_ID.fullmatch(call["function"]["name"]), f"bad name {call['function']['name']!r}")
            need(an_object(call["function"]["arguments"]), "arguments must be a JSON object")
            yield call["id"]

    def _thoughts(self, message: Body) -> None:
        for detail in message.get("reasoning_details") or ():
            self.verify(detail["signature"], detail["text"])

    def answer(self, reply: Reply, number: int, total: int, cached: int) -> Answer:
        calls = [
            {"index": place, "id": f"call-{number}-{place}", "type": "function", "function": {"name": name, "arguments": text}}
            for place, name, text in reply.arguments()
        ]  # fmt: skip
        told = chat(reply.text, tool_calls=calls, finish="tool_calls" if calls else "stop")
        usage = {"prompt_tokens": total, "completion_tokens": 5, "total_tokens": total + 5}
        end = {"choices": [], "usage": {**usage, "prompt_tokens_details": {"cached_tokens": cached}}}
        thought: list[bytes] = []
        if reply.thinks:
            text = f"thought {number}"
            detail = {"type": "reasoning.text", "text": text, "signature": self.sign(text, number), "index": 0}
            thought = events(
                {"choices": [{"index": 0, "delta": {"reasoning": text, "reasoning_details": [detail]}}]}, done=False
            )
        return Answer(chunks=[*thought, *told.chunks[:-2], *events(end)])

    def blocks(self, body: Body) -> Iterable[Any]:
        return [*body.get("tools", ()), *body["messages"]]


class StrictOpenRouter(StrictChat):
    """Chat completions of a service that passes cache marks on."""

    marks = True


class StrictResponses(StrictVendor):
    """OpenAI's Responses."""

    wire = "responses"

    def check(self, body: Body) -> None:
        need(body["input"], "input must not be empty")
        items = body["input"]
        called: list[str] = []
        waiting: list[str] = []
        for place, item in enumerate(items):
            kind = item.get("type", "message")
            if kind == "function_call_output":
                need(item["call_id"] in waiting, f"No tool call found for function call output {item['call_id']}.")
                waiting.remove(item["call_id"])
            elif kind == "function_call":
                need(item["call_id"] not in called, f"Duplicate call_id {item['call_id']}")
                need(an_object(item["arguments"]), "arguments must be a JSON object")
                need(_ID.fullmatch(item["name"]), f"bad name {item['name']!r}")
                called.append(item["call_id"])
                waiting.append(item["call_id"])
            elif kind == "reasoning":
                self.verify(item["encrypted_content"], item["id"])
                follows = items[place + 1] if place + 1 < len(items) else {}
                is_reply = follows.get("type") == "function_call" or follows.get("role") == "assistant"
                need(
                    is_reply, f"Item {item['id']} of type 'reasoning' was provided without its required following item."
                )
            else:
                need(item.get("content"), f"input.{place} is empty")
                is_user = item["role"] == "user"
                need(not (is_user and waiting), f"No tool output found for function call {waiting}.")
        need(not waiting, f"No tool output found for function call {waiting}.")

    def answer(self, reply: Reply, number: int, total: int, cached: int) -> Answer:
        items: list[Body] = []
        if reply.thinks:
            name = f"rs_{number}"
            sealed = self.sign(name, number)
            items.append({"type": "reasoning", "id": name, "summary": [], "encrypted_content": sealed})
        if reply.text or not reply.calls:
            items.append({"type": "message", "content": [{"type": "output_text", "text": reply.text}]})
        items += [
            {"type": "function_call", "call_id": f"call-{number}-{place}", "name": name, "arguments": text}
            for place, name, text in reply.arguments()
        ]
        done = [{"type": "response.output_item.done", "output_index": n, "item": item} for n, item in enumerate(items)]
        usage = {"input_tokens": total, "input_tokens_details": {"cached_tokens": cached}, "output_tokens": 5}
        end = {"type": "response.completed", "response": {"model": "m", "status": "completed", "usage": usage}}
        return Answer(chunks=events(*done, end))

    def blocks(self, body: Body) -> Iterable[Any]:
        return [*body.get("tools", ()), body.get("instructions", ""), *body["input"]]


class StrictAnthropic(StrictVendor):
    """Anthropic's Messages, thinking or not."""

    wire = "anthropic"
    marks = True

    def check(self, body: Body) -> None:
        need(
            marks_in(body) <= CACHE_MARKS_MAX,
            f"A maximum of 4 blocks with cache_control may be provided. Found {marks_in(body)}.",
        )
        turns = body["messages"]
        need(turns and turns[0]["role"] == "user", "messages: first message must use the user role")
        need(turns[-1]["role"] == "user", "The conversation must end with a user message.")
        for block in body.get("system", ()):
            need(block["text"].strip(), "system: text content blocks must be non-empty")
        called: Counter[str] = Counter()
        waiting: list[str] = []
        for place, turn in enumerate(turns):
            need(turn["content"], f"messages.{place}: all messages must have non-empty content")
            need(not place or turns[place - 1]["role"] != turn["role"], f"messages.{place}: roles must alternate")
            if turn["role"] == "user":
                self._answers(turn["content"], waiting, place)
                waiting = []
            else:
                waiting = self._said(turn["content"], place)
                called.update(waiting)
        need(max(called.values(), default=1) == 1, "messages: `tool_use` ids must be unique")
        self._loop_began_with_thinking(body)

    def _answers(self, blocks: list[Body], waiting: list[str], place: int) -> None:
        kinds = [block["type"] for block in blocks]
        told = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        need(
            sorted(told) == sorted(waiting),
            f"messages.{place}: `tool_use` ids {waiting} have `tool_result` blocks {told}",
        )
        need(kinds[: len(told)] == ["tool_result"] * len(told), f"messages.{place}: tool_result blocks must come first")
        for block in blocks:
            self._checked_text(block, place)
            for inner in block.get("content", ()):
                self._checked_text(inner, place)
                need("cache_control" not in inner, f"messages.{place}: cache_control inside of a tool_result")

    def _checked_text(self, block: Body, place: int) -> None:
        if block["type"] == "text":
            need(block["text"].strip(), f"messages.{place}: text content blocks must contain non-whitespace text")

    def _said(self, blocks: list[Body], place: int) -> list[str]:
        called = []
        is_after_thinking = True
        for block in blocks:
            self._checked_text(block, place)
            if block["type"] == "thinking":
                need("cache_control" not in block, f"messages.{place}: thinking blocks take no cache_control")
                need(is_after_thinking, f"messages.{place}: thinking must stand before text and calls")
                self.verify(block["signature"], block["thinking"])
                continue
            is_after_thinking = False
            if block["type"] == "tool_use":
                need(_ID.fullmatch(block["id"]) and _ID.fullmatch(block["name"]), f"messages.{place}: bad id or name")
                need(isinstance(block["input"], dict), f"messages.{place}: input must be an object")
                called.append(block["id"])
        return called

    def _loop_began_with_thinking(self, body: Body) -> None:
        if body.get("thinking", {}).get("type") != "enabled":
            return
        last = body["messages"][-1]["content"]
        if last[0]["type"] == "tool_result":
            first = body["messages"][-2]["content"][0]["type"]
            need(first == "thinking", f"Expected `thinking` or `redacted_thinking`, but found `{first}`.")

    def answer(self, reply: Reply, number: int, total: int, cached: int) -> Answer:
        usage = {"input_tokens": total - cached, "cache_read_input_tokens": cached, "output_tokens": 1}
        told: list[Body] = [
            {
                "type": "message_start",
                "message": {"id": f"m{number}", "model": "claude-x", "content": [], "usage": usage},
            }
        ]
        blocks: list[tuple[Body, list[Body]]] = []
        if reply.thinks:
            text = f"thought {number}"
            blocks.append(
                ({"type": "thinking", "thinking": "", "signature": ""},
                 [{"type": "thinking_delta", "thinking": text},
                  {"type": "signature_delta", "signature": self.sign(text, number)}])
            )  # fmt: skip
        if reply.text:
            blocks.append(({"type": "text", "text": ""}, [{"type": "text_delta", "text": reply.text}]))
        for place, name, text in reply.arguments():
            begun = {"type": "tool_use", "id": f"toolu_{number}_{place}", "name": name, "input": {}}
            blocks.append((begun, [{"type": "input_json_delta", "partial_json": text}]))
        for index, (begun, deltas) in enumerate(blocks):
            told.append({"type": "content_block_start", "index": index, "content_block": begun})
            told += [{"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas]
            told.append({"type": "content_block_stop", "index": index})
        reason = "tool_use" if reply.calls else "end_turn"
        told.append({"type": "message_delta", "delta": {"stop_reason": reason}, "usage": {"output_tokens": 5}})
        told.append({"type": "message_stop"})
        return Answer(chunks=[f"event: {one['type']}\ndata: {json.dumps(one)}\n\n".encode() for one in told])

    def blocks(self, body: Body) -> Iterable[Any]:
        said = [[turn["role"], block] for turn in body["messages"] for block in turn["content"]]
        return [*body.get("tools", ()), *body.get("system", ()), *said]


class StrictGemini(StrictVendor):
    """Gemini of version 3, which insists on signatures of calls."""

    wire = "gemini"

    def check(self, body: Body) -> None:
        contents = body["contents"]
        need(contents and contents[0]["role"] == "user", "the conversation must begin with a user turn")
        need(contents[-1]["role"] == "user", "the conversation must end with a user turn")
        waiting: list[str] = []
        for place, content in enumerate(contents):
            need(content["parts"], f"contents.{place}.parts must not be empty")
            need(not place or contents[place - 1]["role"] != content["role"], f"contents.{place}: roles must alternate")
            for part in content["parts"]:
                need(part.get("text", "x"), f"contents.{place} has an empty text")
                need(len(part.keys() - {"thought", "thoughtSignature"}) == 1, f"contents.{place} has an odd part")
            answered = [part["functionResponse"] for part in content["parts"] if "functionResponse" in part]
            need(
                sorted(one["id"] for one in answered) == sorted(waiting),
                "the number of function response parts must be equal to that of the function call parts",
            )
            waiting = [part["functionCall"]["id"] for part in content["parts"] if "functionCall" in part]
            need(not waiting or content["role"] == "model", "only models call")
            self._signatures(content["parts"])

    def _signatures(self, parts: list[Body]) -> None:
        calls = [part for part in parts if "functionCall" in part]
        if calls:
            need("thoughtSignature" in calls[0], "Function call is missing a thought_signature in functionCall parts.")
        for part in parts:
            signature = part.get("thoughtSignature", "")
            if signature and signature != "skip_thought_signature_validator":
                self.verify(signature, part["functionCall"]["name"])

    def answer(self, reply: Reply, number: int, total: int, cached: int) -> Answer:
        parts: list[Body] = [{"text": f"thought {number}", "thought": True}] if reply.thinks else []
        parts += [{"text": reply.text}] if reply.text else []
        for place, name, text in reply.arguments():
            call = {"id": f"call-{number}-{place}", "name": name, "args": json.loads(text)}
            sealed = {} if place else {"thoughtSignature": self.sign(name, number)}
            parts.append({"functionCall": call, **sealed})
        said = {"role": "model", "parts": parts}
        usage = {"promptTokenCount": total, "cachedContentTokenCount": cached, "candidatesTokenCount": 5}
        end = {"candidates": [{"content": said, "finishReason": "STOP", "index": 0}], "usageMetadata": usage}
        return Answer(chunks=events(end, done=False, ending="\r\n\r\n"))

    def blocks(self, body: Body) -> Iterable[Any]:
        said = [[content["role"], part] for content in body["contents"] for part in content["parts"]]
        return [*body.get("tools", ()), body.get("systemInstruction", ""), *said]


class StrictOllama(StrictVendor):
    """Ollama's own interface, with the chat templates that insist on alternating roles."""

    wire = "ollama"

    def check(self, body: Body) -> None:
        waiting: list[str] = []
        before = ""
        for place, message in enumerate(body["messages"]):
            role = message["role"]
            need(role in ("system", "user", "assistant", "tool"), f"unknown role {role}")
            need(isinstance(message["content"], str), f"messages.{place}.content must be text")
            need(message["content"] or message.get("tool_calls") or role == "tool", f"messages.{place} is empty")
            if role == "tool":
                need(message["tool_call_id"] in waiting and message["tool_name"], f"messages.{place} answers no call")
                waiting.remove(message["tool_call_id"])
            else:
                need(not waiting, f"no message answers {waiting}")
                need(role != before, f"roles must alternate: two messages of {role}")
            for call in message.get("tool_calls", ()):
                need(isinstance(call["function"]["arguments"], dict), "arguments must be an object")
                waiting.append(call["id"])
            if thinking := message.get("thinking"):
                self.verify(thinking, thinking)
            before = role
        need(not waiting and before in ("user", "tool"), "the conversation must end with a user or a tool")

    def answer(self, reply: Reply, number: int, total: int, cached: int) -> Answer:
        calls = [
            {"id": f"call-{number}-{place}", "function": {"name": name, "arguments": json.loads(text)}}
            for place, name, text in reply.arguments()
        ]
        message: Body = {"role": "assistant", "content": reply.text, **({"tool_calls": calls} if calls else {})}
        if reply.thinks:
            message["thinking"] = f"thought {number}"
            self._signed[message["thinking"]] = message["thinking"]
        lines = [
            {"model": "m", "message": message, "done": False},
            {"model": "m", "message": {"role": "assistant", "content": ""}, "done": True, "done_reason": "stop",
             "prompt_eval_count": total, "eval_count": 5},
        ]  # fmt: skip
        return Answer(
            headers={"content-type": "application/x-ndjson"}, chunks=[json.dumps(one).encode() + b"\n" for one in lines]
        )

    def blocks(self, body: Body) -> Iterable[Any]:
        return [*body.get("tools", ()), *body["messages"]]


STRICT = {
    "chat": StrictChat,
    "openrouter": StrictOpenRouter,
    "responses": StrictResponses,
    "anthropic": StrictAnthropic,
    "gemini": StrictGemini,
    "ollama": StrictOllama,
}
"""By name; two speak chat completions."""


def serving(monkeypatch: Any, folder: Any, name: str, url: str, alias: str = "m") -> None:
    """Have the model `alias` be one of this vendor's, at an SseServer's URL."""
    root = url.removesuffix("/v1")
    match name:
        case "responses":
            (folder / f"{alias}.toml").write_text(f'[endpoint.{alias}]\nurl = "{url}"\nwire = "responses"\n')
            monkeypatch.setenv("TURNWRIGHT_ENDPOINTS_FILE", str(folder / f"{alias}.toml"))
            model = f"{alias}/gpt-x"
        case "chat":
            monkeypatch.setenv("OPENAI_BASE_URL", url)
            model = "openai/gpt-x"
        case "openrouter":
            monkeypatch.setenv("OPENROUTER_BASE_URL", url)
            model = "openrouter/anthropic/claude-x"
        case "anthropic":
            monkeypatch.setenv("ANTHROPIC_BASE_URL", url)
            model = "anthropic/claude-x"
        case "gemini":
            monkeypatch.setenv("GEMINI_BASE_URL", f"{root}/v1beta")
            model = "gemini/gemini-3-x"
        case _:
            monkeypatch.setenv("OLLAMA_BASE_URL", root)
            model = "ollama/m"
    monkeypatch.setenv(f"TURNWRIGHT_MODEL_{alias}", model)
