"""Registry of projects, models, schemes and runs. Source: rows RU002, RU096-RU100; C13."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import PurePath
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace
from sqlalchemy import Connection
from turnwright_values.types import Loop, Model, Place, Project, Run, RunPlace, RunSettings, SessionState, Turn

from turnwright_core.checks import check_count, check_words, invalid
from turnwright_core.errors import Reason, TurnwrightError, fault
from turnwright_core.limits import NAME_CHARS_MAX, PAGE_SIZE_MAX
from turnwright_core.runs import QUEUED, RUNNING
from turnwright_core.session import is_active, session_state
from turnwright_core.text import host_and_path
from turnwright_core.titles import beginning_of
from turnwright_kit.identity.caller import Caller
from turnwright_store.app.grants import add_owner
from turnwright_store.domain.checks import (
    ROOT_CHARS_MAX,
    RUN_ALIAS,
    check_model,
    check_name,
    check_run_settings,
    page_size,
)
from turnwright_store.domain.message_sizes import loop_bytes, run_bytes, turn_bytes
from turnwright_store.domain.names import place_name, project_names, run_aliases
from turnwright_store.domain.pages import PLACE_MAX, decode_page_token, page_of
from turnwright_store.ports import Transaction
from turnwright_store.sql import loops, registry, runs, turns
from turnwright_store.sql.forks import run_of_turn
from turnwright_store.sql.leases import read_now
from turnwright_store.sql.scopes import add_bumped_scope, add_scope
from turnwright_store.sql.sessions import waiting_commands

SHARED: Final = (Place.UNSPECIFIED, Place.SHARED)
"""Where runs have no directory of their own."""

_LAST_MS = 2**62
"""Later than any time: the start of a list in reverse order."""


def init_project(
    tx: Transaction,
    root: str,
    workspace_id: str,
    name: str,
    owner: str = "",
    uses_files: Callable[[str], bool] | None = None,
    **changes: Any,
) -> Project:
    """Register a project, or update the root and the given fields of that of the workspace (RU226).

    `owner` owns it if this call creates it; empty: nobody does. `uses_files`: whether the caller may use the files of a
    project; None: of all. Raises RIGHT_MISSING for a directory that shares files with a project where it may not.
    """
    check_words("root", root, ROOT_CHARS_MAX)
    if not (PurePath(root).is_absolute() or host_and_path(root)[0]):
        raise invalid("root", f"root must be an absolute path, or HOST:/path; it is {root!r}.")
    check_words("workspace_id", workspace_id, NAME_CHARS_MAX)
    if not workspace_id:
        raise invalid("workspace_id", "workspace_id is required.")
    check_words("config_path", changes.get("config_path", ""), ROOT_CHARS_MAX)
    found = registry.find_workspace(tx.connection, workspace_id)
    before = found.project if found else Project(_project_name(tx, root, name), root, workspace_id, tx.now_ms)
    project = replace(before, root=root, **changes)
    if uses_files and not (found and root == before.root):
        nested = registry.nested_projects(tx.connection, root, workspace_id)
        if not all(map(uses_files, nested)):
            # It does not say that somebody's project is there.
            message = f"You cannot register {root!r}: it needs `admin` in the deployment."
            raise fault(Reason.RIGHT_MISSING, message, right="admin", project="")
    if found:
        # Who opens a project says what is known of it.
        tx.is_change = project != before
        if tx.is_change:
            registry.change_project(tx.connection, found.id, project)
    else:
        project_id = registry.add_project(tx.connection, add_scope(tx, f"project:{workspace_id}"), project)
        if owner:
            add_owner(tx, project_id, project.name, owner)
    return project


def _project_name(tx: Transaction, root: str, wanted: str) -> str:
    if not wanted:
        return next(name for name in project_names(root) if registry.find_project(tx.connection, name) is None)
    check_name("name", wanted)
    if registry.find_project(tx.connection, wanted) is not None:
        raise invalid("name", f"The name {wanted!r} cannot be used: choose another, or leave it empty.")
    return wanted


def get_project(connection: Connection, name: str, workspace_id: str) -> Project:
    """The project of this name, or else of this workspace. Raises PROJECT_NOT_FOUND."""
    if name:
        return registry.get_project(connection, name).project
    if not workspace_id:
        raise invalid("project", "Name the project, or its workspace_id; only an executor finds one by its root.")
    found = registry.find_workspace(connection, workspace_id)
    if found is None:
        raise no_workspace(workspace_id)
    return found.project


def no_workspace(workspace_id: str) -> TurnwrightError:
    """The error for a workspace that is not registered, or whose project is closed to the caller."""
    return fault(Reason.PROJECT_NOT_FOUND, f"The workspace {workspace_id!r} is not registered.", project="")


def list_projects(
    connection: Connection, names: Sequence[str] | None, size: int, token: str
) -> tuple[list[Project], str]:
    """A page of the projects, by name; of those with one of these names, if there are any."""
    size = page_size(size)
    (after,) = decode_page_token(token, str) or ("",)
    found = registry.list_projects(connection, names, str(after), size + 1)
    return page_of(found, size, lambda project: (project.name,), lambda project: len(f"{project}".encode()))


def set_model(tx: Transaction, model: Model) -> Model:
    """Add a model or replace the one with the same alias."""
    check_model(model)
    registry.put_models(tx.connection, [model])
    registry.forget_window(tx.connection, model.vendor_model)
    return replace(model, reported_window=None)


def list_models(connection: Connection, size: int, token: str) -> tuple[list[Model], str]:
    size = page_size(size)
    (after,) = decode_page_token(token, str) or ("",)
    found = registry.list_models(connection, str(after), size + 1)
    return page_of(found, size, lambda model: (model.alias,))


def delete_model(tx: Transaction, alias: str) -> None:
    if not registry.delete_model(tx.connection, alias):
        raise registry.model_not_found(tx.connection, alias)


def create_run(tx: Transaction, caller: Caller, project: str, alias: str, settings: RunSettings) -> Run:
    """A new run without work. Raises RUN_EXISTS, MODEL_REQUIRED, MODEL_NOT_FOUND."""
    owner = registry.get_project(tx.connection, project)
    if settings.model:
        registry.get_model(tx.connection, settings.model)
    return add_run(tx, caller, owner, alias, settings).run


def check_alias_free(connection: Connection, project: str, alias: str) -> None:
    """Refuse an alias that is taken in the project. Raises RUN_EXISTS."""
    if runs.is_taken(connection, project, alias):
        raise run_exists(project, alias)


def run_exists(project: str, alias: str) -> Exception:
    message = f"There is a run {alias!r} in {project} already: choose another alias."
    return fault(Reason.RUN_EXISTS, message, project=project, run=alias)


def generate_alias(tx: Transaction, project: str, model: str) -> str:
    aliases = run_aliases(model, tx.now_ms)
    return next(made for made in aliases if not runs.is_taken(tx.connection, project, made))


def add_run(
    tx: Transaction, caller: Caller, owner: registry.ProjectRow, alias: str, settings: RunSettings
) -> runs.RunRow:
    """A new run; an empty alias is generated, and its model must exist. Raises RUN_EXISTS."""
    if not settings.model:
        raise registry.model_required(tx.connection)
    check_run_settings(settings)
    if alias:
        check_name("run", alias, RUN_ALIAS)
        check_alias_free(tx.connection, owner.project.name, alias)
    else:
        alias = generate_alias(tx, owner.project.name, settings.model)
    scope, revision = add_bumped_scope(tx, f"run:{owner.id}:{alias}")
    run = Run(
        owner.project.name,
        alias,
        settings,
        QUEUED,
        revision=revision,
        create_ms=tx.now_ms,
        update_ms=tx.now_ms,
        place=own_place(settings, alias),
    )
    runs.add_run(tx.connection, owner.id, scope, run, caller.name)
    return runs.get_run(tx.connection, owner.project.name, alias)


def own_place(settings: RunSettings, alias: str) -> RunPlace | None:
    """The place of a new run; None: that of its project."""
    return None if settings.place in SHARED else RunPlace(place_name("" if settings.private else alias))


class RunPage(Struct, frozen=True):
    """A page of a list of runs."""

    project_id: int
    rows: list[runs.RunRow]
    next_token: str


def list_runs(connection: Connection, project: str, size: int, token: str) -> RunPage:
    """A page of a project's runs, most recently written first.

    A run that is written between two pages moves to the front, which was passed already. So the list does not end
    before it has shown once more what was written since its first page.
    """
    size = page_size(size)
    owner = registry.get_project(connection, project)
    place = decode_page_token(token, int, int, int, int, int)
    if place is None:
        found = list(runs.list_runs(connection, owner, (_LAST_MS, 0), size + 1))
        top = (found[0].run.update_ms, found[0].id) if found else (_LAST_MS, 0)
        rows: Iterable[tuple[int, runs.RunRow]] = ((0, row) for row in found)
    else:
        at, key, top_ms, top_id, was_moved = map(int, place)
        top = top_ms, top_id
        unmoved = () if was_moved else runs.list_runs(connection, owner, (at, key), size + 1)
        moved = runs.list_moved(connection, owner, top, key if was_moved else PLACE_MAX, size + 1)
        rows = chain(((0, row) for row in unmoved), ((1, row) for row in moved))
    page, next_token = page_of(
        rows, size, lambda one: (one[1].run.update_ms, one[1].id, *top, one[0]), lambda one: run_bytes(one[1].run)
    )
    return RunPage(owner.id, [row for _, row in page], next_token)


def get_run(connection: Connection, project: str, alias: str) -> tuple[Run, str | None]:
    """A run, and for whom alone it is there if it is private."""
    row = runs.get_run(connection, project, alias)
    return with_origin(connection, row), row.private_to


def with_origin(connection: Connection, row: runs.RunRow) -> Run:
    return with_origins(connection, [row])[0]


def with_origins(connection: Connection, rows: Sequence[runs.RunRow]) -> list[Run]:
    # Most runs have one loop, which came with them.
    prompts = {row.id: row.run.loop.prompt for row in rows if row.run.loop and row.run.loop.sequence == 1}
    prompts |= loops.first_prompts(connection, [row.id for row in rows if row.run.loop and row.id not in prompts])
    return [_with_origin(connection, row, prompts.get(row.id, "")) for row in rows]


def _with_origin(connection: Connection, row: runs.RunRow, prompt: str) -> Run:
    """`prompt`: its first one. The clock is read only if somebody seems to hold the run."""
    asked = row.title_call.title if row.title_call else ""
    title = row.run.settings.title or asked or beginning_of(prompt)
    run = replace(row.run, state=session_state_of(connection, row), title=title)
    if run.status != RUNNING or not row.lease_owner:
        return run
    return replace(run, held=row.lease_expires_ms > read_now(connection))


def session_state_of(connection: Connection, row: runs.RunRow) -> SessionState:
    waiting = waiting_commands(connection, row.id, row.run.turn) if is_active(row.run) else {}
    loop = row.run.loop
    status, reason = (loop.status, loop.reason) if loop else (0, "")
    return session_state(status, reason, row.run.loops_queued, {wait for wait, _ in waiting.values()})


def latest_run(connection: Connection, project: str) -> str:
    """The run of a project that was written last. Raises RUN_NOT_FOUND."""
    found = list_runs(connection, project, 1, "").rows
    if not found:
        raise fault(Reason.RUN_NOT_FOUND, f"There is no run in {project} yet.", project=project, run="")
    return found[0].alias


def list_loops(connection: Connection, project: str, alias: str, size: int, token: str) -> tuple[list[Loop], str]:
    """A page of a run's loops, latest first."""
    size = page_size(size)
    (before,) = decode_page_token(token, int) or (_LAST_MS,)
    run = runs.get_run(connection, project, alias)
    found = loops.list_loops(connection, run.id, int(before), size + 1)
    return page_of(found, size, lambda loop: (loop.sequence,), loop_bytes)


