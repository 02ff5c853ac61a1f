import json

import pytest

from turnwright_assembler.domain.envelope import RESERVED
from turnwright_assembler.sections.registry import SectionRegistry
from turnwright_assembler.sections.system import render_system

DOCS = {"get": "## get\n\nReads.", "set": "## set\n\nWrites [%TOOLS%].", "sh": "## sh"}
BRIEF = {"tools": ["get"], "tool_docs": DOCS, "brief": True}


# RU181, RU196, RU198
def test_tools_and_their_texts_stand_in_their_order():
    text = render_system({"persona": None, "tools": ["get", "set"], "tool_docs": DOCS})
    assert "Tools of this turn: get, set\n\n## get\n\nReads.\n\n## set\n\nWrites [%TOOLS%]." in text
    assert "## sh" not in text
    assert "[%TOOLDOCS%]" not in text


def test_a_tool_without_a_text_is_listed_all_the_same():
    text = render_system({"tools": ["get", "mine"], "tool_docs": {"get": "## get"}})
    assert "Tools of this turn: get, mine\n\n## get\n\n" in text


# RU181
def test_the_persona_ends_the_message_and_a_missing_one_is_the_built_in():
    own = render_system({"persona": "You are Ada.\n", "tools": []})
    assert own.endswith("\n\nYou are Ada.")
    for persona in (None, 7):
        built_in = render_system({"persona": persona, "tools": []})
        assert built_in.split("\n\n# Persona\n\n")[1].startswith("You are a careful engineer")
    assert "# Persona" not in own


# RU181, C31
def test_the_same_tools_and_persona_give_the_same_bytes():
    attributes = {"persona": "p", "tools": ["get", "set"], "tool_docs": DOCS}
    other_order = {"tool_docs": dict(reversed(DOCS.items())), "tools": ["get", "set"], "persona": "p", "more": 1}
    assert render_system(attributes) == render_system(other_order)
    assert render_system(attributes) != render_system(attributes | {"tools": ["set", "get"]})


def test_attributes_of_unknown_shape_count_as_absent():
    assert render_system({"tools": "get", "tool_docs": [1]}) == render_system({})


def test_what_utf8_cannot_hold_does_not_reach_the_message():
    attributes = json.loads(r'{"persona": "a\ud800b"}')
    assert render_system(attributes).encode().endswith(b"a?b")


# The model is taught the grammar that the parser reads, in RFC 2119 words.
def test_the_instructions_teach_commands_markers_and_the_end_of_a_turn():
    text = render_system({})
    for word in ("MUST", "MUST NOT", "SHOULD", "RFC 2119", "<<SEARCH", "<<REPLACE", "<<APPEND1", "visibility="):
        assert word in text
    for status in (102, 200, 204, 422):
        assert f'<update status="{status}">' in text


# RU181: what a small window leaves out is said elsewhere, or twice.
def test_brief_instructions_teach_the_same_rules_in_less_room():
    whole, brief = render_system({"tools": ["get"], "tool_docs": DOCS}), render_system(BRIEF)
    assert len(brief) < 0.7 * len(whole)
    assert "Tools of this turn: get\n\n## get\n\nReads.\n\n# Persona" in brief
    for word in ("MUST NOT", "RFC 2119", "SEARCH", "REPLACE", "<<APPEND1", "known://", "unknown://", "<<:::path"):
        assert (word in brief, word in whole) == (True, True)
    for status in (102, 200, 204, 422):
        assert f'<update status="{status}">' in brief
    # Two sections say themselves what they are.
    assert all(f"`<{tag}>`" in brief for tag in RESERVED - {"instructions", "project-instructions"})


@pytest.mark.parametrize("brief", [False, None, 1, "true"])
def test_only_what_is_brief_is_brief(brief):
    assert render_system(BRIEF | {"brief": brief}) == render_system({"tools": ["get"], "tool_docs": DOCS})


# RU182
def test_nobody_filters_the_system_message_unless_a_plugin_does():
    assert SectionRegistry().packet_plugins(()).system_filters == ()
