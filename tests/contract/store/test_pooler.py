"""A pooler between the store and PostgreSQL: one that keeps sessions works, others are refused with the remedy."""

import os
import shutil
import socket
import subprocess
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest

from contract.store.harness import POSTGRESQL_ONLY, Client, new_project, set_, start_store, working_run
from turnwright_store.edge.postgres_link import PoolerError

pytestmark = [
    pytest.mark.asyncio,
    POSTGRESQL_ONLY,
    pytest.mark.skipif(
        shutil.which("pgbouncer") is None, reason="pgbouncer is not installed (apt-get install pgbouncer)"
    ),
]


@contextmanager
def pooler(url, folder, mode, sessions=20):
    """PgBouncer before a database: its URL."""
    parts = urlsplit(url)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    config = folder / "pgbouncer.ini"
    database = parts.path.removeprefix("/")
    config.write_text(
        f"[databases]\n* = host={parts.hostname} port={parts.port} user={parts.username}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = {mode}\ndefault_pool_size = {sessions}\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    config.chmod(0o644)
    folder.chmod(0o755)
    user = ["-u", "nobody"] if os.geteuid() == 0 else []
    process = subprocess.Popen(["pgbouncer", *user, str(config)], stderr=subprocess.PIPE, text=True)
    try:
        for line in process.stderr:
            if "process up" in line:
                break
        yield f"postgresql://{parts.username}@127.0.0.1:{port}/{database}"
    finally:
        process.terminate()
        process.communicate()


@pytest.mark.parametrize(("mode", "sessions"), [("transaction", 20), ("transaction", 1), ("statement", 20)])
async def test_a_pooler_that_gives_each_transaction_a_session_is_refused_with_the_remedy(db, tmp_path, mode, sessions):
    with (
        pooler(db, tmp_path, mode, sessions) as url,
        pytest.raises(PoolerError, match=r"behind a pooler .* set pool_mode=session") as refused,
    ):
        await start_store(tmp_path, db=url)
    assert "postgres@" not in str(refused.value)


async def test_a_store_works_behind_a_pooler_that_keeps_sessions(db, tmp_path):
    with pooler(db, tmp_path, "session") as url:
        server = await start_store(tmp_path, db=url)
        client = Client(server.address)
        try:
            run = await working_run(client, await new_project(client), "r1")
            await run.write(set_("known://a", "text"))
            assert (await run.entry("known://a")).body == "text"
        finally:
            await client.close()
            await server.stop()
