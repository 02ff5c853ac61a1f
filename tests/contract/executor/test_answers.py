"""Answers that must have a form, and how much a model reasons: settings of a loop, held by its turns."""

from __future__ import annotations

import json

import pytest
from turnwright.types.v1 import settings_pb2

from contract.executor.shared_stack import ON_A_SHARED_STACK, SHARED_SERVICES
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = ON_A_SHARED_STACK
services = SHARED_SERVICES

SCHEMA = json.dumps({"type": "object", "properties": {"port": {"type": "integer", "minimum": 1}}, "required": ["port"]})
FORM = settings_pb2.ResponseFormat(schema=SCHEMA)


def done(answer: str) -> str:
    return f'<update status="200">{answer}</update>'


async def results(services):
    turns = (await services.client.get_run(services.project, "r", turns_max=10)).turns
    return [turn.result for turn in sorted(turns, key=lambda turn: turn.number)]


@pytest.mark.parametrize(
    "reply",
    [done('{"port": 80}'), done('\n```json\n{"port": 80}\n```\n'), '{"port": 80}', '```json\n{"port": 80}\n```'],
    ids=["update", "fenced update", "text", "fenced text"],
)
async def test_an_answer_of_the_form_is_kept_with_its_turn(services, reply):
    services.script(reply)
    loop = await services.until(await services.ask(response_format=FORM))

    assert loop.status == 200
    assert [json.loads(result.answer) for result in await results(services)] == [{"port": 80}]
    # The model was told of it; the task stays as it was given.
    assert SCHEMA in (await services.entry("prompt://1")).body
    assert loop.prompt == "What is it?"


@pytest.mark.parametrize("wrong", [done('{"port": 0}'), '{"port": 0}'], ids=["update", "text"])
async def test_a_wrong_answer_gets_one_more_turn(services, wrong):
    services.script(wrong, done('{"port": 8080}'))
    loop = await services.until(await services.ask(response_format=FORM))

    assert (loop.status, loop.turns) == (200, 2)
    assert [(result.status, result.reason, result.answer) for result in await results(services)] == [
        (102, "answer", ""),
        (200, "update", '{"port": 8080}'),
    ]
    told = [entry for entry in services.view().entries.values() if entry.outcome == "answer_invalid:422"]
    assert [entry.body for entry in told] == ["At $.port of the answer: 0 is less than the minimum of 1"]


@pytest.mark.parametrize("second", [done("80"), "Port 80."], ids=["update", "text"])
async def test_a_second_wrong_answer_ends_the_loop(services, second):
    services.script(done("Port 80."), second, "never asked")
    loop = await services.until(await services.ask(response_format=FORM))

    assert (loop.status, loop.reason, loop.turns) == (422, "answer", 2)
    assert [result.answer for result in await results(services)] == ["", ""]


async def test_without_a_schema_any_object_is_an_answer(services):
    services.script(done("[1]"), done('{"any": null}'))
    loop = await services.until(await services.ask(response_format=settings_pb2.ResponseFormat()))
    assert (loop.status, loop.turns) == (200, 2)


async def test_work_that_ends_otherwise_needs_no_answer(services):
    services.script('<update status="422">It cannot be done.</update>')
    loop = await services.until(await services.ask(response_format=FORM))
    assert (loop.status, loop.reason) == (422, "update")


@pytest.mark.parametrize(
    "schema",
    [
        "{",
        "[]",
        '{"type": 7}',
        '{"type": "object", "required": "port"}',
        '{"pattern": "("}',
        '{"$ref": "#/a"}',
        '{"$ref": "#"}',
        '{"anyOf": [{"$ref": "#"}]}',
        '{"default": NaN}',
        " " * 65537,
    ],
    ids=[
        "no JSON",
        "a list",
        "no type",
        "no list",
        "no pattern",
        "no part",
        "no end",
        "no end of alternatives",
        "no number",
        "too long",
    ],
)
async def test_a_schema_that_is_none_is_refused_before_any_work(services, schema):
    with pytest.raises(TurnwrightError) as refused:
        await services.ask(response_format=settings_pb2.ResponseFormat(schema=schema))
    assert refused.value.reason in (Reason.INVALID_FIELD, Reason.LIMIT_EXCEEDED)
    assert refused.value.metadata["field"] == "settings.response_format.schema"


@pytest.mark.parametrize(
    ("schema", "answer", "words"),
    [
        ({"properties": {"a": {"pattern": "^(a|aa)+$"}}}, {"a": "a" * 60 + "b"}, "took too long"),
        ({"properties": {"a": {"multipleOf": 0.3}}}, {"a": float("inf")}, "must be JSON"),
    ],
    ids=["a slow pattern", "no number"],
)
async def test_a_hostile_schema_ends_in_words(services, schema, answer, words):
    services.script(done(json.dumps(answer)), done(json.dumps(answer)))
    form = settings_pb2.ResponseFormat(schema=json.dumps(schema))
    loop = await services.until(await services.ask(response_format=form))
    assert (loop.status, loop.reason) == (422, "answer")
    told = [entry.body for entry in services.view().entries.values() if entry.outcome == "answer_invalid:422"]
    assert told
    assert all(words in body for body in told)


async def test_reasoning_is_kept_by_the_turns_and_taken_over_by_the_next_loop(services):
    # OM10, OM05
    services.script(done("1"), done("2"), done("3"))
    low = settings_pb2.Reasoning(tokens=2000)
    await services.until(await services.ask())
    await services.until(await services.ask(reasoning=low))
    await services.until(await services.ask())

    turns = (await services.client.get_run(services.project, "r", turns_max=10)).turns
    requests = [turn.request for turn in sorted(turns, key=lambda turn: turn.number)]
    assert [request.HasField("reasoning") for request in requests] == [False, True, True]
    assert requests[2].reasoning == low
    # What really ran stands with the result.
    assert [turn.result.vendor_model for turn in turns] == ["m", "m", "m"]
