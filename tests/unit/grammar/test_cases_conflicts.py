"""Real replies with conflict blocks, and which sequences of markers are valid."""

import pytest

from cases import expect, params
from turnwright_grammar.edits.markers import parse_body
from turnwright_grammar.edits.operations import Edits
from turnwright_grammar.reader.parser import read_reply

SHELL_FENCE = "C25: a shell fence is no call, so the case's `sh` is not expected; its edits are"
DECIDED = {
    "aider_real_outputs-179": "roo_marker_sequence: two `=======` before a REPLACE are ambiguous and reported",
}


def edits_of(reply) -> list[tuple[str, str, str]]:
    found = []
    for command in reply.commands:
        edits = parse_body(command.body)
        assert isinstance(edits, Edits)
        found += [(command.attributes["path"], one.search, one.replace) for one in edits.operations]
    return found


@pytest.mark.parametrize("case", params("grammar/aider_real_outputs.jsonl"))
def test_conflict_blocks_with_a_file_name_are_edits(case):
    reply = read_reply(case["model_output"])
    if case["expected_commands"] is None:
        assert any(warning.kind.startswith("conflict") for warning in reply.warnings)
        return
    wanted = [
        (call["arguments"]["path"], *(call["arguments"][side].removesuffix("\n") for side in ("search", "replace")))
        for call in case["expected_commands"]
        if call["name"] == "set"  # SHELL_FENCE
    ]
    expect(case["id"], passed=edits_of(reply) == wanted, exceptions=DECIDED)


@pytest.mark.parametrize("case", params("grammar/roo_marker_sequence.jsonl"))
def test_a_broken_sequence_of_markers_is_reported(case):
    reply = read_reply("test.ts\n" + case["model_output"].removeprefix("test.ts\n"))
    valid = bool(reply.commands) and not reply.warnings
    expect(case["id"], passed=valid == case["expected_valid"], exceptions=DECIDED)