def list_turns(connection: Connection, project: str, alias: str, size: int, token: str) -> tuple[list[Turn], str]:
    """A page of a run's turns, latest first."""
    size = page_size(size)
    (before,) = decode_page_token(token, int) or (_LAST_MS,)
    run = runs.get_run(connection, project, alias)
    found = turns.list_turns(connection, run.id, int(before), size + 1)
    return page_of(found, size, lambda turn: (turn.number,), turn_bytes)


def turns_by_number(connection: Connection, project: str, alias: str, numbers: Sequence[int]) -> list[Turn]:
    """Turns of a run, and those that it inherited; without those that there are not."""
    check_count("numbers", len(numbers), PAGE_SIZE_MAX)
    run = runs.get_run(connection, project, alias)
    # Those of a page of messages follow one another.
    span = min(PAGE_SIZE_MAX, max(numbers) - min(numbers) + 1)
    own = {turn.number: turn for turn in turns.list_turns(connection, run.id, max(numbers) + 1, span)}
    found = (own.get(number) or _inherited(connection, run.id, number) for number in sorted(set(numbers)))
    return [turn for turn in found if turn]


def _inherited(connection: Connection, run_id: int, number: int) -> Turn | None:
    home = run_of_turn(connection, run_id, number)
    return turns.find_turn(connection, home, number) if home else None
