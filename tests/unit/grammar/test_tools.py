"""Facts about canonical attributes, and about native calls."""

import pytest

from turnwright_grammar.native import commands_from_call
from turnwright_grammar.reply import Command
from turnwright_grammar.tools import resolve


@pytest.mark.parametrize(
    ("name", "attributes", "body", "resolved", "rest"),
    [
        ("get", {}, "a\n", {"path": "a"}, ""),
        ("get", {"path": "a"}, "filter", {"path": "a"}, "filter"),
        ("get", {"path": "a", "line": "3"}, "", {"path": "a", "line": "3"}, ""),
        ("rm", {}, "a", {"path": "a"}, ""),
        ("mv", {"path": "a", "visibility": "archived"}, "b", {"path": "a", "to": "b", "visibility": "archived"}, ""),
        ("cp", {"from": "a", "to": "b"}, "", {"path": "a", "to": "b"}, ""),
        ("sh", {}, "\nls\n", {"command": "ls"}, ""),
        ("env", {"command": "ls"}, "", {"command": "ls"}, ""),
        ("search", {"results": "5 pages"}, "q", {"path": "q", "results": "5"}, ""),
        ("search", {"query": "q", "results": "many"}, "", {"path": "q"}, ""),
        ("update", {}, " done\n", {"status": "102"}, "done"),
        ("update", {"status": "200", "body": "x"}, "y", {"status": "200"}, "x"),
        ("ask_user", {}, "Which?", {"question": "Which?"}, ""),
        ("ask_user", {"question": "Which?"}, "a, b", {"question": "Which?", "options": "a, b"}, ""),
        ("set", {"path": "a", "content": "x\n"}, "", {"path": "a"}, "x\n"),
        ("set", {"path": "a"}, "\n x \n", {"path": "a"}, "\n x \n"),
        ("think", {"thought": "t"}, "", {}, "t"),
        ("skill", {}, " guide ", {"path": "guide"}, ""),
        ("skill", {"url": "https://e.org/a.zip"}, "", {"path": "https://e.org/a.zip"}, ""),
        ("a_plugins", {"x": "1"}, " b ", {"x": "1"}, " b "),
        ("get_plan", {"x": "1"}, " b ", {"x": "1", "plan_id": "b"}, ""),
        ("set_plan", {"id": "p", "content": " b "}, "", {"plan_id": "p"}, "b"),
        ("update_plan", {"note": "n"}, "", {}, "n"),
    ],
)
def test_attributes_win_and_the_body_fills(name, attributes, body, resolved, rest):
    command = resolve(Command(name, attributes, body))
    assert (dict(command.attributes), command.body) == (resolved, rest)


def test_an_unknown_tool_is_left_alone():
    command = Command("update", {}, " x ", known=False)
    assert resolve(command) is command


def test_resolving_twice_changes_nothing():
    once = resolve(Command("get", {}, "a"))
    assert resolve(once) == once


@pytest.mark.parametrize(
    ("arguments", "attributes", "body", "kinds"),
    [
        (None, {}, "", []),
        ("", {}, "", []),
        ("null", {}, "", []),
        ("{}", {}, "", []),
        ('{"path": "a", "content": "x", "n": 1, "none": null}', {"path": "a", "n": "1"}, "x", []),
        ('{"path": "a", "deep": {"b": [1, true]}}', {"path": "a", "deep": '{"b":[1,true]}'}, "", []),
        ("{'path': 'a',}", {"path": "a"}, "", ["arguments_repaired"]),
        ('{"path": "a', {"path": "a"}, "", ["arguments_cut"]),
        ("12", {}, "", ["arguments_unreadable"]),
        ("}", {}, "", ["arguments_unreadable"]),
        ('"{\\"path\\": \\"a\\"}"', {"path": "a"}, "", []),
        ('[{"path": "a"}]', {"path": "a"}, "", []),
    ],
)
def test_native_arguments_become_attributes_and_body(arguments, attributes, body, kinds):
    (command, *_), warnings = commands_from_call("functions.set", arguments)
    assert (command.name, dict(command.attributes), command.body) == ("set", attributes, body)
    assert [warning.kind for warning in warnings] == kinds


def test_a_native_call_of_an_unknown_tool_is_unknown():
    (command, *_), _ = commands_from_call("Linter", '{"query": "x"}')
    assert (command.name, dict(command.attributes), command.known) == ("Linter", {"query": "x"}, False)
