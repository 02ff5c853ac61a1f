"""The corpora of edits: markers, matching, sed, and other tools' search and replace."""

import pytest

from cases import expect, params
from turnwright_grammar.edits.apply import EditConflict, EditResult, apply_edit
from turnwright_grammar.edits.markers import parse_body
from turnwright_grammar.edits.operations import Edits, EditSyntaxError
from turnwright_grammar.reader.parser import read_reply

from .marked import marker_body

AMBIGUOUS = "C37: a search that fits several places is a conflict"
CASE = "RU272: matching is fuzzy on whitespace only, not on letter case"
KEPT = "the point of an edit: lines that it does not change stay as the text has them"
DECIDED = {
    "edit-024": "C21: APPENDIX is no keyword",
    "match-002": AMBIGUOUS,
    "aider_editblock-001": AMBIGUOUS,
    "roo_multi_search_replace-024": AMBIGUOUS,
    "continue_find_replace-078": AMBIGUOUS,
    "continue_find_replace-076": "C57: a blank line at an end of a search is a line, and not the end of the line before",
    "continue_find_replace-022": KEPT,
    "match-006": KEPT,
    "continue_find_replace-046": CASE,
    "continue_find_replace-050": CASE,
    "continue_find_replace-051": CASE,
    "continue_find_replace-031": "rummy match-009, match-010: an empty search appends",
    "codex_apply_patch_port-010": "codex_apply_patch_port-012: a text without a newline at its end gets none",
}


def as_case(operation) -> dict:
    if operation.kind == "search_replace":
        return {"op": operation.kind, "search": operation.search, "replace": operation.replace}
    return {"op": operation.kind, "content": operation.content}


def parses_as(expected: dict, body: str) -> bool:
    edits = parse_body(body)
    if "error" in expected:
        return isinstance(edits, EditSyntaxError)
    assert isinstance(edits, Edits)
    return [as_case(one) for one in edits.operations] == expected["ops"] and edits.marked == expected.get(
        "markers", True
    )


def applies_as(expected: dict, result) -> bool:
    if expected.get("conflict"):
        return isinstance(result, EditConflict)
    if "contains" in expected:
        return expected["contains"] in result.text
    return (result.text, result.created) == (expected["body"], expected.get("created", False))


@pytest.mark.parametrize("case", params("rummy/edit_markers_spec.jsonl"))
def test_markers_mean_what_the_cases_say(case):
    request, expected = case["input"], case["expected"]
    if request["fn"] == "parse":
        passed = parses_as(expected, request["body"])
    else:
        passed = applies_as(expected, apply_edit(request["body"], request["edit"]))
    expect(case["id"], passed=passed, exceptions=DECIDED)


@pytest.mark.parametrize("case", params("rummy/matcher.jsonl"))
def test_regions_are_found_as_the_cases_say(case):
    request, expected = case["input"], case["expected"]
    result = apply_edit(request["body"], marker_body([(request["search"], request["replace"])]))
    passed = (
        isinstance(result, EditConflict)
        if expected["error"]
        else result == EditResult(expected["new_content"], notes=getattr(result, "notes", ()))
    )
    expect(case["id"], passed=passed, exceptions=DECIDED)


@pytest.mark.parametrize("case", params("rummy/xml_sed_ambiguous.jsonl"))
def test_sed_reads_as_the_cases_say(case):
    (command,) = read_reply(case["input"]["content"]).commands
    edits = parse_body(command.body)
    seen = {
        f"commands.0.blocks.{n}.{side}": getattr(one, side)
        for n, one in enumerate(edits.operations)
        for side in ("search", "replace")
    }
    seen |= {f"commands.0.{side}": getattr(edits.operations[0], side) for side in ("search", "replace")}
    for check in case["expected"]["checks"]:
        assert seen[check["at"]] == check["eq"] if "eq" in check else len(edits.operations) == check["len"]


OTHER_FORMS = {
    "roo_multi_search_replace-024": AMBIGUOUS,
    "roo_multi_search_replace-037": "the block of the case begins its replacement with a line more than the result",
}


def body_of(case: dict) -> str:
    edits = case["edits"]
    if any(one.get("replace_all") for one in edits):
        # Every occurrence is sed's `g` with us.
        return " ".join(f"s|{one['search']}|{one['replace']}|g" for one in edits)
    return marker_body([(one["search"], one["replace"]) for one in edits])


@pytest.mark.parametrize(
    "case",
    params(
        "edits/aider_editblock.jsonl",
        "edits/codex_apply_patch_port.jsonl",
        "edits/continue_find_replace.jsonl",
        "edits/roo_multi_search_replace.jsonl",
    ),
)
def test_other_tools_edits_apply_as_the_cases_say(case):
    result = apply_edit(case["original"], body_of(case))
    if case["expected"] is None:
        passed = isinstance(result, EditConflict)
    else:
        passed = isinstance(result, EditResult) and result.text == case["expected"]
    expect(case["id"], passed=passed, exceptions=DECIDED)


@pytest.mark.parametrize("case", params("edits/roo_multi_search_replace.jsonl"))
def test_conflict_blocks_apply_as_the_cases_say(case):
    result = apply_edit(case["original"], case["raw_diff"])
    passed = isinstance(result, EditResult) and result.text == case["expected"]
    expect(case["id"], passed=passed, exceptions=OTHER_FORMS)


@pytest.mark.parametrize("case", params("edits/codex_apply_patch_port.jsonl"))
def test_patches_apply_as_the_cases_say(case):
    result = apply_edit(
        case["original"], "\n".join(["*** Begin Patch", "*** Update File: f", *hunks(case), "*** End Patch"])
    )
    if case["expected"] is None:
        passed = isinstance(result, EditConflict)
    else:
        passed = isinstance(result, EditResult) and result.text == case["expected"]
    expect(case["id"], passed=passed, exceptions=DECIDED)


def hunks(case: dict) -> list[str]:
    lines = []
    for edit in case["edits"]:
        lines.append(f"@@ {edit['context']}" if edit.get("context") else "@@")
        lines += ["-" + line for line in edit["search"].removesuffix("\n").split("\n") if edit["search"]]
        lines += ["+" + line for line in edit["replace"].removesuffix("\n").split("\n")]
        lines += ["*** End of File"] if edit.get("eof") else []
    return lines
