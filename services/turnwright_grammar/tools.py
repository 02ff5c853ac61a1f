"""The tools the grammar knows, and how attributes and body share their arguments.

Attributes win; the body fills what is missing. A body that became an attribute is gone from the
body, so that `<get>a.js</get>` does not also filter by its own path.

Source: the seed's xml_parser ("Per-tool attr-vs-body resolution"), RU291, RU292.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from itertools import chain
from types import MappingProxyType

from msgspec import Struct, field
from msgspec.structs import replace

from turnwright_grammar.reply import Command

DEFAULT_TOOLS = frozenset(
    {"think", "get", "set", "env", "sh", "rm", "cp", "mv", "ask_user", "update", "search"}
    | {"skill", "set_plan", "update_plan", "get_plan", "delegate", "wait_agents"}
)
STATUS_DEFAULT = "102"
_LEADING_NUMBER = re.compile(r"\s*(-?\d+)")
_PATH = ("file_path", "filepath", "file", "filename", "uri")
_PLAN = ("id", "planId", "name")
_BODY = ("body", "content", "text")


class _Shape(Struct, frozen=True):
    """How one tool is made canonical.

    `filled` is the attribute that the body fills when it is missing; `synonyms` maps a canonical
    attribute to other names for it; `body_names` are attributes that stand for the body; `trimmed`
    says that white space around the body is removed; `defaults` complete the attributes.
    """

    filled: str | None = None
    synonyms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    body_names: tuple[str, ...] = ("body",)
    trimmed: bool = False
    defaults: Mapping[str, str] = field(default_factory=dict)

    def renamed(self, name: str) -> str:
        if name in self.body_names:
            return "body"
        return next((wanted for wanted, others in self.synonyms.items() if name in others), name)


_MOVE = _Shape(
    filled="to",
    synonyms={"path": ("from", "source", "src", *_PATH), "to": ("destination", "dest", "dst", "target")},
)
_RUN = _Shape(filled="command", synonyms={"command": ("cmd", "script")}, trimmed=True)
_SHAPES: Mapping[str, _Shape] = {
    "set": _Shape(synonyms={"path": _PATH}, body_names=_BODY),
    "get": _Shape(filled="path", synonyms={"path": _PATH}, trimmed=True),
    "rm": _Shape(filled="path", synonyms={"path": _PATH}, trimmed=True),
    "mv": _MOVE,
    "cp": _MOVE,
    "sh": _RUN,
    "env": _RUN,
    "skill": _Shape(filled="path", synonyms={"path": ("url", "name", *_PATH)}, trimmed=True),
    "search": _Shape(filled="path", synonyms={"path": ("query", "q")}, trimmed=True),
    "update": _Shape(body_names=(*_BODY, "message", "summary"), trimmed=True, defaults={"status": STATUS_DEFAULT}),
    "ask_user": _Shape(synonyms={"options": ("choices",)}, trimmed=True),
    "set_plan": _Shape(synonyms={"plan_id": _PLAN}, body_names=(*_BODY, "plan", "items"), trimmed=True),
    "update_plan": _Shape(synonyms={"plan_id": _PLAN}, body_names=(*_BODY, "note", "delta"), trimmed=True),
    "get_plan": _Shape(filled="plan_id", synonyms={"plan_id": _PLAN}, trimmed=True),
    "delegate": _Shape(synonyms={"name": ("id",)}, body_names=(*_BODY, "prompt", "task"), trimmed=True),
    "wait_agents": _Shape(filled="names", synonyms={"names": ("name", "agents", "ids")}, trimmed=True),
    "think": _Shape(body_names=(*_BODY, "thought"), trimmed=True),
}


def resolve(command: Command) -> Command:
    """Return `command` with canonical attributes and body; unknown tools come back unchanged.

    Never raises. Source: RU291, RU292.
    """
    if command.name not in _SHAPES or not command.known:
        return command
    attributes, body = canonicalize(command.name, dict(command.attributes), command.body)
    typed = tuple(_SHAPES[command.name].renamed(name) for name in command.json_names)
    return replace(
        command,
        attributes=MappingProxyType(attributes),
        body=body,
        json_names=tuple(dict.fromkeys(typed)),
        body_name="",
    )


def canonicalize(name: str, attributes: dict[str, str], body: str) -> tuple[dict[str, str], str]:
    """Return a known tool's attributes (changed in place) and body as `resolve` makes them."""
    shape = _SHAPES.get(name)
    if shape is None:
        return attributes, body
    for wanted, others in shape.synonyms.items():
        _rename_synonym(attributes, wanted, others)
    body = _body_of(shape, attributes, body)
    if shape.filled is not None and shape.filled not in attributes and body.strip():
        attributes[shape.filled], body = body.strip(), ""
    if name == "ask_user":
        body = _ask_user_body(attributes, body)
    if name == "search":
        _count_results(attributes)
    for missing, default in shape.defaults.items():
        attributes.setdefault(missing, default)
    return attributes, body


def takes_parameters(name: str, attributes: Collection[str], parameters: Collection[str]) -> bool:
    """Whether tags in the body of a tool are its parameters.

    One of them has to be, and what the body stands for must be missing: `<sh command="cat"><command>a</command></sh>`
    has a body, and so has the XML of a file. A plugin's tool, whose parameters are unknown here, takes any.
    """
    shape = _SHAPES.get(name, _Shape())
    filled = shape.filled or "path"
    if not {filled, *shape.synonyms.get(filled, ())}.isdisjoint(attributes):
        return False
    own = {shape.filled, *shape.synonyms, *chain(*shape.synonyms.values()), *shape.body_names, "question"}
    return name not in _SHAPES or not own.isdisjoint(parameters)


def canonical_attributes(name: str) -> frozenset[str]:
    """The attributes that a known tool's canonical commands can have, as far as the grammar makes them."""
    shape = _SHAPES[name]
    return frozenset({*shape.synonyms, *shape.defaults, *filter(None, [shape.filled])})


def _rename_synonym(attributes: dict[str, str], canonical: str, others: tuple[str, ...]) -> None:
    if canonical in attributes:
        return
    for other in others:
        if other in attributes:
            attributes[canonical] = attributes.pop(other)
            return


def _body_of(shape: _Shape, attributes: dict[str, str], body: str) -> str:
    if attributes.get("body"):
        body = attributes.pop("body")
    for name in shape.body_names:
        if name in attributes and not body.strip():
            body = attributes.pop(name)
    return body.strip() if shape.trimmed else body


def _ask_user_body(attributes: dict[str, str], body: str) -> str:
    """Without a question the body is the question; otherwise it lists the options."""
    for name in ("question", "options"):
        if not attributes.get(name) and body:
            attributes[name], body = body, ""
    return body


def _count_results(attributes: dict[str, str]) -> None:
    found = _LEADING_NUMBER.match(attributes.get("results", ""))
    if found:
        attributes["results"] = str(int(found[1]))
    else:
        attributes.pop("results", None)
