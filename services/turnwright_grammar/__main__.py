"""`python -m turnwright_grammar [read | edit | match] [--lines]`: the grammar on standard input.

| verb | reads | prints |
|---|---|---|
| (none), `read` | a reply; `{"text": reply}` with `--lines` | commands, warnings, narration |
| `edit` | `{"original", "body"}`, and `"path"` if known | `{"result"}` or `{"conflict"}` |
| `match` | `{"mode", "pattern", "string", "replacement"}` | `{"result"}` or `{"error"}` |

One JSON object is printed, or one a line with `--lines`. Input that is not as described prints
`{"error"}` and makes the exit status 1.

Source: architecture section 15.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

from turnwright_core.json_text import JsonObject
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.matching import match, replace, search
from turnwright_grammar.edits.apply import EditResult, apply_edit
from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.reply import Reply


class InputError(ValueError):
    """The input is not what the verb reads."""


def main(arguments: list[str] | None = None) -> int:
    """Run one verb over standard input; return the exit status (0, or 1 after bad input)."""
    parser = argparse.ArgumentParser(prog="python -m turnwright_grammar", description="Read replies, apply edits.")
    parser.add_argument("verb", nargs="?", choices=("read", "edit", "match"), default="read")
    parser.add_argument("--lines", action="store_true", help="reads and writes one JSON object per line")
    options = parser.parse_args(arguments)
    for stream in (sys.stdin, sys.stdout):
        if hasattr(stream, "reconfigure"):
            # Surrogates stand for bytes that are not UTF-8: they must neither stop the reading nor the printing.
            stream.reconfigure(encoding="utf-8", errors="surrogateescape" if stream is sys.stdin else "replace")
    return run(options.verb, sys.stdin, sys.stdout, lines=options.lines)


def run(verb: str, source: TextIO, target: TextIO, *, lines: bool) -> int:
    """Answer each input of `source` on `target`; return the exit status."""
    failed = False
    for text in _inputs(source, lines=lines):
        try:
            answer = _answered(verb, text, lines=lines)
        except InputError as error:
            answer, failed = {"error": str(error)}, True
        target.write(json.dumps(answer, ensure_ascii=False) + "\n")
    return 1 if failed else 0


def _inputs(source: TextIO, *, lines: bool) -> Iterable[str]:
    if lines:
        return (line for line in source if line.strip())
    return (source.read(),)


def _answered(verb: str, text: str, *, lines: bool) -> JsonObject:
    if verb == "read":
        return reply_as_json(read_reply(_field(_object(text), "text") if lines else text))
    return _VERBS[verb](_object(text))


def reply_as_json(reply: Reply) -> JsonObject:
    commands = [
        {
            "name": command.name,
            "attributes": dict(command.attributes),
            "body": command.body,
            "span": list(command.span),
            "known": command.known,
        }
        for command in reply.commands
    ]
    warnings = [{"kind": warning.kind, "span": list(warning.span)} for warning in reply.warnings]
    return {"commands": commands, "warnings": warnings, "narration": reply.narration}


def _edit(request: Mapping[str, object]) -> JsonObject:
    original = None if request.get("original") is None else _field(request, "original")
    path = None if request.get("path") is None else _field(request, "path")
    result = apply_edit(original, _field(request, "body"), path=path)
    return {"result": result.text} if isinstance(result, EditResult) else {"conflict": result.message}


def _match(request: Mapping[str, object]) -> JsonObject:
    mode, pattern = _field(request, "mode"), _field(request, "pattern")
    string = None if request.get("string") is None else _field(request, "string")
    try:
        if mode == "match":
            return {"result": match(pattern, string)}
        if mode == "search":
            return {"result": search(pattern, string)}
        if mode == "replace":
            return {"result": replace(pattern, _field(request, "replacement"), string or "")}
    except PatternError as error:
        return {"error": str(error)}
    raise InputError(f"unknown mode {mode!r}: match, search or replace")


_VERBS: Mapping[str, Callable[[Mapping[str, object]], JsonObject]] = {"edit": _edit, "match": _match}


def _object(text: str) -> Mapping[str, object]:
    try:
        value = json.loads(text, strict=False)
    except (ValueError, RecursionError) as error:
        raise InputError(f"not JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError("not a JSON object")
    return value


def _field(request: Mapping[str, object], name: str) -> str:
    value = request.get(name)
    if not isinstance(value, str):
        raise InputError(f"{name!r} must be a string")
    return value


if __name__ == "__main__":
    sys.exit(main())
