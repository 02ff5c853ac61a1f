"""When a schedule that a client sets happens next. Source: rows RE07, RH04; schedule.proto."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from zoneinfo import available_timezones

import pytest
import tzdata
from turnwright_values.types import Schedule

from turnwright_store.domain.schedules import check_schedule, next_time_ms


@pytest.mark.parametrize("next_ms", [0, 1, -(2**63), 2**63 * 1000])
def test_the_times_that_a_client_sends_are_ignored(next_ms) -> None:
    asked = Schedule("s", every_s=60, next_ms=next_ms, last_ms=next_ms, fired=7)
    assert check_schedule(asked, 5_000) == Schedule("s", every_s=60, next_ms=65_000)


def times(cron: str, zone: str, begin: str, count: int) -> list[str]:
    """The next times after a moment, as they are told by a clock in the zone, with its distance from UTC."""
    now = datetime.fromisoformat(begin)
    found = []
    for _ in range(count):
        # A store comes to a time a little later.
        now_ms = int(now.timestamp() * 1000) + 300
        next_ms = next_time_ms(Schedule("s", cron, time_zone=zone), now_ms)
        assert next_ms > now_ms
        now = datetime.fromtimestamp(next_ms / 1000, now.tzinfo)
        found.append(datetime.fromtimestamp(next_ms / 1000, UTC).isoformat())
    return found


BERLIN = {
    "a time that is left out happens right after the gap, once": (
        "30 2 * * *",
        "2026-03-28T12:00:00+01:00",
        ["2026-03-29T01:00:00+00:00", "2026-03-30T00:30:00+00:00", "2026-03-31T00:30:00+00:00"],
    ),
    "each hour goes on through the gap": (
        "0 * * * *",
        "2026-03-29T00:30:00+01:00",
        ["2026-03-29T00:00:00+00:00", "2026-03-29T01:00:00+00:00", "2026-03-29T02:00:00+00:00"],
    ),
    "a time that comes twice happens the first time": (
        "30 2 * * *",
        "2026-10-24T12:00:00+02:00",
        ["2026-10-25T00:30:00+00:00", "2026-10-26T01:30:00+00:00", "2026-10-27T01:30:00+00:00"],
    ),
    "nor does it happen for who begins between the two": (
        "30 2 * * *",
        "2026-10-25T02:10:00+01:00",
        ["2026-10-26T01:30:00+00:00"],
    ),
    "each hour happens twice, as time goes on": (
        "0 * * * *",
        "2026-10-25T01:30:00+02:00",
        ["2026-10-25T00:00:00+00:00", "2026-10-25T01:00:00+00:00", "2026-10-25T02:00:00+00:00"],
    ),
    "a time of the day follows the clocks": (
        "0 9 * * 1-5",
        "2026-03-27T12:00:00+01:00",
        ["2026-03-30T07:00:00+00:00", "2026-03-31T07:00:00+00:00"],
    ),
}


@pytest.mark.parametrize("what", BERLIN)
def test_changes_of_clocks_are_as_cron_has_them(what) -> None:
    cron, begin, wanted = BERLIN[what]
    assert times(cron, "Europe/Berlin", begin, len(wanted)) == wanted


def test_without_a_zone_times_are_in_utc() -> None:
    assert times("30 2 * * *", "", "2026-03-29T00:00:00+00:00", 1) == ["2026-03-29T02:30:00+00:00"]
    assert times("30 2 * * *", "", "2026-03-29T00:00:00+00:00", 1) != times(
        "30 2 * * *", "America/Lima", "2026-03-29T00:00:00+00:00", 1
    )


@pytest.mark.parametrize("zone", ["Europe/Berlin", "Australia/Lord_Howe", "Pacific/Apia", "America/St_Johns"])
def test_no_time_is_left_out_or_comes_twice_in_a_year(zone) -> None:
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    found = times("30 2 * * *", zone, begin.isoformat(), 365)
    assert len(set(found)) == 365
    last = datetime.fromisoformat(found[-1])
    assert timedelta(days=364) < last - begin < timedelta(days=366)


def test_zones_come_with_the_package() -> None:
    # A slim image has none of its own.
    zones = (Path(tzdata.__file__).parent / "zones").read_text().split()
    assert "Europe/Berlin" in zones
    assert set(zones) <= available_timezones()
