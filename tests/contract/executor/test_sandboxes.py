"""Projects on sandbox hosts: the same tools, carried out where the files are."""

from __future__ import annotations

import asyncio
import json
import shutil
from dataclasses import replace
from pathlib import Path

import grpc
import pytest
import pytest_asyncio
from turnwright.executor.v1 import tools_pb2
from turnwright.types.v1 import project_pb2, settings_pb2

from contract.executor.proposing import DONE, GO_ON, person
from contract.executor.sandboxes import TOKEN, host, host_server, hosted_stack, refused, registered
from contract.executor.tool_servers import stack
from living import is_alive
from needs import left_out
from services import SECRET, running
from turnwright_core.errors import DeniedError, PreconditionError, Reason
from turnwright_executor.domain.tool_servers import RegisteredServer
from turnwright_executor.peers.sandboxes import GrpcSandboxHosts, HostSettings
from turnwright_kit.sandbox import landlock

SET = '<set path="a.txt"><<SEARCH\nold\nSEARCH\n<<REPLACE\nnew\nREPLACE</set>'


@pytest.mark.asyncio
async def test_files_are_read_and_changed_and_commands_run_on_the_host(tmp_path, monkeypatch, shop):
    (shop / "AGENTS.md").write_text("Speak of apples.\n")
    async with host(tmp_path), hosted_stack(tmp_path, monkeypatch) as services:
        services.script(
            f'<get path="a.txt"/><skill path="guide.md"/>{SET}{GO_ON}',
            f"<sh>cat a.txt; pwd; echo wrong >&2; touch made.txt; exit 3</sh>{GO_ON}",
            DONE,
        )
        queued = await services.act(yolo=False)
        await services.until(queued, 202)
        [proposal] = services.view().proposals.values()
        [change] = proposal.files.changes
        assert change.patch.endswith("-old\n+new\n")
        assert (shop / "a.txt").read_text() == "old\n"
        await services.client.configure_run(services.project, "r", settings_pb2.RunSettingsPatch(yolo=True))
        await services.client.resolve(services.project, "r", proposal.path, accept=True)
        assert (await services.until(queued)).status == 200
        assert (shop / "a.txt").read_text() == "new\n"
        assert "apples" in (await services.entry("instructions://project")).body
        assert "Use it." in (await services.entry("skill://guide")).body
        record = await services.entry(
            "log://turn_2/sh/cat_a.txt%3B_pwd%3B_echo_wrong_%3E%262%3B_touch_made.txt%3B_exit_3"
        )
        assert record.outcome == "exit_3:500"
        changed = json.loads(record.attributes_json)["changed"]
        assert [one["path"] for one in changed] == ["made.txt"]
        folder = record.path.replace("log://turn_2/sh/", "sh://turn_2/")
        assert (await services.entry(f"{folder}_1")).body == f"new\n{shop}\n"
        assert (await services.entry(f"{folder}_2")).body == "wrong\n"
        # A scan has found what the command has made.
        assert (await services.entry("made.txt")).body == ""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def made(tmp_path_factory):
    """A stack and a host that the tests below share, each in a project of its own."""
    root = tmp_path_factory.mktemp("sandboxes")
    with pytest.MonkeyPatch.context() as patch:
        async with host(root) as server, hosted_stack(root, patch, sandbox_away_s=0.2) as services:
            (root / "there" / "other").mkdir()
            (root / "there" / "other" / "canary.txt").write_text("secret\n")
            yield services, server


@pytest.fixture
def name(request):
    return request.node.originalname


@pytest_asyncio.fixture(loop_scope="module")
async def services(made, name):
    """The shared stack with a project of this test's own on the host."""
    services, _ = made
    (services.root / "there" / name).mkdir()
    made = replace(services, folder=f"there/{name}", events=[])
    made.project = await made.client_project(f"box:/{name}")
    return made


shared = pytest.mark.asyncio(loop_scope="module")


@shared
async def test_no_path_leads_out_of_a_project(services):
    (services.files / "link.txt").symlink_to("../other/canary.txt")
    (services.files / "folder").symlink_to("../other")
    services.script(DONE)
    await services.until(await services.act())
    tries = ("../other/canary.txt", "link.txt", "folder/canary.txt", "/etc/passwd", "a/../../other/canary.txt")
    for path in tries:
        record = await services.client.call_tool(services.project, "r", "get", {"path": path})
        assert record.outcome == "permission:403", path
        record = await services.client.call_tool(services.project, "r", "set", {"path": path}, "taken")
        assert record.outcome == "permission:403", path
    assert (services.root / "there" / "other" / "canary.txt").read_text() == "secret\n"


