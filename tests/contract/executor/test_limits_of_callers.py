"""What a caller may have under way at a service, by a quota of its own."""

from __future__ import annotations

import asyncio

import pytest
from turnwright.quotas.v1 import quota_service_pb2 as pb

from contract.executor.proposing import person
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio


async def test_calls_of_a_caller_are_limited_by_its_quota_while_there_is_one(services):
    quota = pb.Quota(subject="user:ann", metric=pb.QUOTA_METRIC_CALLS, limit=0)
    async with person(services, "ann") as ann, person(services, "bob") as bob:
        await ann.list_models()
        await services.client.set_quota("", quota)
        async with asyncio.timeout(60):
            while not (error := await refusal(ann.list_models())):  # noqa: ASYNC110 - the executor learns of it soon
                await asyncio.sleep(0.05)
        assert (error.reason, error.metadata["limit"]) == (Reason.QUEUE_FULL, "0")
        assert error.message.endswith("The operator can raise it with `turnwright quota set calls`.")
        await bob.list_models()
        await services.client.delete_quota("", "user:ann", pb.QUOTA_METRIC_CALLS)
        async with asyncio.timeout(60):
            while await refusal(ann.list_models()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


SHARED = {
    "of all": ("", "", True),
    "of a group": ("", "group:shop", True),
    "of a project, by an operator": ("", "project:{project}", True),
    "of a project": ("{project}", "", True),
    "of a person in a project": ("{project}", "user:ann", True),
    "of another group": ("", "group:sales", False),
    "of another person in the project": ("{project}", "user:bob", False),
}


@pytest.mark.parametrize("kind", SHARED)
async def test_calls_of_several_callers_share_a_quota(services, kind):
    where, whose, is_refused = SHARED[kind]
    where, whose = where.format(project=services.project), whose.format(project=services.project)
    async with person(services, "ann", groups={"shop"}) as ann:
        await services.client.set_quota(where, pb.Quota(subject=whose, metric=pb.QUOTA_METRIC_CALLS, limit=0))
        # Whoever is told of this one is told of the other.
        await services.client.set_quota("", pb.Quota(subject="user:eve", metric=pb.QUOTA_METRIC_CALLS, limit=0))
        async with person(services, "eve") as eve, asyncio.timeout(60):
            while not await refusal(eve.list_models()):  # noqa: ASYNC110 - the executor learns of it soon
                await asyncio.sleep(0.05)
        error = await refusal(ann.list_quotas(services.project))
        assert (error and error.reason) == (Reason.QUEUE_FULL if is_refused else None)
        if not where and not whose.startswith("project:"):
            # It names no project.
            assert bool(await refusal(ann.list_models())) is is_refused
    for subject in (whose, "user:eve"):
        await services.client.delete_quota(where if subject == whose else "", subject, pb.QUOTA_METRIC_CALLS)


async def refusal(call) -> TurnwrightError | None:
    try:
        await call
    except TurnwrightError as error:
        return error
    return None


MALFORMED = {
    "of nobody": (pb.Quota(subject="ann", metric=pb.QUOTA_METRIC_CALLS, limit=5), "", "quota.subject"),
    "too few bytes": (pb.Quota(subject="user:ann", metric=pb.QUOTA_METRIC_UNSENT_BYTES, limit=5), "", "quota.limit"),
}


@pytest.mark.parametrize("kind", MALFORMED)
async def test_a_quota_that_no_service_could_keep_is_refused(services, kind):
    quota, project, field = MALFORMED[kind]
    error = await refusal(services.client.set_quota(project, quota))
    assert error
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, field)
