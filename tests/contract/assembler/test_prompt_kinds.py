"""For which model calls plugins edit prompts: the kinds that they ask for, and none where no settings come. OM35, OM36."""

import pytest
from turnwright.types.v1 import turn_pb2

from contract.assembler.stack import at, part
from contract.assembler.test_plugins import PROMPT, assembling
from turnwright_kit.settings import SettingsError

pytestmark = pytest.mark.asyncio

assert assembling

EDITORS = """
def register(registry):
    for kinds in (["primary"], ["compaction"], ["title"], ["primary", "title"]):
        registry.prompt(lambda prompt, context, kinds=kinds: prompt.append("user", f"{kinds} {context.kind}"), kinds)
"""
KINDS = {
    turn_pb2.REQUEST_KIND_UNSPECIFIED: ["['primary'] primary", "['primary', 'title'] primary"],
    turn_pb2.REQUEST_KIND_PRIMARY: ["['primary'] primary", "['primary', 'title'] primary"],
    turn_pb2.REQUEST_KIND_COMPACTION: ["['compaction'] compaction"],
    turn_pb2.REQUEST_KIND_TITLE: ["['title'] title", "['primary', 'title'] title"],
}


async def test_a_plugin_is_called_for_the_kinds_that_it_asks_for(store, assembling, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_PROMPT", "guard:register")
    async with assembling(EDITORS, prompt="guard:register") as client:
        store.says(part(PROMPT, cursor=at(1)))
        plain = await client.assemble()
        told = {}
        for kind in KINDS:
            store.says(part(cursor=at(1)))
            answer = await client.assemble(request=turn_pb2.TurnRequest(kind=kind))
            told[kind] = [edit.append.parts[0].text for edit in answer.report.edits]
            assert answer.report.edit_tokens == answer.report.tokens - plain.report.tokens
    assert told == KINDS
    assert list(plain.report.edits) == []


@pytest.mark.parametrize("kinds", ['"primary"', "[]", '["later"]'])
async def test_kinds_that_there_are_not_end_the_start(assembling, kinds):
    text = f"def register(registry):\n    registry.prompt(print, {kinds})\n"
    with pytest.raises(SettingsError, match="are not kinds of model calls: list some of primary, compaction, title"):
        async with assembling(text, prompt="guard:register"):
            pass
