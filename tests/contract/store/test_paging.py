"""Pages of every list: whatever moves between two of them, nothing is missed; and a token is for one list alone."""

from __future__ import annotations

import itertools

import pytest
from turnwright.types.v1 import model_pb2, plan_pb2, project_pb2, settings_pb2
from turnwright_values.types import Tier

from contract.store.harness import (
    MESSAGES,
    PROPOSED,
    Run,
    as_tier,
    new_project,
    new_run,
    remove,
    request_of,
    set_,
    working_run,
)
from turnwright_core.errors import InvalidError, Reason

COUNT = 9
PAGE = 2
PAGED = {
    name.removesuffix("Request")
    for module in MESSAGES
    for name, message in module.DESCRIPTOR.message_types_by_name.items()
    if "page_token" in message.fields_by_name
}


OF_OTHERS = {"GetIdentity", "ListAudit", "ListDeliveries", "ListTokens"}
"""Lists whose rows come of other calls, with tests of their own."""


class Rows:
    """The rows of one list: `add`, `change` and `remove` move them, `asked` is its request, `key` names one."""

    removes = True
    field = ""

    def __init__(self, client, project: str) -> None:
        self.client, self.project, self.numbers = client, project, itertools.count()

    async def begin(self) -> None:
        """What the rows need."""

    def asked(self) -> dict:
        return {"project": self.project}

    async def add(self) -> str:
        raise NotImplementedError

    async def change(self, name: str) -> None:
        raise NotImplementedError

    async def remove(self, name: str) -> None:
        raise NotImplementedError

    def key(self, row) -> str:
        raise NotImplementedError

    def _name(self) -> str:
        return f"n{next(self.numbers):03}"


class Projects(Rows):
    field, removes = "projects", False

    def asked(self):
        return {}

    async def add(self):
        return await new_project(self.client, self._name())

    async def change(self, name):
        await self.client.call("InitProject", root=f"/srv/{name}", workspace_id=f"ws-{name}", config_path="/c.toml")

    def key(self, row):
        return row.name


class Models(Rows):
    field = "models"

    def asked(self):
        return {}

    async def add(self):
        name = self._name()
        await self.change(name)
        return name

    async def change(self, name):
        model = model_pb2.Model(alias=name, vendor_model=f"scripted/{next(self.numbers)}")
        await self.client.call("SetModel", model=model)

    async def remove(self, name):
        await self.client.call("DeleteModel", alias=name)

    def key(self, row):
        return row.alias


class Constraints(Rows):
    field = "constraints"

    async def add(self):
        name = f"{self._name()}.txt"
        await self.change(name, project_pb2.FILE_CONSTRAINT_KIND_ADD)
        return name

    async def change(self, name, kind=project_pb2.FILE_CONSTRAINT_KIND_READONLY):
        constraint = project_pb2.FileConstraint(pattern=name, kind=kind)
        await self.client.call("SetFileConstraints", project=self.project, constraints=[constraint])

    async def remove(self, name):
        await self.client.call("SetFileConstraints", project=self.project, remove_patterns=[name])

    def key(self, row):
        return row.pattern


class Runs(Rows):
    field = "runs"

    async def add(self):
        return (await new_run(self.client, self.project, self._name())).alias

    async def change(self, name):
        await Run(self.client, self.project, name).enqueue()

    async def remove(self, name):
        await self.client.call("DeleteRun", project=self.project, run=name)

    def key(self, row):
        return row.run


class OfARun(Rows):
    removes = False

    async def begin(self):
        self.run = await working_run(self.client, self.project, "r1")

    def asked(self):
        return self.run.address


class Loops(OfARun):
    field = "loops"

    async def add(self):
        return str((await self.run.enqueue()).loop.sequence)

    async def change(self, name):
        """The loop that runs, and with it the run."""
        await self.run.write(set_("known://a", name))

    def key(self, row):
        return str(row.sequence)


