"""The published schemas of the protocol, and what a transcript must be by them (AP14, AP15, AP34)."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator

FOLDER = Path(__file__).parents[3] / "node_modules/@agentclientprotocol/sdk/schema/v1"
IS_THERE = FOLDER.is_dir()

ANSWERS = {
    "initialize": "InitializeResponse",
    "authenticate": "AuthenticateResponse",
    "session/new": "NewSessionResponse",
    "session/load": "LoadSessionResponse",
    "session/resume": "ResumeSessionResponse",
    "session/fork": "ForkSessionResponse",
    "session/list": "ListSessionsResponse",
    "session/close": "CloseSessionResponse",
    "session/delete": "DeleteSessionResponse",
    "session/set_mode": "SetSessionModeResponse",
    "session/set_config_option": "SetSessionConfigOptionResponse",
    "session/prompt": "PromptResponse",
}
REQUESTS = {
    "session/update": "SessionNotification",
    "session/request_permission": "RequestPermissionRequest",
    "fs/read_text_file": "ReadTextFileRequest",
    "fs/write_text_file": "WriteTextFileRequest",
    "terminal/create": "CreateTerminalRequest",
    "terminal/output": "TerminalOutputRequest",
    "terminal/wait_for_exit": "WaitForTerminalExitRequest",
    "terminal/release": "ReleaseTerminalRequest",
    "$/cancel_request": "CancelRequestNotification",
}
NEWER = {"path"}
"""Fields that the protocol has got since these schemas: the path of a Markdown plan."""


@cache
def definitions(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / name).read_text())["$defs"]


@cache
def validator(name: str, definition: str) -> Draft202012Validator:
    return Draft202012Validator({"$ref": f"#/$defs/{definition}", "$defs": definitions(name)})


def problems(message: dict[str, Any], asked: dict[Any, str], *, is_stable: bool) -> list[str]:
    """What is wrong with a message of the agent. `asked`: the methods of the client's requests, by id."""
    name = "schema.json" if is_stable else "schema.unstable.json"
    assert message["jsonrpc"] == "2.0"
    if "error" in message:
        kind, value = "Error", message["error"]
    elif "method" in message:
        kind, value = REQUESTS[message["method"]], message["params"]
    else:
        kind, value = ANSWERS[asked[message["id"]]], message["result"]
    if kind not in definitions(name):
        # Of the unstable protocol alone.
        return []
    found = [f"{kind}: {error.message}"[:500] for error in validator(name, kind).iter_errors(value)]
    return found + [f"{kind} has no field {field}" for field in unknown_fields(name, kind, value)]


def unknown_fields(name: str, kind: str, value: Any) -> list[str]:
    """Fields at the root of a message, or of its update, that the schema does not know."""
    schema = definitions(name)
    found = [field for field in value if field not in schema[kind].get("properties", value)]
    if kind == "SessionNotification":
        update = value["update"]
        known = {"sessionUpdate", "_meta"}
        for one in schema["SessionUpdate"]["oneOf"]:
            if one["properties"]["sessionUpdate"]["const"] == update["sessionUpdate"]:
                known |= {
                    f for ref in one.get("allOf", ()) for f in schema[ref["$ref"].rpartition("/")[2]]["properties"]
                }
        found += [field for field in update if field not in known | NEWER]
    return found


def check_transcript(messages: list[dict[str, Any]], asked: dict[Any, str], *, has_plans: bool) -> None:
    """All that an agent has written to one client: by the unstable schema, without plans by the stable one too."""
    if not IS_THERE:
        return
    for message in messages:
        assert not problems(message, asked, is_stable=False), message
        if not has_plans:
            assert not problems(message, asked, is_stable=True), message
            assert message.get("params", {}).get("update", {}).get("sessionUpdate") not in (
                "plan_update",
                "plan_removed",
            )
