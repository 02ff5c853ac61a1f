"""A server of MCP that misbehaves as its arguments say, without any library: `python hostile.py KIND [FILE]`.

FILE gets a line for each call that it has begun. It speaks a protocol of 2024 unless its kind says otherwise.
"""

import json
import os
import sys
import time
from pathlib import Path

KIND = sys.argv[1]
FILE = sys.argv[2] if len(sys.argv) > 2 else ""
VERSION = "2025-06-18" if KIND.startswith("asks") else "2024-11-05"
HINTS = {"idempotent": {"idempotentHint": True}, "read": {"readOnlyHint": True}}


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return json.loads(line)


def tools():
    names = ["work", "idempotent", "read", "die"]
    if KIND.startswith("changes") and Path(FILE).exists():
        names = ["other"]
    found = [
        {"name": name, "inputSchema": {"type": "object"}, **({"annotations": HINTS[name]} if name in HINTS else {})}
        for name in names
    ]
    if KIND == "schemas":
        loop = {"type": "object", "properties": {"a": {"$ref": "#/properties/a"}}}
        huge = {"type": "object", "properties": {"a": {"description": "x" * 1_000_000}}}
        long = "n" * 200
        found = [
            {"name": "loop", "inputSchema": loop},
            {"name": "huge", "inputSchema": huge},
            {"name": "none", "inputSchema": {}},
            {"name": long, "inputSchema": {"type": "object"}},
            {"name": "Two words", "inputSchema": {"type": "object"}},
            {"name": "two_words", "inputSchema": {"type": "object"}},
        ]
    return found


def noted(name):
    if FILE:
        with Path(FILE).open("a") as file:
            file.write(f"{name}\n")


def answered(request, text="done"):
    send(id=request["id"], result={"content": [{"type": "text", "text": text}]})


def call(request):  # noqa: C901 - one case for each kind
    name = request["params"]["name"]
    noted(name)
    match KIND:
        case "silent":
            return
        case "dies":
            os._exit(3)
        case "slow":
            # ONCE: whoever is made again answers at once.
            is_again = "ONCE" in os.environ and len(Path(FILE).read_text().splitlines()) > 1
            time.sleep(0 if is_again else float(os.environ.get("SLOW_S", "1000")))
            answered(request)
        case "floods":
            token = request["params"]["_meta"]["progressToken"]
            for number in range(2_000):
                send(
                    method="notifications/progress",
                    params={"progressToken": token, "progress": number, "message": "x" * 10_000},
                )
            answered(request)
        case "huge":
            answered(request, "x" * 100_000_000)
        case "long":
            answered(request, "x" * 2_000_000)
        case "garbage":
            for _ in range(20):
                print("this is no message", flush=True)
            print('{"jsonrpc": "2.0", "id": ', flush=True)
            answered(request)
        case "endless-garbage":
            while True:
                print("this is no message", flush=True)
        case "ids":
            send(id=999_999, result={"content": []})
            send(id="other", result={"content": []})
            send(id=None, error={"code": 1, "message": "no"})
        case "asks":
            asked(request)
        case "asks-at-once":
            asked_at_once(request)
        case "asks-later":
            # The call that comes second ends first.
            while (second := receive()).get("method") != "tools/call":
                continue
            answered(second)
            while not Path(f"{FILE}-ended").exists():
                time.sleep(0.01)
            asked(request)
        case "samples":
            sampled(request)
        case "shows":
            shown(request)
        case "changes":
            send(method="notifications/tools/list_changed")
            answered(request)
        case "environment":
            answered(
                request,
                json.dumps({"environ": dict(os.environ), "cwd": str(Path.cwd()), "home": seen("~"), "up": seen("..")}),
            )
        case _:
            answered(request)


def seen(path):
    try:
        return sorted(one.name for one in Path(path).expanduser().iterdir())
    except OSError as error:
        return str(error)


def asked(request):
    number = 0
    while True:
        number += 1
        schema = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
        send(
            id=f"q{number}",
            method="elicitation/create",
            params={"message": f"Name {number}?", "requestedSchema": schema},
        )
        while True:
            message = receive()
            if message.get("method") == "notifications/cancelled" and "GOES_ON" not in os.environ:
                return
            if message.get("id") == f"q{number}":
                break
        if FILE:
            noted(json.dumps(message.get("result")))
        if os.environ.get("QUESTIONS") == str(number):
            answered(request, json.dumps(message["result"]))
            return


def asked_at_once(request):
    """Asks a hundred questions before it reads an answer, and notes once nobody is asked all but sixteen of them."""
    for number in range(100):
        params = {"message": f"Name {number}?", "requestedSchema": {"type": "object", "properties": {}}}
        send(id=number, method="elicitation/create", params=params)
    refused = [receive() for _ in range(100 - 16)]
    noted("refused")
    receive()
    answered(request, str({one["error"]["code"] if "error" in one else one["result"]["action"] for one in refused}))


def shown(request):
    """Asks for the roots, tells of progress, and answers with content of each kind."""
    send(id="r", method="roots/list")
    while (message := receive()).get("id") != "r":
        continue
    token = request["params"]["_meta"]["progressToken"]
    send(method="notifications/progress", params={"progressToken": token, "progress": 1, "total": 2})
    png = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
    content = [
        {"type": "text", "text": message["result"]["roots"][0]["uri"]},
        {"type": "image", "data": png, "mimeType": "image/png"},
        {"type": "resource", "resource": {"uri": "notes://1", "mimeType": "text/plain", "text": "a note"}},
    ]
    send(id=request["id"], result={"content": content})


def sampled(request):
    """Asks a model what the arguments say, as often as they say; what it heard is the result."""
    given = request["params"]["arguments"]
    question = {"role": "user", "content": {"type": "text", "text": given.get("text", "Why?") * given.get("long", 1)}}
    params = {"messages": [question], "maxTokens": 50, "systemPrompt": "Be short.", **given.get("params", {})}
    heard = []
    for number in range(given.get("times", 1)):
        send(id=f"s{number}", method="sampling/createMessage", params=params)
        while (message := receive()).get("id") != f"s{number}":
            if message.get("method") == "notifications/cancelled":
                return
        noted("answered")
        heard.append(message.get("result") or message["error"]["message"])
    answered(request, json.dumps(heard))


def main():
    if KIND == "late":
        time.sleep(6)
    if KIND == "never-starts":
        time.sleep(1000)
    if KIND == "no-program":
        sys.stderr.write(f"This is none: {os.environ.get('KEY')}. I have no key.\n")
        sys.exit(4)
    while True:
        request = receive()
        method = request.get("method")
        if method == "initialize":
            info = {"name": "hostile", "version": "1"}
            capabilities = {"tools": {"listChanged": True}}
            send(
                id=request["id"], result={"protocolVersion": VERSION, "serverInfo": info, "capabilities": capabilities}
            )
        elif method == "tools/list":
            found = tools()
            if KIND == "changes-while-listed" and not Path(FILE).exists():
                noted("listed")
                send(method="notifications/tools/list_changed")
            send(id=request["id"], result={"tools": found})
        elif method == "tools/call":
            call(request)
        elif "id" in request and method:
            send(id=request["id"], error={"code": -32601, "message": "no such method"})


main()
