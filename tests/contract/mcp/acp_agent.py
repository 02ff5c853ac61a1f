"""An agent of the Agent Client Protocol as its arguments say, without any library: `python acp_agent.py KIND [FILE]`.

FILE gets a line for each prompt, and each answer to a question.
"""

import json
import os
import sys
import time
from pathlib import Path

KIND = sys.argv[1]
FILE = sys.argv[2] if len(sys.argv) > 2 else ""
OPTIONS = [
    {"optionId": "no", "name": "No", "kind": "reject_once"},
    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
    {"optionId": "all", "name": "Always", "kind": "allow_always"},
]


def send(**message):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def receive():
    line = sys.stdin.readline()
    if not line:
        sys.exit()
    return json.loads(line)


def noted(text):
    if FILE:
        with Path(FILE).open("a") as file:
            file.write(f"{text}\n")


def update(kind, **more):
    send(method="session/update", params={"sessionId": "s", "update": {"sessionUpdate": kind, **more}})


def says(text):
    update("agent_message_chunk", content={"type": "text", "text": text})


def ended(request, reason="end_turn", **more):
    send(id=request["id"], result={"stopReason": reason, **more})


def asks(number, wait=True, **more):
    diff = {"type": "diff", "path": "a.txt", "oldText": "before", "newText": "after"}
    call = {"toolCallId": "t", "title": f"Write a.txt, {number}", "kind": "edit", "content": [diff], **more}
    params = {"sessionId": "s", "toolCall": call, "options": OPTIONS}
    send(id=f"q{number}", method="session/request_permission", params=params)
    return answer_to(f"q{number}") if wait else None


def answer_to(number):
    while (message := receive()).get("id") != number:
        continue
    return message.get("result") or message.get("error")


def works(request):
    says("I look at it.")
    entries = [{"content": "Look", "priority": "high", "status": "completed"}]
    update("plan", entries=[*entries, {"content": 7}, {"content": "Mend", "priority": "low", "status": "pending"}])
    update("tool_call", toolCallId="t", title="Read a.txt")
    update("tool_call_update", toolCallId="t", status="completed")
    update("usage_update", used=7, size=100, cost={"amount": 0.25, "currency": "USD"})
    says("All ")
    says("is mended.")
    ended(request, usage={"totalTokens": 42, "inputTokens": 40, "outputTokens": 2})


def reads_outside(request):
    found = {}
    for path in ("../beside.txt", "/etc/shadow"):
        send(id="r", method="fs/read_text_file", params={"sessionId": "s", "path": path})
        found[path] = answer_to("r")["code"]
    for path in (Path("../beside.txt"), Path("../mine.txt"), Path("inside.txt")):
        try:
            path.write_text("x") if path.name != "beside.txt" else path.read_text()
            found[path.name] = "done"
        except OSError as error:
            found[path.name] = type(error).__name__
    says(json.dumps(found))
    ended(request)


def prompted(request):  # noqa: C901 - one case for each kind
    noted("prompted")
    match KIND:
        case "silent":
            time.sleep(1000)
        case "dies":
            os._exit(3)
        case "asks":
            noted(json.dumps(asks(1)))
            says("Written.")
            ended(request)
        case "asks-for-ever":
            for number in range(1000):
                noted(json.dumps(asks(number)))
        case "asks-at-once":
            for number in range(1000):
                asks(number, wait=False)
            while (message := receive())["id"] != "q999":
                continue
            noted(json.dumps(message["result"]))
            ended(request)
        case "asks-at-length":
            noted(json.dumps(asks(1, title="x" * 1024 * 1024)))
            says("It was refused.")
            ended(request)
        case "floods":
            for _ in range(1_000):
                says("x" * 1000)
            for _ in range(20):
                print("this is no message", flush=True)
            send(method="session/update", params={"update": None})
            send(method="session/update", params=[7])
            send(id=5, result={})
            update("plan", entries="none")
            says("\ud800")
            ended(request)
        case "garbage":
            while True:
                print("this is no message", flush=True)
        case "refuses":
            send(id=request["id"], error={"code": -32603, "message": "No credit is left."})
        case "reads":
            reads_outside(request)
        case "waits":
            time.sleep(float(os.environ.get("SLOW_S", "1000")))
            ended(request)
        case _:
            works(request)


def main():
    if KIND == "never-starts":
        time.sleep(1000)
    while True:
        request = receive()
        method = request.get("method")
        if method == "initialize":
            send(id=request["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
        elif method == "session/new" and KIND == "login":
            send(id=request["id"], error={"code": -32000, "message": "Authentication required"})
        elif method == "session/new":
            os.chdir(request["params"]["cwd"])
            send(id=request["id"], result={"sessionId": "s"})
        elif method == "session/prompt":
            prompted(request)
        elif method == "session/cancel":
            noted("cancelled")


main()
