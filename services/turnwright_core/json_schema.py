"""JSON Schema for answers: validates a schema, and describes what is wrong with an answer for its model.

`$ref` never fetches anything, and patterns have a time limit: schemas come from clients, answers from models.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from turnwright_core.json_text import parse_json

SCHEMA_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a schema, in bytes of UTF-8."""

PATTERN_TIMEOUT_S: Final = 0.2
"""Time limit for matching one pattern against one text, in seconds."""

_FENCED: Final = re.compile(r"```(?:json)?\s*\n(.*)\n```", re.DOTALL | re.IGNORECASE)

_REFERENCES: Final = ("$ref", "$dynamicRef")
_DATA: Final = ("const", "default", "enum", "examples")
"""Keywords whose values are no schemas."""

PROBLEM_CHARS_MAX: Final = 500
"""Maximum length of the description of a problem, in code points."""


def check_schema(text: str) -> None:
    """Raise ValueError with a sentence for a text that is not a JSON Schema of type object."""
    _compiled(text)


def answer_text(text: str) -> str:
    """An answer without the code fence that models like to put around JSON."""
    found = _FENCED.fullmatch(text.strip())
    return found[1] if found else text.strip()


def answer_problem(schema: str, answer: str) -> str:
    """What is wrong with an answer; empty if it is JSON that matches the schema. An empty schema takes any object."""
    try:
        value = parse_json(answer)
        # Python's parser accepts NaN and Infinity, which are not JSON.
        json.dumps(value, allow_nan=False)
    except ValueError as error:
        return f"The answer must be JSON and nothing else: {error}."
    except RecursionError:
        return "The answer is nested too deeply."
    if not schema:
        return "" if isinstance(value, dict) else "The answer must be a JSON object."
    return _first_error(schema, value)[:PROBLEM_CHARS_MAX]


def _first_error(schema: str, value: Any) -> str:
    import regex
    from jsonschema.exceptions import best_match

    try:
        error = best_match(_compiled(schema).iter_errors(value))
    except TimeoutError:
        return "A pattern of the schema took too long on the answer; write shorter texts."
    except RecursionError:
        return "The answer is nested too deeply."
    except (ValueError, regex.error, ArithmeticError) as error:
        return f"The schema cannot be applied: {error}"
    return "" if error is None else f"At {error.json_path} of the answer: {error.message}"


@lru_cache(maxsize=64)
def _compiled(text: str) -> Any:
    """The compiled schema. Raises ValueError for an invalid one."""
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import SchemaError
    from jsonschema.validators import extend
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    try:
        schema = parse_json(text)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The schema is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError("The schema must be a JSON object")  # noqa: TRY004 - a text is what was given
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError) as error:
        raise ValueError(f"It is not a JSON Schema: {getattr(error, 'message', error)}") from None
    _check_references(schema, Registry().resolver_with_root(DRAFT202012.create_resource(schema)))
    bounded = extend(  # type: ignore[no-untyped-call]
        Draft202012Validator, {"pattern": _pattern, "patternProperties": _pattern_properties}
    )
    return bounded(schema, registry=Registry())


def _check_references(schema: Any, resolver: Any) -> None:
    """Raises ValueError for a reference to what the schema does not have: every answer would fail, not the schema."""
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
        resolver = resolver.in_subresource(DRAFT202012.create_resource(schema))
    for name, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if name in _REFERENCES and isinstance(value, str):
            try:
                resolver.lookup(value)
            except Unresolvable:
                raise ValueError(f"The schema has nothing at its {name} {value!r}, and nothing is fetched") from None
        elif isinstance(value, dict | list) and name not in _DATA:
            _check_references(value, resolver)


def _pattern(_validator: Any, pattern: str, value: Any, _schema: Any) -> Iterator[Any]:
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and not _found(pattern, value):
        yield ValidationError(f"{value[:80]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: dict[str, Any], value: Any, _schema: Any) -> Iterator[Any]:
    for pattern, inner in patterns.items():
        for key in value if isinstance(value, dict) else ():
            if _found(pattern, key):
                yield from validator.descend(value[key], inner, path=key, schema_path=pattern)


def _found(pattern: str, text: str) -> bool:
    import regex

    return regex.search(pattern, text, timeout=PATTERN_TIMEOUT_S) is not None
