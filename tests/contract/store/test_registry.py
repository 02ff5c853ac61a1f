"""Projects, models, schemes."""

import pytest
from turnwright.types.v1 import entry_pb2, model_pb2, settings_pb2
from turnwright_values.types import Tier

from contract.store.harness import Client, Run, as_tier, for_tier, new_project, set_, start_store, working_run
from turnwright_core.errors import Reason, TurnwrightError
from turnwright_core.schemes import BUILTIN
from turnwright_core.wire.schemes import scheme_from_pb
from turnwright_kit.settings import SettingsError

pytestmark = pytest.mark.asyncio


async def refused(call) -> TurnwrightError:
    with pytest.raises(TurnwrightError) as caught:
        await call
    return caught.value


async def test_a_project_is_found_again_by_its_workspace(client):
    first = await client.call("InitProject", root="/srv/app", workspace_id="ws")
    moved = await client.call("InitProject", root="/elsewhere/other", workspace_id="ws")
    assert (first.project.name, moved.project.name, moved.project.root) == ("app", "app", "/elsewhere/other")
    assert moved.project.create_time == first.project.create_time
    assert list((await client.call("ListProjects")).projects) == [moved.project]


async def test_a_project_is_read_by_its_name_or_its_workspace(client):
    made = {
        name: (await client.call("InitProject", root=f"/{name}", workspace_id=f"w{name}")).project for name in "abc"
    }
    for name, key in (("b", {"project": "b"}), ("c", {"workspace_id": "wc"})):
        assert (await client.call("GetProject", **key)).project == made[name]
    for key in ({"project": "d"}, {"project": "wa"}, {"workspace_id": "d"}, {"workspace_id": "a"}):
        assert (await refused(client.call("GetProject", **key))).reason is Reason.PROJECT_NOT_FOUND


@pytest.mark.parametrize("key", [{}, {"project": ""}, {"workspace_id": ""}, {"root": "/a"}], ids=str)
async def test_the_store_knows_no_directories_and_guesses_no_project(client, key):
    await client.call("InitProject", root="/a", workspace_id="w")
    error = await refused(client.call("GetProject", **key))
    assert (error.reason, error.metadata["field"]) == (Reason.INVALID_FIELD, "project")


async def test_a_project_keeps_the_path_of_its_settings_until_another_is_named(client):
    """RU096, RU226."""
    paths = [
        (await client.call("InitProject", root="/a", workspace_id="w", **fields)).project.config_path
        for fields in ({}, {"config_path": "a.toml"}, {}, {"config_path": ""})
    ]
    (listed,) = (await client.call("ListProjects")).projects
    assert (paths, listed.config_path) == (["", "a.toml", "a.toml", ""], "")


async def test_the_project_says_how_its_new_runs_are_sent_unless_task_or_run_does(tmp_path):
    """The store's default is a transcript here."""
    server = await start_store(tmp_path, assembly="transcript")
    client = Client(server.address)
    await client.call("SetModel", model=model_pb2.Model(alias="fast", vendor_model="v/m"))
    unset, packet, transcript = settings_pb2.Assembly.values()

    async def sent(run, project=None, task=unset):
        changes = {} if project is None else {"assembly": project}
        kept = (await client.call("InitProject", root="/p", workspace_id="w", **changes)).project.assembly
        settings = settings_pb2.LoopSettings(mode=settings_pb2.MODE_ACT, model="fast", assembly=task)
        queued = await client.call("EnqueueLoop", project="p", run=run, prompt="x", settings=settings)
        return kept, queued.loop.settings.assembly

    assert await sent("a") == (unset, transcript)
    assert await sent("b", packet) == (packet, packet)
    assert await sent("b", transcript) == (transcript, packet)  # The run keeps what it began with.
    assert await sent("c", task=packet) == (transcript, packet)
    assert await sent("d", unset) == (unset, transcript)
    error = await refused(client.call("InitProject", root="/p", workspace_id="w", assembly=9))
    assert error.metadata["field"] == "assembly"
    await client.close()
    await server.stop()


