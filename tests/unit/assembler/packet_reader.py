"""Reads a packet as a careful model would: tags line by line, and everything between two sentinels as one text."""

import html
import re
from dataclasses import dataclass, field

TAG = re.compile(r"<(?P<close>/?)(?P<name>[A-Za-z_][\w.-]*)(?P<attributes>(?: [\w.-]+=\"[^\"<>]*\")*)(?P<empty>/?)>")
ATTRIBUTE = re.compile(r" ([\w.-]+)=\"([^\"]*)\"")


@dataclass
class Node:
    name: str
    attributes: dict[str, str]
    children: list["Node"] = field(default_factory=list)
    body: str = ""
    """Content: what stands between `<<:::` and `:::`."""
    order: str = ""
    """What the model must obey."""
    text: str = ""


def read_packet(text: str) -> list[Node]:
    """The sections of a user message. Raises AssertionError where its structure is broken."""
    root = Node("", {})
    stack = [root]
    lines = iter(text.removesuffix("\n").split("\n"))
    for line in lines:
        if line.startswith("<<:::"):
            stack[-1].body = read_body(lines, line[2:])
            continue
        if line.startswith("<<!!!"):
            stack[-1].order = read_body(lines, line[2:])
            continue
        tag = TAG.fullmatch(line)
        if tag is None:
            assert len(stack) > 1, f"text outside of every section: {line!r}"
            stack[-1].text += line + "\n"
        elif tag["close"]:
            assert stack.pop().name == tag["name"], f"{line!r} closes something else"
        else:
            attributes = {key: html.unescape(value) for key, value in ATTRIBUTE.findall(tag["attributes"])}
            node = Node(tag["name"], attributes)
            stack[-1].children.append(node)
            if not tag["empty"]:
                stack.append(node)
    assert stack == [root], f"{stack[-1].name} is not closed"
    return root.children


def read_body(lines, mark: str) -> str:
    body = []
    for line in lines:
        if line == mark:
            return "\n".join(body)
        body.append(line)
    raise AssertionError(f"{mark!r} is never closed")


def section(text: str, name: str) -> Node:
    [found] = [node for node in read_packet(text) if node.name == name]
    return found


def names(text: str) -> list[str]:
    return [node.name for node in read_packet(text)]


def paths(text: str, name: str) -> list[str]:
    return [node.attributes["path"] for node in section(text, name).children]
