"""What the official SDKs send for each call of calls.py: prints `{wire: {name of the call: request}}` as JSON.

Runs with a Python that has the SDKs and nothing of this project; see test_requests.py. A local server refuses every
request and keeps it: `{path, headers, body}`.
"""

from __future__ import annotations

import base64
import contextlib
import json
import sys
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import anthropic
import openai
from google import genai
from google.genai import types

PNG = base64.b64decode(sys.argv[1])
URL = "https://example.org/a.png"
SCHEMA = {
    "type": "object",
    "properties": {"path": {"type": "string"}},
    "required": ["path"],
    "additionalProperties": False,
}
NOTHING = {"type": "object", "properties": {}}
ASKED = "What is in a.py?"
DATA_URL = f"data:image/png;base64,{base64.b64encode(PNG).decode()}"
Table = dict[str, dict[str, Any]]


def user(content: Any = ASKED) -> dict[str, Any]:
    return {"role": "user", "content": content}


# ---- OpenAI's chat completions


def _chat_calls() -> Table:
    def called(*ids: str, content: Any = None) -> dict[str, Any]:
        function = {"name": "read", "arguments": '{"path": "a.py"}'}
        return {
            "role": "assistant",
            "content": content,
            "tool_calls": [{"id": each, "type": "function", "function": function} for each in ids],
        }

    def result(call_id: str, content: Any = "x = 1") -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": call_id, "content": content}

    def text(said: str) -> dict[str, Any]:
        return {"type": "text", "text": said}

    def image(url: str) -> dict[str, Any]:
        return {"type": "image_url", "image_url": {"url": url}}

    system = {"role": "system", "content": "Be brief."}
    read = {"type": "function", "function": {"name": "read", "description": "Reads a file.", "parameters": SCHEMA}}
    strict = {"type": "function", "function": {**read["function"], "strict": True}}
    now = {"type": "function", "function": {"name": "now", "description": "The time.", "parameters": NOTHING}}
    asked, tools = [user()], {"messages": [user()], "tools": [read]}
    form = {"name": "place", "schema": SCHEMA, "strict": True}
    return {
        "text": {"messages": asked},
        "system": {"messages": [system, user()]},
        "several turns": {"messages": [system, user(), {"role": "assistant", "content": "x = 1"}, user("And b.py?")]},
        "odd characters": {"messages": [user('\u00e4\u6f22\U0001f600\u2028"\\\x00\n\t</s>')]},
        "several texts": {"messages": [user([text("One. "), text("Two.")])]},
        "temperature": {"messages": asked, "temperature": 0.5},
        "output limit": {"messages": asked, "max_tokens": 100},
        "stop": {"messages": asked, "stop": ["END", "STOP"]},
        "metadata": {"messages": asked, "metadata": {"user_id": "u1"}},
        "image by bytes": {"messages": [user([text(ASKED), image(DATA_URL)])]},
        "image by url": {"messages": [user([text(ASKED), image(URL)])]},
        "images between texts": {
            "messages": [user([image(URL), text("and"), image(DATA_URL), text("differ?")])],
        },
        "tool": tools,
        "two tools": {"messages": asked, "tools": [read, now]},
        "strict tool": {"messages": asked, "tools": [strict]},
        "choice auto": {**tools, "tool_choice": "auto"},
        "choice none": {**tools, "tool_choice": "none"},
        "choice required": {**tools, "tool_choice": "required"},
        "choice of one": {**tools, "tool_choice": {"type": "function", "function": {"name": "read"}}},
        "one call at most": {**tools, "tool_choice": "auto", "parallel_tool_calls": False},
        "result": {**tools, "messages": [user(), called("c1"), result("c1")]},
        "words beside a call": {**tools, "messages": [user(), called("c1", content="I look."), result("c1")]},
        "two results": {**tools, "messages": [user(), called("c1", "c2"), result("c1"), result("c2", "y = 2")]},
        "result and words": {**tools, "messages": [user(), called("c1"), result("c1"), user("Go on.")]},
        "failed result": {**tools, "messages": [user(), called("c1"), result("c1", "no such file")]},
        "result by our id": {**tools, "messages": [user(), called("c1"), result("c1")]},
        "result with an image": {
            **tools,
            "messages": [user(), called("c1"), result("c1", "It is this."), user([image(DATA_URL)])],
        },
        "json object": {"messages": asked, "response_format": {"type": "json_object"}},
        "json schema": {"messages": asked, "response_format": {"type": "json_schema", "json_schema": form}},
        "reasoning low": {"messages": asked, "reasoning_effort": "low"},
        "reasoning high": {"messages": asked, "reasoning_effort": "high"},
        "reasoning off": {"messages": asked, "reasoning_effort": "none"},
        "another model's thinking": {**tools, "messages": [user(), called("c1", content="I look."), result("c1")]},
        "extra": {"messages": asked, "top_p": 0.9},
    }


