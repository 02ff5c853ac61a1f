"""JSON Schema for answers: validates a schema, and describes what is wrong with an answer for its model.

`$ref` never fetches anything, and both have a time limit, patterns included: schemas come from clients and servers,
answers from models. Times are those that the thread works, so a busy host refuses no more than another one.
"""
# ruff: noqa: PLC0415

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from contextvars import ContextVar
from functools import cache, lru_cache
from typing import Any, Final

from turnwright_core.json_text import JsonObject, parse_json

SCHEMA_BYTES_MAX: Final = 64 * 1024
"""Maximum size of a schema, in bytes of UTF-8."""

SCHEMA_S_MAX: Final = 0.5
"""Time limit for looking at a schema, in seconds: one of 64 KiB takes 0.3 s unless it is mostly braces."""

ANSWER_S_MAX: Final = 0.5
"""Time limit for holding one answer against its schema, in seconds: patterns and references can take any time."""

_FENCED: Final = re.compile(r"```(?:json)?\s*\n(.*)\n```", re.DOTALL | re.IGNORECASE)

_REFERENCES: Final = ("$ref", "$dynamicRef")
_SAME_PLACE: Final = ("allOf", "oneOf", "anyOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose schemas apply to the same value as the schema that has them; of `anyOf` the first one always does."""
_DATA: Final = ("const", "default", "enum", "examples")
"""Keywords whose values are no schemas."""

PROBLEM_CHARS_MAX: Final = 500
"""Maximum length of the description of a problem, in code points."""
PLACE_CHARS_MAX: Final = 100
"""Of the path in it."""


def check_schema(text: str, seconds_max: float = SCHEMA_S_MAX) -> dict[str, Any]:
    """The JSON Schema in a text. Raises ValueError with a sentence for a text that is none or takes longer."""
    _begin(seconds_max)
    try:
        schema: dict[str, Any] = _compiled(text).schema
    except TimeoutError:
        raise ValueError("The schema takes too long to check: make it smaller, with fewer references") from None
    return schema


def answer_text(text: str) -> str:
    """An answer without the code fence that models like to put around JSON."""
    found = _FENCED.fullmatch(text.strip())
    return found[1] if found else text.strip()


def answer_problem(schema: str, answer: str, limit_s: float = ANSWER_S_MAX) -> str:
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
    return value_problem(schema, value, "answer", limit_s)


def value_problem(schema: str, value: object, what: str, limit_s: float = ANSWER_S_MAX) -> str:
    """What is wrong with a value of JSON, and where; empty if it matches the schema. `what` it is, in a word."""
    import regex
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable

    try:
        _begin(SCHEMA_S_MAX)
        compiled = _compiled(schema)
        _begin(limit_s)
        error = best_match(compiled.iter_errors(value))
    except TimeoutError:
        return f"The schema took too long on the {what}, with its patterns or references; write shorter texts."
    except RecursionError:
        return f"The {what} is nested too deeply."
    except (ValueError, TypeError, AttributeError, LookupError, Unresolvable, regex.error, ArithmeticError) as error:
        return f"The schema cannot be applied: {error}"[:PROBLEM_CHARS_MAX]
    return "" if error is None else _shortened(error.json_path, str(error.message), what)


def _shortened(place: str, message: str, what: str) -> str:
    # What is expected stands at the end, behind the value.
    room = PROBLEM_CHARS_MAX - PLACE_CHARS_MAX - 64
    if len(message) > room:
        message = f"{message[: room // 3]} ... {message[-(room * 2 // 3) :]}"
    return f"At {place[:PLACE_CHARS_MAX]} of the {what}: {message}"[:PROBLEM_CHARS_MAX]


@lru_cache(maxsize=512)
def _compiled(text: str) -> Any:
    """The compiled schema. Raises ValueError for an invalid one."""
    from jsonschema.exceptions import best_match
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    try:
        schema = parse_json(text)
        # Python's parser accepts NaN and Infinity, which are not JSON.
        written = json.dumps(schema, allow_nan=False)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"The schema is not JSON: {error}") from None
    if not isinstance(schema, dict):
        raise ValueError("The schema must be a JSON object")  # noqa: TRY004 - a text is what was given
    bounded, of_schemas = _bounded()
    try:
        schema = _of_one_draft(schema)
        wrong = best_match(of_schemas.iter_errors(schema))
        if wrong is not None:
            raise ValueError(f"It is not a JSON Schema, at {wrong.json_path}: {wrong.message}")
        _check_references(schema, Registry().resolver_with_root(DRAFT202012.create_resource(schema)), {})
    except RecursionError:
        raise ValueError("The schema is nested too deeply") from None
    if '"unevaluatedProperties"' in written and '"patternProperties"' in written:
        # The library would look for the patterns by itself, without an end.
        raise ValueError("It has `unevaluatedProperties` beside `patternProperties`: write `additionalProperties`")
    return bounded(schema, registry=Registry())


@cache
def _bounded() -> tuple[Any, Any]:
    """The library's class of validators, each keyword of which looks at the time, and the one for schemas."""
    from jsonschema import Draft202012Validator, FormatChecker
    from jsonschema.validators import extend
    from jsonschema_specifications import REGISTRY  # type: ignore[import-untyped]
    from referencing import Registry
    from referencing.jsonschema import DRAFT202012

    own = {
        "pattern": _pattern,
        "patternProperties": _pattern_properties,
        "additionalProperties": _additional_properties,
        "uniqueItems": _unique_items,
    }
    timed = {name: _in_time(check) for name, check in {**Draft202012Validator.VALIDATORS, **own}.items()}
    bounded = extend(Draft202012Validator, timed)  # type: ignore[no-untyped-call]
    known = ((uri, DRAFT202012.create_resource(_of_one_draft(REGISTRY.contents(uri)))) for uri in REGISTRY)
    of_schemas = bounded(
        _of_one_draft(bounded.META_SCHEMA),
        registry=Registry().with_resources(known),
        format_checker=FormatChecker(["regex"]),
    )
    return bounded, of_schemas


