"""Questions of servers to people (elicitation), as proposals: what is shown, and what an answer means."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

import mcp_types as types

BODY_CHARS_MAX: Final = 60_000
_WORDS: Final = {"true": True, "yes": True, "false": False, "no": False}


class AnswerError(Exception):
    """An answer that does not fit; the text says what is wanted."""


def question_text(params: types.ElicitRequestParams, problem: str = "") -> str:
    """What whoever decides reads."""
    lines = [problem, params.message] if problem else [params.message]
    if isinstance(params, types.ElicitRequestURLParams):
        lines.append(f"Open {params.url}, and accept once you are done there.")
    elif fields := _fields(params):
        lines.append(_how(fields))
        lines += [f"* `{name}`{_about(about, name in _required(params))}" for name, about in fields.items()]
    return "\n".join(lines)[:BODY_CHARS_MAX]


def answer_of(params: types.ElicitRequestParams, comment: str) -> types.ElicitResult:
    """What the server gets for a comment. Raises AnswerError."""
    if isinstance(params, types.ElicitRequestURLParams):
        return types.ElicitResult(action="accept")
    fields = _fields(params)
    found = {name: about["default"] for name, about in fields.items() if "default" in about}
    found |= _given(fields, comment.strip())
    if missing := [name for name in _required(params) if name not in found]:
        raise AnswerError(f"The answer lacks {', '.join(missing)}. {_how(fields)}")
    return types.ElicitResult(action="accept", content=found)


def _given(fields: Mapping[str, Mapping[str, Any]], comment: str) -> dict[str, Any]:
    if not comment or not fields:
        return {}
    try:
        values = json.loads(comment)
    except ValueError:
        values = None
    if isinstance(values, dict):
        if unknown := values.keys() - fields.keys():
            raise AnswerError(f"The question has no {min(unknown)}. {_how(fields)}")
        return {name: _value(name, fields[name], value) for name, value in values.items()}
    if len(fields) > 1:
        raise AnswerError(_how(fields))
    [(name, about)] = fields.items()
    return {name: _value(name, about, comment)}


def _value(name: str, about: Mapping[str, Any], value: Any) -> Any:
    """A value of the field's type. Raises AnswerError."""
    kind = about.get("type", "string")
    try:
        if kind == "boolean" and isinstance(value, str):
            return _WORDS[value.lower()]
        if kind in ("integer", "number") and isinstance(value, str):
            value = int(value) if kind == "integer" else float(value)
    except (KeyError, ValueError):
        raise AnswerError(f"{name} is a {kind}, and {value[:100]!r} is none.") from None
    words, consts = about.get("enum"), about.get("oneOf")
    choices = words if isinstance(words, list) else []
    choices = choices or [
        one.get("const") for one in (consts if isinstance(consts, list) else ()) if isinstance(one, dict)
    ]
    if choices and value not in choices:
        raise AnswerError(f"{name} is one of {', '.join(map(str, choices))}.")
    return value


def _fields(params: types.ElicitRequestFormParams) -> dict[str, dict[str, Any]]:
    found = dict(params.requested_schema).get("properties")
    return {name: about for name, about in found.items() if isinstance(about, dict)} if isinstance(found, dict) else {}


def _required(params: types.ElicitRequestFormParams) -> list[str]:
    found = dict(params.requested_schema).get("required")
    return [name for name in found if isinstance(name, str)] if isinstance(found, list) else []


def _how(fields: Mapping[str, object]) -> str:
    if len(fields) == 1:
        return "Accept it with the answer as comment."
    return f"Accept it with a JSON object as comment that has {', '.join(fields)}."


def _about(about: Mapping[str, Any], is_required: bool) -> str:
    words = about.get("enum")
    kind = ", ".join(map(str, words[:32])) if isinstance(words, list) else str(about.get("type", ""))
    marks = ", ".join(filter(None, (kind, "required" if is_required else "")))
    text = about.get("description") or about.get("title") or ""
    return f" ({marks}){f': {text}' if text else ''}"