@shared
async def test_a_place_is_a_real_directory_below_what_the_host_serves(services):
    (services.root / "there" / "link").symlink_to("other")
    places = ("/link", "/other/../other", "/..", "/../host", "/nowhere", "/other/canary.txt", "/./other")
    for place in places:
        with pytest.raises(PreconditionError) as error:
            await services.client.init_project(f"box:{place}")
        assert error.value.reason is Reason.WORKSPACE_UNAVAILABLE, place
    with pytest.raises(PreconditionError, match="no sandbox host 'crate' is registered"):
        await services.client.init_project("crate:/other")


@shared
async def test_a_project_whose_place_became_a_link_is_not_found_any_more(services):
    services.files.rename(services.files.with_name("moved"))
    services.files.symlink_to("other")
    services.script(DONE)
    ended = await services.until(await services.act())
    assert (ended.status, "no such directory on its sandbox host" in ended.reason) == (500, True)


@shared
async def test_only_admins_register_places_and_members_work_in_them(services):
    async with person(services, "ann") as ann:
        for place in ("box:/other", "box:/nowhere"):
            with pytest.raises(DeniedError):
                await ann.init_project(place)
        root = f"box:/{services.files.name}"
        found = await ann.init_project(root)
        assert (found.name, found.root) == (services.project, root)


