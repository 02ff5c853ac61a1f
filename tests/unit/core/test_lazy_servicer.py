"""A servicer on demand answers as the servicer itself does, and is made once, by its first call."""

from __future__ import annotations

import pytest

from turnwright_kit.lazy_servicer import LazyServicer


class Servicer:
    async def Answer(self, request, context):
        return (request, context)

    async def Stream(self, request, context):
        for number in range(request):
            yield number


@pytest.mark.asyncio
async def test_it_is_made_by_the_first_call_and_serves_all():
    made = []

    def make():
        made.append("made")
        return Servicer()

    servicer = LazyServicer(make)
    methods = servicer.Answer, servicer.Stream
    assert made == []
    assert await methods[0]("q", "c") == ("q", "c")
    assert [number async for number in methods[1](3, "c")] == [0, 1, 2]
    assert made == ["made"]


@pytest.mark.asyncio
async def test_one_that_cannot_be_made_is_tried_again_by_the_next_call():
    results = [AttributeError("not yet"), Servicer()]

    def make():
        result = results.pop(0)
        if isinstance(result, Exception):
            raise result
        return result

    servicer = LazyServicer(make)
    with pytest.raises(AttributeError, match="not yet"):
        servicer.Answer("q", "c")
    assert await servicer.Answer("q", "c") == ("q", "c")
