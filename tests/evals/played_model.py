"""A model that plays written replies over real HTTP, and counts as a vendor does: tokens, what its cache had, a price.

    played = PlayedModel(Path("tests/evals/evals.toml"))
    async with played.server() as server:
        OPENAI_BASE_URL = server.url

A request is for the task whose prompt it has, and for the variant whose model it names; the replies of that task come in
order, and then from the first again, so a variant does a task once at a time. Where tools are offered, the commands of a reply become calls of them, as our own grammar reads them.

Counted is the request as it came: tools, then messages, by OpenAI's tokenizer where `bpe_openai` is installed, else a token
for every four characters. Only what differs each time, the folder of the copy and the seconds that tests took, is counted as
if it were always the same, so that the figures are, too. The cache is that of one run: the longest beginning that an earlier request of it had, from
1,024 tokens on in steps of 128, as OpenAI's has it. Between runs nothing is shared, so figures do not depend on the order
of tasks. Prices are those of a large model of 2026, in US dollars for a million tokens.
"""

from __future__ import annotations

import json
import re
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from sse_server import Answer, Request, SseServer, delta, error, events, read_replies
from turnwright_grammar.reader.parser import read_reply

CONTEXT = 131_072
CACHED_MIN = 1_024
CACHED_STEP = 128
PRICE = {"prompt": 2.0, "cached": 0.5, "completion": 8.0}
CHUNK_CHARS = 64
VARIES = re.compile(r"(?<=File \")/[^\"\n]*/(?=[^/\"\n]+\")|(?<= in )\d+\.\d+(?=s\b)")
"""In what unittest prints: folders of files, and seconds."""
REQUESTS_MAX = 100_000


@dataclass
class _Played:
    """What one run has had so far."""

    replies: int = 0
    prompts: list[str] = field(default_factory=list)


class PlayedModel:
    """The replies of all tasks of a file, which stand beside each task's project as `replies.txt`."""

    def __init__(self, file: Path, replies: Mapping[str, list[str]] | None = None) -> None:
        """`replies`: other ones, by the name of their task."""
        read = tomllib.loads(file.read_text(encoding="utf-8"))
        folder = file.parent
        self._replies = {
            one["prompt"].strip(): (replies or {}).get(one["name"])
            or read_replies((folder / one["project"]).parent / "replies.txt")
            for one in read["task"]
        }
        self.models = [one["model"] for one in read["variant"]]
        self._runs: dict[tuple[str, str], _Played] = {}

    def environment(self, url: str) -> dict[str, str]:
        """What makes the models of the file the played ones."""
        aliases = {f"TURNWRIGHT_MODEL_{name}": f"openai/{name}" for name in self.models}
        return {**aliases, "OPENAI_BASE_URL": url}

    def server(self) -> SseServer:
        models = [{"id": name, "object": "model", "max_model_len": CONTEXT} for name in self.models]
        listed = {"object": "list", "data": models}
        return SseServer([self] * REQUESTS_MAX, pages={"/v1/models": listed})

    def __call__(self, request: Request) -> Answer:
        body = request.json
        prompt = prompt_text(body)
        asked = next((one for one in self._replies if one in prompt), None)
        if asked is None:
            return error(400, "no task has this prompt")
        key = asked, body["model"]
        run = self._runs.setdefault(key, _Played())
        written = self._replies[asked]
        answer = answer_of(
            written[run.replies], run.replies, native=bool(body.get("tools")), usage=usage_of(prompt, run.prompts)
        )
        run.replies += 1
        run.prompts.append(prompt)
        if run.replies == len(written):
            del self._runs[key]
        return answer


@cache
def _tokenizer() -> Any:
    """OpenAI's tokenizer, or None. Loading it takes a second."""
    with warnings.catch_warnings():
        # It reads its data in a way that Python 3.11 calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            import bpe_openai
        except ImportError:
            return None
        return bpe_openai.get_encoding("o200k_base")


def count(text: str) -> int:
    tokenizer = _tokenizer()
    return len(tokenizer.encode_ordinary(text)) if tokenizer else -(-len(text) // 4)


def prompt_text(body: Mapping[str, Any]) -> str:
    """What a model reads of a request, in the order in which vendors cache it."""
    parts = [json.dumps(tool, ensure_ascii=False) for tool in body.get("tools") or ()]
    for message in body["messages"]:
        content = message.get("content") or ""
        texts = [content] if isinstance(content, str) else [part.get("text", "") for part in content]
        calls = [json.dumps(call["function"], ensure_ascii=False) for call in message.get("tool_calls") or ()]
        parts.append("\n".join([f"<|{message['role']}|>", *texts, *calls]))
    return VARIES.sub("0", "\n".join(parts))


def common(one: str, other: str) -> str:
    """The beginning that both have."""
    return one[: next((at for at, pair in enumerate(zip(one, other, strict=False)) if pair[0] != pair[1]), len(other))]


def usage_of(prompt: str, earlier: list[str]) -> dict[str, Any]:
    """The usage of a prompt; its reply is added by `answer_of`."""
    same = count(max((common(prompt, one) for one in earlier), key=len, default=""))
    cached = same // CACHED_STEP * CACHED_STEP if same >= CACHED_MIN else 0
    return {"prompt_tokens": count(prompt), "prompt_tokens_details": {"cached_tokens": cached}}


def answer_of(reply: str, number: int, *, native: bool, usage: dict[str, Any]) -> Answer:
    text, calls = reply, []
    if native:
        read = read_reply(reply)
        text = read.narration
        for place, command in enumerate(read.commands):
            arguments = {**command.attributes, **({"body": command.body} if command.body else {})}
            function = {"name": command.name, "arguments": json.dumps(arguments, ensure_ascii=False)}
            calls.append({"index": place, "id": f"call_{number}_{place}", "type": "function", "function": function})
    completion = count(text) + sum(count(json.dumps(call["function"], ensure_ascii=False)) for call in calls)
    cached = usage["prompt_tokens_details"]["cached_tokens"]
    whole = {
        **usage,
        "completion_tokens": completion,
        "total_tokens": usage["prompt_tokens"] + completion,
        "cost": (
            (usage["prompt_tokens"] - cached) * PRICE["prompt"]
            + cached * PRICE["cached"]
            + completion * PRICE["completion"]
        )
        / 1e6,
    }
    pieces = [text[at : at + CHUNK_CHARS] for at in range(0, len(text), CHUNK_CHARS)]
    payloads = [delta(role="assistant", content=""), *(delta(content=piece) for piece in pieces)]
    payloads += [delta(tool_calls=calls)] if calls else []
    payloads += [delta(finish="tool_calls" if calls else "stop"), {"choices": [], "usage": whole}]
    return Answer(chunks=events(*payloads))