class Turns(OfARun):
    field = "turns"

    async def add(self):
        number = (await self.run.begin()).next.number
        await self.run.end(number, status=102)
        return str(number)

    async def change(self, name):
        """Nothing changes a turn that has ended."""

    def key(self, row):
        return str(row.number)


class Messages(OfARun):
    field, removes = "messages", True

    async def begin(self):
        await super().begin()
        await self.run.begin()

    async def add(self):
        path = f"log://turn_1/error/{self._name()}"
        await self.change(path)
        return path

    async def change(self, name):
        await self.run.write(set_(name, f"x{next(self.numbers)}", '{"tool":"error"}', turn=1))

    async def remove(self, name):
        await self.run.write(remove(name))

    def key(self, row):
        return row.path


class Proposals(OfARun):
    field, removes = "proposals", True

    async def begin(self):
        await super().begin()
        await self.run.begin()

    async def add(self):
        path = f"log://turn_1/sh/{self._name()}"
        write = set_(path, "run", '{"tool":"sh"}', state=PROPOSED, turn=1)
        await self.run.write(write, run_status=202)
        return path

    async def change(self, name):
        await self.run.write(set_(name, "run it", '{"tool":"sh"}', state=PROPOSED, turn=1), run_status=202)

    async def remove(self, name):
        await self.client.call("ResolveProposal", **self.run.address, path=name, reject={})

    def key(self, row):
        return row.proposal.path


class Entries(OfARun):
    field, removes, by_position = "entries", True, False

    def asked(self):
        return {**self.run.address, "pattern": "known://n*", "by_position": self.by_position}

    async def add(self):
        path = f"known://{self._name()}"
        await self.run.write(set_(path, "x"))
        return path

    async def change(self, name):
        await self.run.write(set_(name, f"x{next(self.numbers)}"))

    async def remove(self, name):
        await self.run.write(remove(name))

    def key(self, row):
        return row.path


class EntriesByPosition(Entries):
    by_position = True


class History(OfARun):
    field = "intervals"

    def asked(self):
        return {**self.run.address, "path": "known://a"}

    async def add(self):
        body = self._name()
        await self.run.write(set_("known://a", body))
        return body

    async def change(self, name):
        """What was does not change."""

    def key(self, row):
        return row.entry.body


class Plans(OfARun):
    field, removes = "plans", True

    async def add(self):
        name = self._name()
        await self.change(name)
        return name

    async def change(self, name):
        plan = plan_pb2.Plan(plan_id=name, kind=plan_pb2.PLAN_KIND_MARKDOWN, body=f"x{next(self.numbers)}")
        await self.client.call("SetPlan", **self.run.address, plan=plan)

    async def remove(self, name):
        await self.client.call("DeletePlan", **self.run.address, plan_id=name)

    def key(self, row):
        return row.plan_id


class Grants(Rows):
    field, removes = "grants", True

    async def add(self):
        name = self._name()
        await self.change(name)
        return f"user:{name}"

    async def change(self, name):
        subject, role = f"user:{name.removeprefix('user:')}", next(self.numbers) % 2 + 1
        await self.client.call("SetGrant", project=self.project, grant={"subject": subject, "role": role})

    async def remove(self, name):
        await self.client.call("DeleteGrant", project=self.project, subject=name)

    def key(self, row):
        return row.subject


LISTS = {
    "ListProjects": [Projects], "ListModels": [Models], "ListFileConstraints": [Constraints], "ListRuns": [Runs],
    "ListLoops": [Loops], "ListTurns": [Turns], "ListMessages": [Messages], "ListProposals": [Proposals], "ListPlans": [Plans],
    "ListEntries": [Entries, EntriesByPosition], "ListEntryHistory": [History], "ListGrants": [Grants],
}  # fmt: skip
CASES = [(rpc, kind) for rpc, kinds in LISTS.items() for kind in kinds]


async def rows_of(kind, client, project, count=COUNT) -> tuple[Rows, list[str]]:
    rows = kind(client, project)
    await rows.begin()
    return rows, [await rows.add() for _ in range(count)]