def send_chat(url: str, call: dict[str, Any]) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    client.chat.completions.create(model="m", stream=True, stream_options={"include_usage": True}, **call)


# ---- OpenAI's Responses


def _responses_calls() -> Table:
    def called(*ids: str) -> list[dict[str, Any]]:
        call = {"type": "function_call", "name": "read", "arguments": '{"path": "a.py"}'}
        return [{**call, "call_id": each} for each in ids]

    def result(call_id: str, output: Any = "x = 1") -> dict[str, Any]:
        return {"type": "function_call_output", "call_id": call_id, "output": output}

    def text(said: str) -> dict[str, Any]:
        return {"type": "input_text", "text": said}

    def image(url: str) -> dict[str, Any]:
        return {"type": "input_image", "image_url": url}

    read = {"type": "function", "name": "read", "description": "Reads a file.", "parameters": SCHEMA, "strict": False}
    now = {"type": "function", "name": "now", "description": "The time.", "parameters": NOTHING, "strict": False}
    asked, tools = {"input": [user()]}, {"input": [user()], "tools": [read]}
    said = {"type": "message", "role": "assistant", "content": "x = 1"}
    form = {"type": "json_schema", "name": "place", "schema": SCHEMA, "strict": True}
    look = {"type": "message", "role": "assistant", "content": "I look."}
    thought = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "b3BhcXVl"}
    return {
        "text": asked,
        "system": {**asked, "instructions": "Be brief."},
        "several turns": {"instructions": "Be brief.", "input": [user(), said, user("And b.py?")]},
        "odd characters": {"input": [user('\u00e4\u6f22\U0001f600\u2028"\\\x00\n\t</s>')]},
        "several texts": {"input": [user([text("One. "), text("Two.")])]},
        "temperature": {**asked, "temperature": 0.5},
        "output limit": {**asked, "max_output_tokens": 100},
        "metadata": {**asked, "metadata": {"user_id": "u1"}},
        "image by bytes": {"input": [user([text(ASKED), image(DATA_URL)])]},
        "image by url": {"input": [user([text(ASKED), image(URL)])]},
        "images between texts": {"input": [user([image(URL), text("and"), image(DATA_URL), text("differ?")])]},
        "tool": tools,
        "two tools": {**asked, "tools": [read, now]},
        "strict tool": {**asked, "tools": [{**read, "strict": True}]},
        "choice auto": {**tools, "tool_choice": "auto"},
        "choice none": {**tools, "tool_choice": "none"},
        "choice required": {**tools, "tool_choice": "required"},
        "choice of one": {**tools, "tool_choice": {"type": "function", "name": "read"}},
        "one call at most": {**tools, "tool_choice": "auto", "parallel_tool_calls": False},
        "result": {**tools, "input": [user(), *called("c1"), result("c1")]},
        "words beside a call": {**tools, "input": [user(), look, *called("c1"), result("c1")]},
        "two results": {**tools, "input": [user(), *called("c1", "c2"), result("c1"), result("c2", "y = 2")]},
        "result and words": {**tools, "input": [user(), *called("c1"), result("c1"), user("Go on.")]},
        "failed result": {**tools, "input": [user(), *called("c1"), result("c1", "no such file")]},
        "result by our id": {**tools, "input": [user(), *called("c1"), result("c1")]},
        "result with an image": {
            **tools,
            "input": [user(), *called("c1"), result("c1", [text("It is this."), image(DATA_URL)])],
        },
        "json object": {**asked, "text": {"format": {"type": "json_object"}}},
        "json schema": {**asked, "text": {"format": form}},
        "reasoning low": {**asked, "reasoning": {"effort": "low", "summary": "auto"}},
        "reasoning high": {**asked, "reasoning": {"effort": "high", "summary": "auto"}},
        "reasoning off": {**asked, "reasoning": {"effort": "none"}},
        "encrypted reasoning back": {**tools, "input": [user(), thought, *called("c1"), result("c1")]},
        "another model's thinking": {**tools, "input": [user(), look, *called("c1"), result("c1")]},
        "extra": {**asked, "top_p": 0.9},
    }


