"""When an executor asks whether what a turn brought fits. Row RU142."""

import pytest

from turnwright_executor.domain.command_record import CommandRecord
from turnwright_executor.domain.footprint import Footprint
from turnwright_executor.turn.model_call import ModelCallRecord
from turnwright_executor.turn.turn_budget import may_exceed
from turnwright_grammar import Command


@pytest.mark.parametrize(("tool", "asks"), [("get", False), ("set_plan", True), ("update_plan", True)])
def test_it_asks_after_a_plan_was_written_which_is_no_write_that_it_knows(tool, asks):
    record = CommandRecord(f"log://turn_1/{tool}/main", tool, "main", Command(tool))
    assert may_exceed(ModelCallRecord(room_chars=100_000), [record], Footprint(), is_left=False) is asks
