"""Rows of projects, models and schemes."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Callable, Sequence
from pathlib import PurePosixPath
from typing import Any, Final

import msgspec
from msgspec import Struct
from msgspec.structs import asdict
from sqlalchemy import Connection, Table, bindparam, delete, func, insert, literal, select, update
from turnwright_values.types import Assembly, Capabilities, Model, Price, Project, ReportedWindow, Tier

from turnwright_core.errors import Reason, fault, project_not_found
from turnwright_core.schemes import Scheme
from turnwright_core.suggestions import unknown_model
from turnwright_store.sql.clauses import insertion, picked
from turnwright_store.sql.scopes import find_meta, put_meta
from turnwright_store.sql.tables import meta, models, projects, schemes


class ProjectRow(Struct, frozen=True):
    """A project with its keys."""

    id: int
    scope: int
    project: Project


_PROJECT: Final = select(
    projects.c.id,
    projects.c.scope_id,
    projects.c.name,
    projects.c.root,
    projects.c.workspace_id,
    projects.c.create_ms,
    projects.c.config_path,
    projects.c.assembly,
)
_PROJECT_BY_NAME: Final = _PROJECT.where(projects.c.name == bindparam("name"))
_PROJECT_BY_WORKSPACE: Final = _PROJECT.where(projects.c.workspace_id == bindparam("workspace"))
_PROJECT_PAGE: Final = (
    _PROJECT.where(projects.c.name > bindparam("after")).order_by(projects.c.name).limit(bindparam("page"))
)
_PROJECTS_NAMED: Final = _PROJECT.where(projects.c.name.in_(bindparam("names", expanding=True))).order_by(
    projects.c.name
)
_AT: Final = func.rtrim(projects.c.root, literal("/"))
_NESTED: Final = select(projects.c.name).where(
    projects.c.workspace_id != bindparam("workspace"),
    # No LIKE: it has wildcards, and on SQLite it does not look at case.
    _AT.in_(bindparam("above", expanding=True))
    | (func.substr(projects.c.root, literal(1), bindparam("length")) == bindparam("below")),
)
_PROJECT_ADD: Final = insert(projects).returning(projects.c.id)
_PROJECT_CHANGE: Final = update(projects).where(projects.c.id == bindparam("project"))
_CHANGED: Final = ("root", "config_path", "assembly")

_WINDOW_KEY: Final = "window:"
"""Before a `vendor/model` in `meta`: the window that a refusal reported, as JSON."""

_MODEL: Final = select(
    models.c.alias,
    models.c.vendor_model,
    models.c.context_length,
    models.c.output_tokens_max,
    models.c.capabilities,
    models.c.price,
    meta.c.value,
).outerjoin_from(models, meta, meta.c.key == literal(_WINDOW_KEY) + models.c.vendor_model)
_MODEL_BY_ALIAS: Final = _MODEL.where(models.c.alias == bindparam("wanted"))
_MODEL_PAGE: Final = _MODEL.where(models.c.alias > bindparam("after")).order_by(models.c.alias).limit(bindparam("page"))
_ALIASES: Final = select(models.c.alias).order_by(models.c.alias)
_MODELS_DELETE: Final = delete(models).where(models.c.alias.in_(bindparam("aliases", expanding=True)))
_MODELS_ADD: Final = insertion(models)
_WINDOW_DELETE: Final = delete(meta).where(meta.c.key == bindparam("wanted"))

_SCHEMES: Final = select(
    schemes.c.name, schemes.c.category, schemes.c.default_scope, schemes.c.writable_by, schemes.c.model_visible
).order_by(schemes.c.name)
_SCHEMES_DELETE: Final = delete(schemes).where(schemes.c.name.in_(bindparam("names", expanding=True)))
_SCHEMES_ADD: Final = insertion(schemes)


def _project(row: Sequence[Any]) -> ProjectRow:
    key, scope, name, root, workspace_id, create_ms, config_path, assembly = row
    project = Project(name, root, workspace_id, create_ms, config_path, assembly=Assembly(assembly))
    return ProjectRow(key, scope, project)


def find_project(connection: Connection, name: str) -> ProjectRow | None:
    row = connection.execute(_PROJECT_BY_NAME, {"name": name}).one_or_none()
    return _project(row) if row else None


def get_project(connection: Connection, name: str) -> ProjectRow:
    """A project by name. Raises PROJECT_NOT_FOUND."""
    return find_project(connection, name) or _no_project(name)


def project_id_of(connection: Connection, name: str) -> int:
    """The id of a project; 0: the deployment. Raises PROJECT_NOT_FOUND."""
    return get_project(connection, name).id if name else 0


def counting(table: Table) -> Callable[[Connection, int], int]:
    """What counts the rows that a project, or the deployment, has in a table."""
    count = select(func.count()).select_from(table).where(table.c.project_id == bindparam("project"))
    return lambda connection, project_id: int(connection.execute(count, {"project": project_id}).scalar_one())


def _no_project(name: str) -> ProjectRow:
    raise project_not_found(name)


def find_workspace(connection: Connection, workspace_id: str) -> ProjectRow | None:
    row = connection.execute(_PROJECT_BY_WORKSPACE, {"workspace": workspace_id}).one_or_none()
    return _project(row) if row else None


def nested_projects(connection: Connection, root: str, workspace_id: str) -> list[str]:
    """The projects of other workspaces whose directory is this one, lies in it, or contains it."""
    path = PurePosixPath(root)
    above = [str(one).rstrip("/") for one in (path, *path.parents)]
    below = f"{above[0]}/"
    values = {"workspace": workspace_id, "above": above, "below": below, "length": len(below)}
    return list(connection.execute(_NESTED, values).scalars())


def list_projects(connection: Connection, names: Sequence[str] | None, after: str, page: int) -> list[Project]:
    """Projects after a name, by name; of those with one of these names, in their order, if there are any."""
    if names is None:
        return [_project(row).project for row in connection.execute(_PROJECT_PAGE, {"after": after, "page": page})]
    wanted = list(names[bisect_right(names, after) :][:page])
    return [_project(row).project for row in connection.execute(_PROJECTS_NAMED, {"names": wanted})] if wanted else []


def add_project(connection: Connection, scope: int, project: Project) -> int:
    return int(connection.execute(_PROJECT_ADD, {"scope_id": scope, **asdict(project)}).scalar_one())


def change_project(connection: Connection, project_id: int, project: Project) -> None:
    """Write what of a project can change."""
    connection.execute(_PROJECT_CHANGE, {"project": project_id, **picked(asdict(project), _CHANGED)})


_CAPABILITIES: Final = msgspec.json.Decoder(Capabilities)
_WINDOW: Final = msgspec.json.Decoder(ReportedWindow)
_PRICE: Final = msgspec.json.Decoder(Price)


def _model(row: Sequence[Any]) -> Model:
    alias, vendor_model, context_length, output_tokens_max, capabilities, price, reported = row
    can, window = _CAPABILITIES.decode(capabilities), _window(reported)
    cost = _PRICE.decode(price) if price else None
    return Model(alias, vendor_model, context_length, output_tokens_max, can, window, cost)


def _window(reported: str | None) -> ReportedWindow | None:
    return _WINDOW.decode(reported) if reported else None


def find_model(connection: Connection, alias: str) -> Model | None:
    """The model of an alias; `vendor/model` is one without: no alias has a slash."""
    vendor, slash, name = alias.partition("/")
    if slash:
        if not (vendor and name):
            return None
        return Model(alias, alias, reported_window=_window(find_meta(connection, _WINDOW_KEY + alias)))
    row = connection.execute(_MODEL_BY_ALIAS, {"wanted": alias}).one_or_none()
    return _model(row) if row else None


def get_model(connection: Connection, alias: str) -> Model:
    """A model by alias. Raises MODEL_NOT_FOUND."""
    model = find_model(connection, alias)
    if model is None:
        raise model_not_found(connection, alias)
    return model


def model_not_found(connection: Connection, alias: str) -> Exception:
    known = list(connection.execute(_ALIASES).scalars())
    return fault(Reason.MODEL_NOT_FOUND, unknown_model(alias, known), model=alias, available=",".join(known))


def list_models(connection: Connection, after: str, page: int) -> list[Model]:
    return [_model(row) for row in connection.execute(_MODEL_PAGE, {"after": after, "page": page})]


def put_models(connection: Connection, wanted: Sequence[Model]) -> None:
    """Add models, replacing those with the same alias; of two in the list the last one stays."""
    by_alias = {model.alias: model for model in wanted}
    if not by_alias:
        return
    connection.execute(_MODELS_DELETE, {"aliases": list(by_alias)})
    rows = [
        {
            **picked(asdict(model), ("alias", "vendor_model", "context_length", "output_tokens_max")),
            "capabilities": msgspec.json.encode(model.capabilities).decode(),
            "price": msgspec.json.encode(model.price).decode() if model.price else "",
        }
        for model in by_alias.values()
    ]
    connection.execute(_MODELS_ADD, rows)


def put_window(connection: Connection, vendor_model: str, window: ReportedWindow) -> None:
    """Keep what a refusal reported about a model, for all aliases of it."""
    put_meta(connection, _WINDOW_KEY + vendor_model, msgspec.json.encode(window).decode())


def forget_window(connection: Connection, vendor_model: str) -> None:
    connection.execute(_WINDOW_DELETE, {"wanted": _WINDOW_KEY + vendor_model})


def delete_model(connection: Connection, alias: str) -> bool:
    """Delete a model; returns whether it existed."""
    return bool(connection.execute(_MODELS_DELETE, {"aliases": [alias]}).rowcount)


def model_required(connection: Connection) -> Exception:
    """The error for a request without a model if there is no default (RU100)."""
    known = list(connection.execute(_ALIASES).scalars())
    if not known:
        return fault(
            Reason.MODEL_REQUIRED,
            "No model is configured. Run `turnwright init`, or name one as vendor/model: `--model openrouter/...`.",
            available="",
        )
    problem = f"Name a model. Available: {', '.join(known)}. Or name one as vendor/model."
    return fault(Reason.MODEL_REQUIRED, problem, available=",".join(known))


def list_schemes(connection: Connection) -> list[Scheme]:
    return [
        Scheme(name, category, scope, frozenset(Tier[tier.upper()] for tier in json.loads(writable_by)), visible)
        for name, category, scope, writable_by, visible in connection.execute(_SCHEMES)
    ]


def put_schemes(connection: Connection, wanted: Sequence[Scheme]) -> None:
    """Add schemes, replacing those with the same name."""
    connection.execute(_SCHEMES_DELETE, {"names": [scheme.name for scheme in wanted]})
    rows = [
        {**asdict(scheme), "writable_by": json.dumps([tier.name.lower() for tier in sorted(scheme.writable_by)])}
        for scheme in wanted
    ]
    connection.execute(_SCHEMES_ADD, rows)
