"""A watcher in Node, made from the protos alone, is told of plans as one in Python is. Rows AP03, AP07."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
from asyncio.subprocess import PIPE, create_subprocess_exec
from pathlib import Path

import pytest
from turnwright.types.v1 import plan_pb2, settings_pb2

from needs import needs
from services import token_for

REPO = Path(__file__).parents[3]
SCRIPT = Path(__file__).with_name("plan_watcher.js")
NODE = shutil.which("node")

pytestmark = [
    pytest.mark.asyncio,
    needs(
        "Node",
        "and its packages: `make node_modules/.installed`",
        there=NODE and (REPO / "node_modules/@grpc/grpc-js").is_dir(),
    ),
]


@contextlib.asynccontextmanager
async def node(services, form: str):
    """Reads the next line of a watcher in Node."""
    token = token_for("node")
    process = await create_subprocess_exec(
        NODE or "", str(SCRIPT), services.addresses["executor"], services.project, "r", form,
        cwd=REPO, env={**os.environ, "TOKEN": token}, stdout=PIPE,
    )  # fmt: skip
    assert process.stdout
    lines = process.stdout

    async def following():
        async with asyncio.timeout(60):
            return json.loads(await lines.readline())

    try:
        yield following
    finally:
        process.kill()
        await process.wait()


async def test_a_watcher_in_node_hears_of_plans_in_its_form(services) -> None:
    client, at = services.client, (services.project, "r")
    await client.create_run(*at, settings_pb2.RunSettings(model="m"))
    await client.set_plan(*at, plan_pb2.Plan(plan_id="notes", body="# Früh\n- [x] done"))
    items = [plan_pb2.PlanItem(content="step", status=plan_pb2.PLAN_STATUS_BLOCKED)]
    notes = ["notes", "PLAN_KIND_MARKDOWN", "# Früh\n- [x] done", []]
    async with node(services, "PLAN_EVENTS_OPERATIONS") as asked, node(services, "PLAN_EVENTS_LEGACY") as old:
        assert await asked() == ["snapshot", [[notes], None]]
        done, step = ["done", "PLAN_STATUS_COMPLETED"], ["step", "PLAN_STATUS_PENDING"]
        assert await old() == ["snapshot", [[], [done]]]
        main = await client.set_plan(*at, plan_pb2.Plan(kind=plan_pb2.PLAN_KIND_ITEMS, items=items))
        assert await asked() == ["plan_updated", ["main", "PLAN_KIND_ITEMS", main.body, ["step"]]]
        assert await old() == ["legacy_plan", [done, step]]
        await client.delete_plan(*at, plan_id="notes")
        assert await asked() == ["plan_removed", "notes"]
        assert await old() == ["legacy_plan", [step]]
