"""Who may register a directory that lies in somebody's project, or contains one: their files would be shared. ADR 66."""

from __future__ import annotations

import asyncio
import contextlib

import pytest
from turnwright.types.v1 import access_pb2, grant_pb2

from services import running, token_for
from turnwright_client import Client
from turnwright_core.errors import Reason, TurnwrightError

pytestmark = pytest.mark.asyncio

MEMBER = grant_pb2.GRANT_ROLE_MEMBER


@contextlib.asynccontextmanager
async def people(tmp_path, *folders: str):
    """A stack in which alice, bob and mallory register below `open`, where these folders are."""
    for folder in folders:
        (tmp_path / "open" / folder).mkdir(parents=True)
    async with contextlib.AsyncExitStack() as stack:
        services = await stack.enter_async_context(running(tmp_path, client_roots=str(tmp_path / "open")))
        at = services.addresses["executor"]
        made = [await stack.enter_async_context(Client.connect(at, token_for(n))) for n in ("alice", "bob", "mallory")]
        yield services, str(tmp_path / "open"), *made


async def refusal(call) -> str:
    with pytest.raises(TurnwrightError) as told:
        await call
    assert told.value.reason is Reason.RIGHT_MISSING
    return told.value.message


async def test_nobody_registers_what_lies_in_or_around_a_project_whose_files_are_closed(tmp_path):
    async with people(tmp_path, "hers/src", "deep/er/hers", "closed") as (services, root, alice, _bob, mallory):
        for own in ("hers", "deep/er/hers"):
            await alice.init_project(f"{root}/{own}")
        (tmp_path / "open" / "link").symlink_to(tmp_path / "open" / "hers" / "src")
        (tmp_path / "closed").mkdir()
        unknown = await refusal(mallory.init_project(f"{tmp_path}/closed"))
        for name in ("hers/src", "hers/src/", "link", "deep", "deep/er", "hers/../deep", "hers/src/.", "."):
            told = await refusal(mallory.init_project(f"{root}/{name}"))
            # Not whether anything is there.
            assert told == unknown.replace(f"{tmp_path}/closed", f"{root}/{name}")
        assert [one.name async for one in mallory.list_projects()] == [services.project]


async def test_what_only_looks_like_it_is_registered(tmp_path):
    async with people(tmp_path, "a_b", "aXb/in", "hers", "hers2", "HERS", "%", "x") as (_, root, alice, _bob, mallory):
        for own in ("aXb/in", "hers", "x"):
            await alice.init_project(f"{root}/{own}")
        for name in ("a_b", "hers2", "HERS", "%"):
            assert (await mallory.init_project(f"{root}/{name}")).root == f"{root}/{name}"


async def test_who_may_use_the_files_registers_a_part_of_them(tmp_path):
    async with people(tmp_path, "hers/src", "hers/lib") as (services, root, alice, bob, _):
        hers = (await alice.init_project(f"{root}/hers")).name
        assert (await alice.init_project(f"{root}/hers/src")).root == f"{root}/hers/src"
        await alice.set_grant(hers, "user:bob", MEMBER, [access_pb2.RIGHT_FILES])
        await refusal(bob.init_project(f"{root}/hers/lib"))
        await alice.set_grant(hers, "user:bob", MEMBER)
        await bob.init_project(f"{root}/hers/lib")
        # What is there already is opened as before, by all who may.
        assert (await bob.init_project(f"{root}/hers")).name == hers
        await services.client.init_project(root)


async def test_the_folder_for_projects_is_none_itself(tmp_path):
    async with people(tmp_path, "hers") as (_, root, alice, _bob, _):
        for name in ("", "/", "/.", "/hers/.."):
            await refusal(alice.init_project(f"{root}{name}"))


async def test_of_two_that_are_registered_at_once_one_is(tmp_path):
    pairs = [f"p{number}" for number in range(8)]
    async with people(tmp_path, *(f"{one}/in" for one in pairs)) as (_, root, alice, _bob, mallory):
        calls = [call for one in pairs for call in (
            alice.init_project(f"{root}/{one}"), mallory.init_project(f"{root}/{one}/in"))]  # fmt: skip
        answers = await asyncio.gather(*calls, return_exceptions=True)
        for outer, inner in zip(answers[::2], answers[1::2], strict=True):
            refused = [one for one in (outer, inner) if isinstance(one, TurnwrightError)]
            assert [one.reason for one in refused] == [Reason.RIGHT_MISSING]