def send_responses(url: str, call: dict[str, Any]) -> None:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="k", max_retries=0)
    client.responses.create(model="m", stream=True, store=False, include=["reasoning.encrypted_content"], **call)


# ---- Anthropic's Messages


def _anthropic_calls() -> Table:
    def called(*ids: str, before: tuple[dict[str, Any], ...] = ()) -> dict[str, Any]:
        call = {"type": "tool_use", "name": "read", "input": {"path": "a.py"}}
        return {"role": "assistant", "content": [*before, *({**call, "id": each} for each in ids)]}

    def result(call_id: str, content: Any = "x = 1", **more: Any) -> dict[str, Any]:
        return {"type": "tool_result", "tool_use_id": call_id, "content": content, **more}

    def text(said: str, **more: Any) -> dict[str, Any]:
        return {"type": "text", "text": said, **more}

    mark = {"cache_control": {"type": "ephemeral"}}
    png = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA_URL.partition(",")[2]}}
    linked = {"type": "image", "source": {"type": "url", "url": URL}}
    read = {"name": "read", "description": "Reads a file.", "input_schema": SCHEMA}
    now = {"name": "now", "description": "The time.", "input_schema": NOTHING}
    asked, tools = {"messages": [user()]}, {"messages": [user()], "tools": [read]}
    thought = {"type": "thinking", "thinking": "I should look.", "signature": "c2lnbmVk"}
    hidden = {"type": "redacted_thinking", "data": "b3BhcXVl"}

    def thinking(budget: int) -> dict[str, Any]:
        return {"thinking": {"type": "enabled", "budget_tokens": budget}, "max_tokens": budget + 8192}

    return {
        "text": asked,
        "system": {**asked, "system": "Be brief."},
        "several turns": {
            "system": "Be brief.",
            "messages": [user(), {"role": "assistant", "content": "x = 1"}, user("And b.py?")],
        },
        "odd characters": {"messages": [user('\u00e4\u6f22\U0001f600\u2028"\\\x00\n\t</s>')]},
        "several texts": {"messages": [user([text("One. "), text("Two.")])]},
        # Gone from the SDK, and still taken by most models.
        "temperature": {**asked, "extra_body": {"temperature": 0.5}},
        "output limit": {**asked, "max_tokens": 100},
        "stop": {**asked, "stop_sequences": ["END", "STOP"]},
        "metadata": {**asked, "metadata": {"user_id": "u1"}},
        "image by bytes": {"messages": [user([text(ASKED), png])]},
        "image by url": {"messages": [user([text(ASKED), linked])]},
        "images between texts": {"messages": [user([linked, text("and"), png, text("differ?")])]},
        "tool": tools,
        "two tools": {**asked, "tools": [read, now]},
        "strict tool": {**asked, "tools": [{**read, "strict": True}]},
        "choice auto": {**tools, "tool_choice": {"type": "auto"}},
        "choice none": {**tools, "tool_choice": {"type": "none"}},
        "choice required": {**tools, "tool_choice": {"type": "any"}},
        "choice of one": {**tools, "tool_choice": {"type": "tool", "name": "read"}},
        "one call at most": {**tools, "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        "result": {**tools, "messages": [user(), called("c1"), user([result("c1")])]},
        "words beside a call": {
            **tools,
            "messages": [user(), called("c1", before=(text("I look."),)), user([result("c1")])],
        },
        "two results": {
            **tools,
            "messages": [user(), called("c1", "c2"), user([result("c1"), result("c2", "y = 2")])],
        },
        "result and words": {**tools, "messages": [user(), called("c1"), user([result("c1"), text("Go on.")])]},
        "failed result": {
            **tools,
            "messages": [user(), called("c1"), user([result("c1", "no such file", is_error=True)])],
        },
        "result by our id": {**tools, "messages": [user(), called("c1"), user([result("c1")])]},
        "result with an image": {
            **tools,
            "messages": [user(), called("c1"), user([result("c1", [text("It is this."), png])])],
        },
        "json schema": {**asked, "output_config": {"format": {"type": "json_schema", "schema": SCHEMA}}},
        "reasoning off": {**asked, "thinking": {"type": "disabled"}},
        "reasoning tokens": {**asked, **thinking(5000)},
        "thinking back": {
            **tools,
            **thinking(5000),
            "messages": [user(), called("c1", before=(thought,)), user([result("c1")])],
        },
        "hidden thinking back": {
            **tools,
            **thinking(5000),
            "messages": [user(), called("c1", before=(hidden, thought, text("I look."))), user([result("c1")])],
        },
        "another model's thinking": {
            **tools,
            "messages": [user(), called("c1", before=(text("I look."),)), user([result("c1")])],
        },
        "cached system": {**asked, "system": [text("Be brief.", **mark)]},
        "cached tool": {**asked, "tools": [now, {**read, **mark}]},
        "cached turn": {
            "messages": [user([text(ASKED, **mark)]), {"role": "assistant", "content": "x = 1"}, user("So?")]
        },
        "extra": {**asked, "extra_body": {"top_p": 0.9}},
    }


def send_anthropic(url: str, call: dict[str, Any]) -> None:
    client = anthropic.Anthropic(base_url=url, api_key="k", max_retries=0)
    client.messages.create(**{"model": "m", "max_tokens": 8192, "stream": True, **call})


# ---- Google's Gemini


def _gemini_calls() -> Table:
    part = types.Part
    ask = types.Content(role="user", parts=[part(text=ASKED)])
    png, linked = part.from_bytes(data=PNG, mime_type="image/png"), part.from_uri(file_uri=URL, mime_type="image/png")
    read = types.FunctionDeclaration(name="read", description="Reads a file.", parameters_json_schema=SCHEMA)
    now = types.FunctionDeclaration(name="now", description="The time.", parameters_json_schema=NOTHING)
    has_tools = {"tools": [types.Tool(function_declarations=[read])]}

    def content(*parts: Any, role: str = "user") -> types.Content:
        return types.Content(role=role, parts=list(parts))

    def called(*ids: str, before: tuple[Any, ...] = (), signature: bytes | None = None) -> types.Content:
        calls = [types.FunctionCall(id=each, name="read", args={"path": "a.py"}) for each in ids]
        parts = [part(function_call=call, thought_signature=signature) for call in calls]
        return content(*before, *parts, role="model")

    def result(call_id: str, said: str = "x = 1", key: str = "result") -> types.Part:
        return part(function_response=types.FunctionResponse(id=call_id, name="read", response={key: said}))

    def chosen(mode: str, *names: str) -> dict[str, Any]:
        config = types.FunctionCallingConfig(mode=mode, allowed_function_names=list(names) or None)
        return {**has_tools, "tool_config": types.ToolConfig(function_calling_config=config)}

    def call(*contents: Any, **config: Any) -> dict[str, Any]:
        automatic = types.AutomaticFunctionCallingConfig(disable=True)
        made = types.GenerateContentConfig(**config, automatic_function_calling=automatic)
        return {"contents": list(contents) or [ask], "config": made}

    def thinking(budget: int) -> dict[str, Any]:
        return {"thinking_config": types.ThinkingConfig(thinking_budget=budget, include_thoughts=budget > 0 or None)}

    look = part(text="I look.")
    json_type = "application/json"
    return {
        "text": call(),
        "system": call(system_instruction=[part(text="Be brief.")]),
        "several turns": call(
            ask, content(part(text="x = 1"), role="model"), content(part(text="And b.py?")),
            system_instruction=[part(text="Be brief.")],
        ),
        "odd characters": call(content(part(text='\u00e4\u6f22\U0001f600\u2028"\\\x00\n\t</s>'))),
        "several texts": call(content(part(text="One. "), part(text="Two."))),
        "temperature": call(temperature=0.5),
        "output limit": call(max_output_tokens=100),
        "stop": call(stop_sequences=["END", "STOP"]),
        "image by bytes": call(content(part(text=ASKED), png)),
        "image by url": call(content(part(text=ASKED), linked)),
        "images between texts": call(content(linked, part(text="and"), png, part(text="differ?"))),
        "tool": call(**has_tools),
        "two tools": call(tools=[types.Tool(function_declarations=[read, now])]),
        "choice auto": call(**chosen("AUTO")),
        "choice none": call(**chosen("NONE")),
        "choice required": call(**chosen("ANY")),
        "choice of one": call(**chosen("ANY", "read")),
        "result": call(ask, called("c1"), content(result("c1")), **has_tools),
        "words beside a call": call(ask, called("c1", before=(look,)), content(result("c1")), **has_tools),
        "two results": call(
            ask, called("c1", "c2"), content(result("c1"), result("c2", "y = 2")), **has_tools
        ),
        "result and words": call(ask, called("c1"), content(result("c1"), part(text="Go on.")), **has_tools),
        "failed result": call(ask, called("c1"), content(result("c1", "no such file", "error")), **has_tools),
        "result by our id": call(ask, called("c1"), content(result("c1")), **has_tools),
        "result with an image": call(ask, called("c1"), content(result("c1", "It is this."), png), **has_tools),
        "json object": call(response_mime_type=json_type),
        "json schema": call(response_mime_type=json_type, response_json_schema=SCHEMA),
        "reasoning off": call(**thinking(0)),
        "reasoning tokens": call(**thinking(5000)),
        "signed call back": call(ask, called("c1", signature=b"opaque"), content(result("c1")), **has_tools),
        "another model's thinking": call(ask, called("c1", before=(look,)), content(result("c1")), **has_tools),
        "extra in an object": call(top_p=0.9),
    }  # fmt: skip


def send_gemini(url: str, call: dict[str, Any]) -> None:
    client = genai.Client(api_key="k", http_options=types.HttpOptions(base_url=url))
    for _ in client.models.generate_content_stream(model="m", **call):
        pass


# ---- What they send


class Refusing(BaseHTTPRequestHandler):
    """Refuses all; keeps what was asked."""

    requests: list[Any] = []  # noqa: RUF012 - there is one server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.requests.append({"path": self.path, "headers": headers, "body": body})
        answer = b'{"error": {"code": 400, "message": "refused", "status": "INVALID_ARGUMENT"}}'
        self.send_response(400)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


SENDERS: dict[str, tuple[Callable[[str, dict[str, Any]], None], Callable[[], Table]]] = {
    "chat": (send_chat, _chat_calls),
    "responses": (send_responses, _responses_calls),
    "anthropic": (send_anthropic, _anthropic_calls),
    "gemini": (send_gemini, _gemini_calls),
}
REFUSALS = (openai.BadRequestError, anthropic.BadRequestError, genai.errors.ClientError)


def main() -> None:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    sent: dict[str, dict[str, Any]] = {}
    for wire, (send, calls) in SENDERS.items():
        sent[wire] = {}
        for name, call in calls().items():
            with contextlib.suppress(*REFUSALS):
                send(url, call)
            sent[wire][name] = Refusing.requests.pop()
    json.dump(sent, sys.stdout)


if __name__ == "__main__":
    main()