@shared
async def test_a_host_that_names_another_project_gets_nothing_of_it(services, tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    own = await services.client.init_project(str(mine))
    place = services.files.with_name("taken")
    shutil.copytree(mine, place)
    (place / ".turnwright" / "workspace").write_text((mine / ".turnwright" / "workspace").read_text().splitlines()[0])
    found = await services.client.init_project("box:/taken")
    assert found.name != own.name
    assert (await services.client.init_project(str(mine))).name == own.name


@shared
async def test_constraints_hold_on_the_host(services):
    for file in ("kept.txt", "hidden.txt"):
        (services.files / file).write_text("old\n")
    readonly, ignore = project_pb2.FILE_CONSTRAINT_KIND_READONLY, project_pb2.FILE_CONSTRAINT_KIND_IGNORE
    await services.client.set_file_constraints(services.project, {"kept.txt": readonly, "hidden.txt": ignore})
    services.script(DONE)
    await services.until(await services.act())
    call = services.client.call_tool
    assert (await call(services.project, "r", "set", {"path": "kept.txt"}, "new")).outcome == "permission:403"
    assert (await call(services.project, "r", "get", {"path": "hidden.txt"})).outcome == "permission:403"
    assert (await call(services.project, "r", "get", {"path": "kept.txt"})).outcome == ""


@shared
async def test_ten_megabytes_of_output_are_kept_to_their_limit(services):
    services.script(f"<sh>head -c 10000000 /dev/zero | tr '\\0' x; echo end</sh>{GO_ON}", DONE)
    assert (await services.until(await services.act())).status == 200
    [record] = [one async for one in services.client.list_entries(services.project, "r", "log://turn_1/sh/*")]
    output = await services.entry(record.path.replace("log://turn_1/sh/", "sh://turn_1/") + "_1")
    assert output.body.endswith("xend\n")
    assert 1_000_000 < len(output.body) < 1_100_000
    assert json.loads(record.attributes_json)["output_cut"]


@shared
async def test_runs_have_no_places_of_their_own_there(services):
    services.script(DONE)
    wanted = settings_pb2.RunSettings(place=settings_pb2.PLACE_CLONE)
    loop = settings_pb2.LoopSettings(model="m", yolo=True)
    queued = await services.client.act(services.project, "Do it.", run="r", settings=loop, run_settings=wanted)
    ended = await services.until(queued)
    assert ended.status == 500
    assert "runs have no places of their own" in ended.reason


@shared
async def test_an_abort_stops_a_command_and_keeps_what_it_had_written(services):
    services.script(f"<sh>echo begun; trap 'echo asked; exit' TERM; echo $$ > pid; sleep 600 & wait</sh>{GO_ON}", DONE)
    queued = await services.act()
    while not (services.files / "pid").exists() or not (services.files / "pid").read_text():  # noqa: ASYNC110
        await asyncio.sleep(0.05)
    await services.client.abort(services.project, "r")
    assert (await services.until(queued)).status == 499
    [record] = [one async for one in services.client.list_entries(services.project, "r", "log://turn_1/sh/*")]
    assert record.outcome == "stopped:499"
    output = await services.entry(record.path.replace("log://turn_1/sh/", "sh://turn_1/") + "_1")
    assert output.body == "begun\nasked\n"
    assert not is_alive(int((services.files / "pid").read_text()))


@shared
async def test_a_host_that_is_away_costs_a_loop_and_nothing_else(made, services):
    _, server = made
    (services.files / "a.txt").write_text("one\n")
    services.script(DONE, f'<get path="a.txt"/>{GO_ON}', DONE)
    assert (await services.until(await services.act())).status == 200
    await server.stop()
    ended = await services.until(await services.act())
    assert ended.status == 500
    assert "start it again there, and go on" in ended.reason
    status = await services.client.get_status(check_models=True)
    [state] = status.tool_servers
    assert (state.name, state.condition) == ("box", tools_pb2.TOOL_SERVER_CONDITION_AWAY)
    again = host_server(services.root)
    await again.start()
    try:
        (services.files / "a.txt").write_text("two\n")
        (services.files / "b.txt").write_text("new\n")
        async with asyncio.timeout(60):
            while (await services.until(await services.act())).status != 200:
                pass
        # The host has forgotten what it had seen.
        assert (await services.entry("a.txt")).body == "two\n"
        assert (await services.entry("b.txt")).body == "new\n"
    finally:
        await again.stop()
        await server.start()


@pytest.mark.asyncio
async def test_a_host_refuses_whoever_does_not_have_its_secret(tmp_path, monkeypatch, shop):
    async with (
        host(tmp_path),
        stack(tmp_path, monkeypatch, registered(tmp_path, "secret-of-another"), sandbox_away_s=600.0) as services,
    ):
        with pytest.raises(PreconditionError, match="The token does not belong to this deployment"):
            await services.client.init_project("box:/shop")
        # Nor does the deployment's own secret open it.
        error = await refused(tmp_path, "find", SECRET, path="a.txt")
        assert error.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.asyncio
async def test_nobody_waits_for_a_host_whose_secret_is_not_there(tmp_path, monkeypatch):
    keyless = {"address": f"unix:{tmp_path}/box.sock", "workspaces": True, "secret_headers": {"authorization": "box"}}
    async with host(tmp_path), stack(tmp_path, monkeypatch, {"box": keyless}, sandbox_away_s=600.0) as services:
        with pytest.raises(PreconditionError, match=r"has no \[secret.box\] for it"):
            await services.client.init_project("box:/shop")


@pytest.mark.asyncio
async def test_a_server_that_the_operator_has_not_made_a_host_has_no_projects():
    servers = [RegisteredServer("box", "127.0.0.1:1")]
    with pytest.raises(PreconditionError, match="`workspaces = true`"):
        await GrpcSandboxHosts(None, lambda: servers, HostSettings(0.0, 1, 1, 1)).locate("box:/shop")


@pytest.mark.asyncio
@pytest.mark.parametrize("backend", ["bubblewrap", "landlock"])
async def test_commands_see_neither_other_projects_nor_the_secret_of_the_host(tmp_path, monkeypatch, shop, backend):
    if backend == "landlock" and landlock.problem():
        left_out("Landlock", landlock.problem())
    if backend == "bubblewrap" and not shutil.which("bwrap"):
        left_out("bubblewrap", "install it")
    (shop / "link").symlink_to("../other")
    tries = (f"{shop.parent}/other/canary.txt", "link/canary.txt", "../other/canary.txt", f"{tmp_path}/host/token")
    reading = "; ".join(f"cat {path}" for path in tries)
    async with host(tmp_path, sh_sandbox=backend), hosted_stack(tmp_path, monkeypatch) as services:
        (tmp_path / "host" / "token").write_text(TOKEN)
        services.script(f"<sh>cat a.txt; {reading}; env; echo mine > ../other/made</sh>{GO_ON}", DONE)
        assert (await services.until(await services.act())).status in (200, 422)
        found = [one async for one in services.client.list_entries(services.project, "r", "sh://turn_1/*")]
        said = "".join(one.body for one in found)
        assert said.startswith("old\n")
        assert "secret\n" not in said
        assert TOKEN not in said
        assert not (shop.parent / "other" / "made").exists()


@pytest.mark.asyncio
async def test_a_host_is_registered_as_the_page_says_and_has_no_tools_for_models(tmp_path, monkeypatch, shop):
    page = (Path(__file__).parents[3] / "docs" / "sandboxes.md").read_text()
    file = page.partition("```toml\n")[2].partition("```")[0].replace("127.0.0.1:7446", f"unix:{tmp_path}/box.sock")
    (tmp_path / "page.toml").write_text(file)
    monkeypatch.setenv("BOX_AUTHORIZATION", f"Bearer {TOKEN}")
    monkeypatch.setenv("TURNWRIGHT_TOOL_SERVERS", str(tmp_path / "page.toml"))
    async with host(tmp_path), running(tmp_path) as services:
        project = await services.client.init_project("box:/shop")
        assert (project.name, project.root) == ("shop", "box:/shop")
        answer = await services.client.list_tools(project.name, check=True)
        assert not [tool.name for tool in answer.tools if tool.name.startswith("box.")]
        [state] = answer.servers
        assert (state.name, state.condition, state.tools) == ("box", tools_pb2.TOOL_SERVER_CONDITION_READY, 0)