def test_every_list_with_pages_is_among_them():
    assert LISTS.keys() | OF_OTHERS == PAGED


@pytest.mark.parametrize(("rpc", "kind"), CASES, ids=[kind.__name__ for _, kind in CASES])
@pytest.mark.parametrize("moves", ["nothing", "later ones", "earlier ones", "everything"])
@pytest.mark.asyncio
async def test_nothing_is_missed_while_rows_move(client, project, rpc, kind, moves):
    rows, _ = await rows_of(kind, client, project)
    everything = [rows.key(row) for row in getattr(await client.call(rpc, **rows.asked(), page_size=1000), rows.field)]
    assert len(everything) >= COUNT
    removed, seen, token = set(), [], ""
    for number in itertools.count():
        page = await client.call(rpc, **rows.asked(), page_size=PAGE, page_token=token)
        seen += [rows.key(row) for row in getattr(page, rows.field)]
        if not (token := page.next_page_token):
            break
        if number > COUNT:
            # Rows that move without an end are shown without one.
            continue
        later = [name for name in everything if name not in seen and name not in removed]
        earlier = [name for name in everything if name in seen and name not in removed]
        if moves in ("later ones", "everything") and later:
            await rows.change(later[-1])
        if moves in ("earlier ones", "everything"):
            await rows.change(earlier[0])
        if moves == "everything":
            await rows.add()
            if rows.removes and len(later) > 2:
                await rows.remove(later[1])
                removed.add(later[1])
    assert set(everything) - removed <= set(seen)
    if moves == "nothing":
        assert seen == everything


@pytest.mark.parametrize(("rpc", "kind"), CASES, ids=[kind.__name__ for _, kind in CASES])
@pytest.mark.asyncio
async def test_a_token_is_for_the_list_that_made_it(client, project, rpc, kind):
    rows, _ = await rows_of(kind, client, project, 4)
    asked = rows.asked()
    token = (await client.call(rpc, **asked, page_size=PAGE)).next_page_token
    assert token
    # The size of a page, and whether bodies come with it, may differ.
    assert getattr(await client.call(rpc, **asked, page_size=1, page_token=token), rows.field)

    async def refused(method: str, by=client, **fields) -> None:
        with pytest.raises(InvalidError) as error:
            await by.call(method, **fields)
        assert (error.value.reason, error.value.metadata["field"]) == (Reason.INVALID_FIELD, "page_token"), fields

    for junk in (
        f"{token}x",
        f"x{token}",
        token[:-1],
        f"{token}=",
        f"{token} ",
        f"{token[:3]}\n{token[3:]}",
        token.upper(),
    ):
        await refused(rpc, **asked, page_token=junk)
    bob = as_tier(client.peer.address, Tier.CLIENT, "bob")
    await refused(rpc, by=bob, **asked, page_token=token)
    await bob.close()
    other_project = await new_project(client, "other")
    await new_run(client, other_project, "r1")
    await new_run(client, project, "r9")
    for name, value in {
        "project": other_project, "run": "r9", "pattern": "known://*", "path": "known://b", "by_position": not asked.get("by_position"),
        "schemes": ["known"], "body_pattern": "x",
    }.items():  # fmt: skip
        if name in asked or (rpc == "ListEntries" and name in ("schemes", "body_pattern")):
            await refused(rpc, **{**asked, name: value}, page_token=token)
    for other in PAGED - {rpc}:
        address = {"project": project, "run": "r1", "path": "known://a"}
        fields = request_of(other, {}).DESCRIPTOR.fields_by_name
        if rpc in ("ListProjects", "ListModels", "ListFileConstraints", "ListRuns"):
            await new_run_once(client, project)
        await refused(other, **{name: value for name, value in address.items() if name in fields}, page_token=token)


async def new_run_once(client, project) -> None:
    settings = settings_pb2.RunSettings(model="fast")
    await client.call("CreateRun", project=project, run="r1", settings=settings, request_id="once")