async def test_made_project_names_are_unique(client):
    names = [
        (await client.call("InitProject", root=root, workspace_id=f"ws-{place}")).project.name
        for place, root in enumerate(["/a/app", "/b/app", "/c/my app!", "/"])
    ]
    assert names == ["app", "app-2", "my-app", "project"]
    error = await refused(client.call("InitProject", root="/d", workspace_id="ws-d", name="app"))
    assert error.metadata == {"field": "name"}


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"root": "relative"}, "root"),
        ({"root": ""}, "root"),
        ({"root": "/" + "x" * 4096}, "root"),
        ({"workspace_id": ""}, "workspace_id"),
        ({"workspace_id": "x" * 129}, "workspace_id"),
        ({"name": "a b"}, "name"),
        ({"config_path": "x" * 4097}, "config_path"),
        ({"config_path": "a\x00b"}, "config_path"),
    ],
)
async def test_a_malformed_project_is_refused(client, fields, field):
    error = await refused(client.call("InitProject", **{"root": "/a", "workspace_id": "w"} | fields))
    assert error.metadata["field"] == field
    assert not (await client.call("ListProjects")).projects


async def test_models_are_added_replaced_and_removed(client):
    """RU099: at run time, by rpc."""
    models = [model_pb2.Model(alias=alias, vendor_model=f"v/{alias}", context_length=1) for alias in "cab"]
    assert [(await client.call("SetModel", model=model)).model for model in models] == models
    newer = model_pb2.Model(alias="b", vendor_model="w/x/y:z")
    await client.call("SetModel", model=newer)
    assert list((await client.call("ListModels")).models) == [models[1], newer, models[0]]
    await client.call("DeleteModel", alias="a")
    error = await refused(client.call("DeleteModel", alias="a"))
    assert (error.reason, error.metadata) == (Reason.MODEL_NOT_FOUND, {"model": "a", "available": "b,c"})


async def test_what_is_said_of_a_model_is_kept_and_what_is_not_said_stays_absent(client):
    able = model_pb2.Capabilities(tools=True, images=False)
    said = model_pb2.Model(alias="a", vendor_model="v/m", context_length=9, output_tokens_max=4, capabilities=able)
    bare = model_pb2.Model(alias="b", vendor_model="v/m")
    for model in (said, bare):
        await client.call("SetModel", model=model)
    assert list((await client.call("ListModels")).models) == [said, bare]


async def test_the_window_that_a_refusal_names_is_kept_until_an_alias_is_added_again(client):
    project = await new_project(client)
    run = await working_run(client, project)
    await run.enqueue(model="scripted/a")
    for turn, named in enumerate((4096, 2048), 1):
        await run.begin()
        window = model_pb2.ReportedWindow(context_length=named, known_length=8192)
        ends = (413, "context_exceeded", "") if turn == 2 else None
        await run.end(turn, status=413 if ends else 102, reported_window=window, loop=ends)
    listed = (await client.call("ListModels")).models
    assert [model.reported_window for model in listed] == [window]
    again = model_pb2.Model(alias="other", vendor_model="scripted/a", reported_window=window)

    claimed = await run.claim()
    stored = (await client.call("SetModel", model=again)).model
    assert (claimed.model.vendor_model, claimed.model.reported_window) == ("scripted/a", window)
    assert not any(model.HasField("reported_window") for model in (stored, *(await client.call("ListModels")).models))


@pytest.mark.parametrize(("alias", "vendor_model"), [("a b", "v/m"), ("", "v/m"), ("a", "m"), ("a", "/m"), ("a", "v/")])
async def test_a_malformed_model_is_refused(client, alias, vendor_model):
    model = model_pb2.Model(alias=alias, vendor_model=vendor_model)
    assert (await refused(client.call("SetModel", model=model))).reason is Reason.INVALID_FIELD
    assert not (await client.call("ListModels")).models


