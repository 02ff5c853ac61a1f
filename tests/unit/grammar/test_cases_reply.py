"""The corpora of replies: the reader must see the calls that their authors meant."""

import json

import pytest

from cases import expect, params
from turnwright_grammar.reader.parser import read_reply

NOT_SCHEMAS = "the grammar does not know the origin's aliases of tools"
DECIDED = {
    "sglang_detectors-007": "RU285: a call without a name; the origin knows that only one tool was offered",
    "vllm_tool_parsers-019": "RU284: the second call is not dropped",
    "vllm_tool_parsers-033": "RU284: a shell command that the end cut off is reported, not run",
    "vllm_tool_parsers-247": "RU284: a call without a name or arguments is reported",
    "vllm_tool_parsers-280": "architecture 15: names are returned as written",
    "vllm_tool_parsers-338": NOT_SCHEMAS,
    "vllm_tool_parsers-340": NOT_SCHEMAS,
}
# The origin refuses what its request did not offer; architecture 15 returns it, and says that it is unknown.
REFUSED_BY_ORIGIN = {
    "sglang_detectors-047",
    "sglang_detectors-110",
    "vllm_tool_parsers-266",
    "vllm_tool_parsers-328",
    "vllm_tool_parsers-329",
    "vllm_tool_parsers-334",
}


def at(value, path: str):
    for step in path.split("."):
        if isinstance(value, list):
            value = value[int(step)] if int(step) < len(value) else None
        else:
            value = value.get(step) if isinstance(value, dict) else None
    return value


def holds(check: dict, seen: dict) -> bool:
    value = at(seen, check["at"])
    verdicts = {
        "eq": lambda wanted: value == wanted,
        "eq_int": lambda wanted: int(value) == wanted,
        "len": lambda wanted: len(value) == wanted,
        "contains": lambda wanted: wanted in value,
        "some_contains_any": lambda wanted: any(word in item for item in value for word in wanted),
        "present": lambda _: value is not None,
        "absent": lambda _: value is None,
    }
    return all(verdicts[name](wanted) for name, wanted in check.items() if name != "at")


@pytest.mark.parametrize("case", params("rummy/xml_parser.jsonl", "rummy/xml_parser_spec.jsonl"))
def test_our_own_tags_read_as_the_cases_say(case):
    reply = read_reply(case["input"]["content"])
    seen = {
        "commands": [{**one.attributes, "name": one.name, "body": one.body} for one in reply.commands],
        "warnings": [warning.message for warning in reply.warnings],
        "unparsed": reply.narration,
    }
    assert all(holds(check, seen) for check in case["expected"]["checks"]), seen


def loose(value):
    """Compare arguments as attributes hold them: as text, numbers and booleans by their JSON."""
    if isinstance(value, str):
        try:
            decoded = json.loads({"True": "true", "False": "false"}.get(value, value))
        except ValueError:
            return value
        return value if isinstance(decoded, str) else loose(decoded)
    if isinstance(value, dict):
        return {key: loose(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [loose(item) for item in value]
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else value


def same_call(command, expected: dict, *, partly: bool = False) -> bool:
    wanted = {key: loose(value) for key, value in expected["arguments"].items() if value is not None}
    seen = {key: loose(value) for key, value in command.attributes.items()}
    for name in ("content", "body"):
        if name in wanted and name not in seen:
            seen[name] = loose(command.body)
    if command.name == "search" and "query" in wanted:
        wanted["path"] = wanted.pop("query")
    if partly:
        seen = {key: seen.get(key) for key in wanted}
    return command.name == expected["name"] and seen == wanted


def agrees(case: dict, commands) -> bool:
    if case["id"] in REFUSED_BY_ORIGIN:
        return case["expected_commands"] == [] and [one.known for one in commands] == [False]
    if case.get("expected_commands") is not None:
        expected = case["expected_commands"]
        return len(commands) == len(expected) and all(map(same_call, commands, expected))
    if "expected_subset" in case:
        expected = case["expected_subset"]
        return len(commands) >= len(expected) and all(
            same_call(one, wanted, partly=True) for one, wanted in zip(commands, expected, strict=False)
        )
    if "expected_names" in case:
        return [one.name for one in commands] == case["expected_names"]
    return "expected_count" not in case or len(commands) == case["expected_count"]


@pytest.mark.parametrize(
    "case",
    params(
        "grammar/native_formats_renamed.jsonl",
        "grammar/sglang_detectors.jsonl",
        "grammar/vllm_tool_parsers.jsonl",
        "grammar/roo_xml.jsonl",
    ),
)
def test_calls_in_vendors_formats_read_as_the_cases_say(case):
    reply = read_reply(case["model_output"])
    expect(case["id"], passed=agrees(case, reply.commands), exceptions=DECIDED)


@pytest.mark.parametrize("case", params("grammar/vllm_tool_parsers.jsonl", "grammar/roo_xml.jsonl"))
def test_the_narration_keeps_what_was_said(case):
    said = case.get("expected_content") or ""
    narration = "".join(read_reply(case["model_output"]).narration.split())
    assert "".join(said.split()) in narration or "</think>" in case["model_output"]
