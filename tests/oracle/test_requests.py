"""Our requests are those of the official SDKs, but for what DIFFERENCES names.

The SDKs have an environment of their own, for `make oracle`: TURNWRIGHT_ORACLE_PYTHON is its Python.
"""

from __future__ import annotations

import base64
import json
import os
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from oracle.calls import CALLS, PNG
from turnwright_provider.domain.presets import WIRES
from turnwright_provider.domain.wires.wire import wire_class

PYTHON = os.environ.get("TURNWRIGHT_ORACLE_PYTHON", "")
pytestmark = [
    pytest.mark.oracle,
    pytest.mark.skipif(
        not PYTHON, reason="`make oracle` installs the SDKs, and says where in TURNWRIGHT_ORACLE_PYTHON"
    ),
]

Same = Callable[[Any], Any]
"""Writes a body, or any value in it, in the one of several ways that mean the same."""


def bare_texts(value: Any) -> Any:
    """A list that holds one text and nothing of it but the text is that text."""
    match value:
        case {"content": [{"type": "text", "text": text, **rest}]} if not rest:
            return {**value, "content": text}
        case {"system": [{"type": "text", "text": text, **rest}]} if not rest:
            return {**value, "system": text}
    return value


def camel_case(value: Any) -> Any:
    """Names of fields as protobuf writes them in JSON; it reads both."""
    if not isinstance(value, dict):
        return value
    return {re.sub(r"(?<=[a-z])_([a-z])", lambda found: found[1].upper(), name): each for name, each in value.items()}


def no_empty_config(value: Any) -> Any:
    if isinstance(value, dict) and value.get("generationConfig") == {}:
        return {name: each for name, each in value.items() if name != "generationConfig"}
    return value


def system_without_role(value: Any) -> Any:
    match value:
        case {"systemInstruction": {"parts": parts}}:
            return {**value, "systemInstruction": {"parts": parts}}
    return value


def plain_base64(value: Any) -> Any:
    """Bytes in either alphabet of base64."""
    match value:
        case {"data": str(data)}:
            return {**value, "data": data.translate(str.maketrans("-_", "+/"))}
    return value


DIFFERENCES: dict[str, tuple[Same, ...]] = {
    "anthropic": (bare_texts,),
    "gemini": (camel_case, no_empty_config, system_without_role, plain_base64),
}
"""Wire -> what means the same to its vendor."""

HEADERS_OF_OUR_OWN = {
    "anthropic": "the key and the version of the interface as servers of others know them too, not those of the newest SDK",
}
"""Wire -> why what it sends beside the body is not what the SDK sends."""


def same(value: Any, ways: tuple[Same, ...]) -> Any:
    """The value, all of it in one of the ways that mean the same."""
    if isinstance(value, dict):
        value = {name: same(each, ways) for name, each in value.items()}
    elif isinstance(value, list):
        value = [same(each, ways) for each in value]
    for way in ways:
        value = way(value)
    return value


@pytest.fixture(scope="module")
def sent() -> dict[str, dict[str, Any]]:
    """What the SDKs send: wire -> name of the call -> request."""
    script = str(Path(__file__).with_name("sdk_requests.py"))
    command = [PYTHON, script, base64.b64encode(PNG).decode()]
    done = subprocess.run(command, capture_output=True, timeout=300, check=False)
    assert done.returncode == 0, done.stderr.decode()
    requests: dict[str, dict[str, Any]] = json.loads(done.stdout)
    return requests


def test_every_call_is_made_by_an_sdk(sent: dict[str, dict[str, Any]]) -> None:
    assert {name for requests in sent.values() for name in requests} == set(CALLS)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", WIRES)
def test_our_requests_are_those_of_the_sdk(name: str, sent: dict[str, dict[str, Any]]) -> None:
    if name not in sent:
        pytest.skip(f"there is no SDK for {name}")
    wire, ways = wire_class(name)(), DIFFERENCES.get(name, ())
    other: dict[str, tuple[Any, Any]] = {}
    for called, theirs in sent[name].items():
        ours = wire.request(CALLS[called], frozenset())
        body = json.loads(ours.body)
        if same(body, ways) != same(theirs["body"], ways):
            other[called] = body, theirs["body"]
        assert theirs["path"].endswith(ours.path)
        if name not in HEADERS_OF_OUR_OWN:
            assert wire.headers("k").items() <= theirs["headers"].items()
    assert other == {}
