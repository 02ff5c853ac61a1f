"""Tokens at the command line: made by what runs or without it, listed, revoked; and the first operator."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys

import jwt
import pytest

from contract.store.harness import SECRET, start_store
from e2e.cli_process import Bench

pytestmark = pytest.mark.asyncio


def turnwright(home, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("TURNWRIGHT_")}
    return subprocess.run(
        [sys.executable, "-m", "turnwright_cli", *arguments], capture_output=True, text=True, timeout=60, check=False,
        cwd=home, env={**inherited, "TURNWRIGHT_HOME": str(home), **environment},
    )  # fmt: skip


def id_of(token: str) -> str:
    return jwt.decode(token.strip(), options={"verify_signature": False})["jti"]


async def test_a_store_alone_makes_the_first_operator_who_makes_tokens(tmp_path) -> None:
    server = await start_store(tmp_path)
    home = tmp_path / "away"
    home.mkdir()
    at = {"TURNWRIGHT_SERVER": server.address, "TURNWRIGHT_TOKEN": SECRET}

    async def told(*arguments: str, **more: str) -> str:
        ended = await asyncio.to_thread(turnwright, home, *arguments, **{**at, **more})
        assert (ended.returncode, "Traceback" in ended.stderr) == (0, False), ended.stderr
        return ended.stdout

    try:
        await told("grant", "set", "operator", "user:ops", "--deployment")
        assert "user:ops" in await told("grant", "list", "--deployment")
        ops = (await told("token", "create", "--principal", "ops", "--audience", "store")).strip()
        as_ops = {"TURNWRIGHT_TOKEN": ops}
        bob = (await told("token", "create", "--principal", "bob", "--audience", "store", **as_ops)).strip()
        as_bob = {"TURNWRIGHT_TOKEN": bob}
        rows = [json.loads(line) for line in (await told("token", "list", "--json", **as_ops)).splitlines()]
        assert {(one["token_id"], one["principal"], one["by"]) for one in rows} == {
            (id_of(ops), "ops", "operator"), (id_of(bob), "bob", "ops"),
        }  # fmt: skip
        assert [line.split("\t")[1] for line in (await told("token", "list", **as_bob)).splitlines()[1:]] == ["bob"]
        refused = await asyncio.to_thread(turnwright, home, "token", "create", "--principal", "eve", **{**at, **as_bob})
        assert (refused.returncode != 0, "needs `admin` in the deployment" in refused.stderr) == (True, True)
        # By itself, by its id, and one that nobody has told the store of.
        assert id_of(bob) in await told("token", "revoke", bob, **as_ops)
        ended = await asyncio.to_thread(turnwright, home, "token", "list", **{**at, **as_bob})
        assert (ended.returncode != 0, "revoked" in ended.stderr) == (True, True)
        await told("token", "revoke", "never-seen", **as_ops)
        assert "never-seen" in await told("token", "list", **as_ops)
    finally:
        await server.stop()


async def test_a_token_is_made_where_nothing_runs_and_revoked_later(tmp_path) -> None:
    bench = Bench(tmp_path)
    made = bench.run("token", "create", "--principal", "ci", "--days", "7")
    assert made.returncode == 0, made.stderr
    assert "ci" not in bench.run("token", "list").stdout
    gone = bench.run("token", "revoke", made.stdout.strip(), "--json")
    assert json.loads(gone.stdout)["token_id"] == id_of(made.stdout), gone.stderr
    assert id_of(made.stdout) in bench.run("token", "list").stdout
    for wrong in ("a.b.c", jwt.encode({"iss": "https://id.example.com", "jti": "x"}, "k" * 32)):
        refused = bench.run("token", "revoke", wrong)
        assert (refused.returncode, "NAME/JTI" in refused.stderr) == (2, True)