async def test_the_registered_schemes_are_listed(client):
    """RU084: rows of name, model_visible, category, default_scope, writable_by."""
    listed = list(map(scheme_from_pb, (await client.call("ListSchemes")).schemes))
    assert [scheme.name for scheme in listed] == sorted(scheme.name for scheme in BUILTIN)
    by_name = {scheme.name: scheme for scheme in listed}
    assert (by_name["known"].category, by_name["known"].default_scope) == ("data", "run")
    assert list(by_name["known"].writable_by) == [entry_pb2.TIER_MODEL, entry_pb2.TIER_PLUGIN]
    assert (by_name[""].category, by_name[""].default_scope, by_name[""].model_visible) == ("data", "project", True)
    assert (by_name["tool"].category, by_name["tool"].model_visible) == ("audit", False)


async def models_after_start(home, monkeypatch, **environment):
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    server = await start_store(home)
    client = Client(server.address)
    models = [(one.alias, one.vendor_model, one.context_length) for one in (await client.call("ListModels")).models]
    await client.call("SetModel", model=model_pb2.Model(alias="by_rpc", vendor_model="v/rpc", context_length=7))
    await client.close()
    await server.stop()
    for name in environment:
        monkeypatch.delenv(name)
    return models


async def test_models_are_seeded_from_the_environment(tmp_path, monkeypatch):
    """RU099: upsert at the start; the alias is written as in the variable."""
    first = await models_after_start(
        tmp_path,
        monkeypatch,
        TURNWRIGHT_MODEL_Big="openai/big",
        TURNWRIGHT_CONTEXT_Big="9",
        TURNWRIGHT_MODEL_small="openai/s",
    )
    assert first == [("Big", "openai/big", 9), ("small", "openai/s", 0)]
    second = await models_after_start(
        tmp_path,
        monkeypatch,
        TURNWRIGHT_MODEL_Big="openai/big",
        TURNWRIGHT_CONTEXT_by_rpc="8",
        TURNWRIGHT_MODEL_small="xai/s",
    )
    assert second == [("Big", "openai/big", 9), ("by_rpc", "v/rpc", 8), ("small", "xai/s", 0)]


async def test_a_context_length_without_its_model_is_an_error_that_names_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TURNWRIGHT_CONTEXT_ghost", "5")
    with pytest.raises(SettingsError, match=r"^TURNWRIGHT_CONTEXT_ghost: "):
        await start_store(tmp_path)
    monkeypatch.delenv("TURNWRIGHT_CONTEXT_ghost")
    server = await start_store(tmp_path)
    await server.stop()
    assert server.service.name == "store"


async def test_a_project_is_its_runs_address_for_everybody(server, client):
    """RU097: no sessions; who knows the project's name reaches its runs."""
    run = await working_run(client, await new_project(client), "r1")
    await run.write(set_("known://a", "x"))
    stranger = as_tier(server.address, Tier.CLIENT, "stranger")
    same = Run(stranger, run.project, "r1")
    assert (await same.get()) == (await run.get())
    assert (await same.entry("known://a")).body == "x"
    assert (await same.enqueue("more")).loop.sequence == 2
    # The alias alone reaches nothing: it is one of a project.
    elsewhere = Run(stranger, await new_project(client, "other"), "r1")
    assert (await refused(elsewhere.get())).reason is Reason.RUN_NOT_FOUND
    await stranger.close()


async def test_a_directory_in_or_around_a_project_is_registered_by_who_may_use_its_files(server, client):
    """Whatever the database takes for a wildcard, or for the same letter."""
    executor = for_tier(server.address, Tier.CLIENT, "mallory")
    for root in ("/srv/a_b/in", "/srv/Hers", "/srv/50%", "/srv/over/there/"):
        await client.call("InitProject", root=root, workspace_id=f"w{root}")
    for root in ("/srv/aXb", "/srv/hers/in", "/srv/500", "/srv/over/there2", "/srv/a_b2"):
        made = await executor.call("InitProject", root=root, workspace_id=f"x{root}")
        assert made.project.root == root
    for root in (
        "/",
        "/srv",
        "/srv/a_b",
        "/srv/Hers",
        "/srv/Hers/in/it",
        "/srv/50%/x",
        "/srv/over/there/x",
        "/srv/over/",
    ):
        with pytest.raises(TurnwrightError) as caught:
            await executor.call("InitProject", root=root, workspace_id=f"y{root}")
        assert caught.value.reason is Reason.RIGHT_MISSING, root
    await executor.close()
