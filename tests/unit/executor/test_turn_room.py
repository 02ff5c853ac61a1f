"""When an executor asks whether what a turn brought fits. Row RU142."""

import pytest
from turnwright_values.types import Cursor

from turnwright_executor.domain.addresses import RunAddress
from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.turn.model_call import ModelCallRecord
from turnwright_executor.turn.turn_budget import may_exceed
from turnwright_executor.turn.write_buffer import WriteBuffer
from turnwright_grammar.reply import Command


@pytest.mark.parametrize("was_passed", [False, True])
def test_it_asks_after_something_was_written_that_did_not_come_by_its_buffer(was_passed):
    buffer = WriteBuffer(None, RunAddress("p", "r"), 1, 1, 1)
    record = CommandRecord("log://turn_1/set_plan/main", "set_plan", "main", Command("set_plan"))
    if was_passed:
        buffer.bypassed(Cursor("i", 1, 0, 0))
    note = ModelCallRecord(room_chars=100_000)
    assert may_exceed(note, [record], buffer.footprint, is_left=False) is was_passed
