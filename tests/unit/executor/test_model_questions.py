"""What a server may have a model asked: within bounds, and only if its registration names one."""

import json

import pytest

from turnwright_core.chat.message import Role
from turnwright_executor.domain.model_questions import BYTES_MAX, MESSAGES_MAX, TOKENS, TOKENS_MAX, Asked, question_of
from turnwright_executor.domain.tool_servers import RegisteredServer

USER = Asked(Role.USER, ("Why?",))
SYSTEM = Asked(Role.SYSTEM, ("Be short.",))
MODEL = Asked(Role.ASSISTANT, ("Because.",))


def test_messages_of_one_author_are_one_and_limits_hold():
    asked = question_of("m", [SYSTEM, USER, USER, MODEL, Asked(Role.USER, ("And", "then?"))], 0, None, b"s")
    assert [(one.role, one.text) for one in asked.question.messages] == [
        (Role.SYSTEM, "Be short."), (Role.USER, "Why?\n\nWhy?"), (Role.ASSISTANT, "Because."), (Role.USER, "And\n\nthen?"),
    ]  # fmt: skip
    assert (asked.state, asked.problem, asked.question.output_tokens_max) == (b"s", "", TOKENS)
    assert question_of("m", [USER], 10**6, 2, b"").question.output_tokens_max == TOKENS_MAX


@pytest.mark.parametrize(
    ("alias", "asked", "temperature", "words"),
    [
        ("", [USER], None, "Nobody has allowed"),
        ("m", [], None, "a text of the user"),
        ("m", [USER, MODEL], None, "a text of the user"),
        ("m", [Asked(Role.USER, (" ",))], None, "a text of the user"),
        ("m", [USER, SYSTEM, USER], None, "texts"),
        ("m", [Asked(Role.USER, ("a", None))], None, "texts"),
        ("m", [Asked(Role.TOOL, ("a",)), USER], None, "texts"),
        ("m", [Asked(None, ("a",))], None, "texts"),
        ("m", [USER] * (MESSAGES_MAX + 1), None, "100 messages"),
        ("m", [Asked(Role.USER, ("ä" * (BYTES_MAX // 2 + 1),))], None, "262144 bytes"),
        ("m", [USER], 2.1, "0 to 2"),
        ("m", [USER], float("nan"), "0 to 2"),
    ],
)
def test_anything_else_is_asked_of_nobody(alias, asked, temperature, words):
    found = question_of(alias, asked, 10, temperature, b"s")
    assert found.question is None
    assert words in found.problem
    assert found.state == b"s"


def test_a_state_that_is_too_long_is_not_kept():
    found = question_of("m", [USER], 10, None, b"s" * 32769)
    assert (found.question, found.state) == (None, b"")
    assert "32769 bytes" in found.problem


@pytest.mark.parametrize(
    ("address", "header", "alias"),
    [
        ("mcp", {"command": "x", "sampling": "m"}, "m"),
        ("mcp", {"command": "x"}, ""),
        ("mcp", {"command": "x", "sampling": ["m"]}, ""),
        ("mcp", ["m"], ""),
        ("acp", {"command": "x", "sampling": "m"}, ""),
        ("tools.example.com:443", {"sampling": "m"}, ""),
    ],
)
def test_only_the_registration_of_a_server_that_speaks_mcp_names_a_model(address, header, alias):
    assert RegisteredServer("one", address, headers=(("mcp", json.dumps(header)),)).model == alias
    assert RegisteredServer("one", address, headers=(("mcp", "{"),)).model == ""
