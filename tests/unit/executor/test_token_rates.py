"""By what the estimate for a packet is multiplied. Decision C16; issue 15.4."""

import pytest
from turnwright_values.assembler import PacketReport
from turnwright_values.types import Cursor, TokenSource, TurnResult, Usage

from turnwright_core.limits import CALIBRATION_MAX
from turnwright_executor.domain.tokens import CALIBRATION_MIN, TokenRate, rate_after, ratio_of
from turnwright_executor.ports.packets import Packet


def result(prompt_tokens: int, **more) -> TurnResult:
    return TurnResult(usage=Usage(prompt_tokens=prompt_tokens), packet_tokens=1000, **more)


def test_the_rate_is_that_of_the_usage_of_the_turn_before():
    counted = result(500, calibration=0.7, token_source=TokenSource.VENDOR)
    assert rate_after(counted) == TokenRate(0.5, TokenSource.USAGE)


def test_where_no_usage_was_reported_the_count_still_holds():
    assert rate_after(result(0, calibration=0.7, token_source=TokenSource.ESTIMATE)) == TokenRate(
        0.7, TokenSource.ESTIMATE
    )
    assert rate_after(result(0)) == TokenRate()


@pytest.mark.parametrize(
    ("tokens", "ratio"),
    [(500, 0.5), (0, 0), (int(1000 * CALIBRATION_MIN) - 1, 0), (int(1000 * CALIBRATION_MAX) + 1, 0), (1000, 1)],
)
def test_a_ratio_that_no_tokenizer_has_counts_for_nothing(tokens, ratio):
    assert (ratio_of(tokens, 1000), ratio_of(tokens, 0)) == (ratio, 0)


def test_a_packet_is_expected_to_take_what_its_rate_says():
    packet = Packet((), PacketReport(digest="", tokens=1001, ceiling=0, chars=0, cursor=Cursor("", 0, 0, 0)))
    assert packet.expected_tokens == 1001
    rate = TokenRate(0.5, TokenSource.USAGE)
    assert Packet((), packet.report, rate=rate).expected_tokens == 500