def _of_one_draft(schema: Any) -> Any:
    """A schema in which nothing names its draft: for what does, the library takes a class without limits."""
    if isinstance(schema, list):
        return [_of_one_draft(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {
        name: value if name in _DATA else _of_one_draft(value)
        for name, value in schema.items()
        if name != "$schema" or not isinstance(value, str)
    }


def _check_references(schema: Any, resolver: Any, known: dict[int, bool]) -> None:
    """Raises ValueError for a reference to what the schema does not have, or to itself without an end.

    Every answer would fail, not the schema. `known` has the schemas that were looked at, by identity, and whether they
    have come to their end.
    """
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    _left_s()
    if isinstance(schema, dict) and isinstance(schema.get("$id"), str):
        resolver = resolver.in_subresource(DRAFT202012.create_resource(schema))
    if isinstance(schema, dict):
        _check_end(schema, resolver, known)
    for name, value in schema.items() if isinstance(schema, dict) else enumerate(schema):
        if name in _REFERENCES and isinstance(value, str):
            try:
                resolver.lookup(value)
            except Unresolvable:
                raise ValueError(f"The schema has nothing at its {name} {value!r}, and nothing is fetched") from None
        elif isinstance(value, dict | list) and name not in _DATA:
            _check_references(value, resolver, known)


def _check_end(schema: JsonObject, resolver: Any, known: dict[int, bool]) -> None:
    """Raises ValueError for a schema that applies itself to the same value again: no answer comes to an end."""
    from referencing.exceptions import Unresolvable

    if (has_ended := known.get(id(schema))) is not None:
        if not has_ended:
            raise ValueError("The schema refers to itself without an end, with no property or item in between")
        return
    known[id(schema)] = False
    for name in _REFERENCES:
        if isinstance(target := schema.get(name), str):
            # What is not there is told by its name.
            with suppress(Unresolvable):
                found = resolver.lookup(target)
                if isinstance(found.contents, dict):
                    _check_end(found.contents, found.resolver, known)
    for name in _SAME_PLACE:
        inner = schema.get(name)
        many = inner if isinstance(inner, list) else inner.values() if name == "dependentSchemas" and inner else [inner]
        for one in [*many][:1] if name == "anyOf" else many:
            if isinstance(one, dict):
                _check_end(one, resolver, known)
    known[id(schema)] = True


_ends_s: Final[ContextVar[float]] = ContextVar("turnwright_schema_ends_s")
"""When what is looked at must have been, in the time of this thread."""


def countdown(seconds: float) -> Callable[[], float]:
    """What is left of so many seconds of this thread's time."""
    _bounded()
    ends_s = time.thread_time() + seconds
    return lambda: ends_s - time.thread_time()


def _begin(seconds: float) -> None:
    # Loading the library, once in a process, is no fault of a schema.
    _bounded()
    _ends_s.set(time.thread_time() + seconds)


def _left_s() -> float:
    """Seconds that are left. Raises TimeoutError."""
    left_s = _ends_s.get() - time.thread_time()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _in_time(keyword: Any) -> object:
    """The check of a keyword, while there is time: references double the work, alternatives multiply it."""

    def check(*given: object) -> Iterator[object]:
        _left_s()
        yield from keyword(*given) or ()

    return check


def _pattern(_validator: object, pattern: str, value: object, _schema: object) -> Iterator[object]:
    from jsonschema.exceptions import ValidationError

    if isinstance(value, str) and not _found(pattern, value):
        yield ValidationError(f"{value[:80]!r} does not match {pattern!r}")


def _pattern_properties(validator: Any, patterns: JsonObject, value: Any, _schema: object) -> Iterator[object]:
    for pattern, inner in patterns.items():
        for key in value if isinstance(value, dict) else ():
            if _found(pattern, key):
                yield from validator.descend(value[key], inner, path=key, schema_path=pattern)


def _additional_properties(validator: Any, wanted: object, value: Any, schema: JsonObject) -> Iterator[object]:
    """The library looks for patterns without an end, so it is given none: what they match is left out."""
    from jsonschema import Draft202012Validator

    patterns = schema.get("patternProperties")
    if patterns and isinstance(value, dict):
        value = {name: one for name, one in value.items() if not any(_found(pattern, name) for pattern in patterns)}
        schema = {name: one for name, one in schema.items() if name != "patternProperties"}
    yield from Draft202012Validator.VALIDATORS["additionalProperties"](validator, wanted, value, schema) or ()


def _unique_items(_validator: object, is_wanted: object, value: object, _schema: object) -> Iterator[object]:
    """The library compares each item with each other one."""
    from jsonschema.exceptions import ValidationError

    if is_wanted is True and isinstance(value, list):
        items = [json.dumps(_exact(item), sort_keys=True) for item in value]
        if len(set(items)) < len(items):
            yield ValidationError(f"{str(value)[:80]} has non-unique elements")


def _exact(value: object) -> object:
    """A value of JSON in which equal numbers are written alike: 1 and 1.0 are one number."""
    if isinstance(value, dict):
        return {name: _exact(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_exact(one) for one in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _found(pattern: str, text: str) -> bool:
    import regex

    return regex.search(pattern, text, timeout=_left_s()) is not None
