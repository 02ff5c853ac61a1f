"""Nobody but the store has a database: neither a call nor a plugin gets at one. Row RU047."""

from __future__ import annotations

import pkgutil
import subprocess
import sys

from turnwright.assembler.v1 import assembler_service_pb2
from turnwright.executor.v1 import executor_service_pb2
from turnwright.store.v1 import store_service_pb2

import turnwright_assembler
import turnwright_executor
from turnwright_executor.rpc.mounting import MOUNTED

FORBIDDEN_WORDS = {"sql", "table", "column", "where", "statement", "database", "transaction"}
DRIVERS = {"sqlalchemy", "sqlite3", "psycopg", "aiosqlite", "alembic", "turnwright_store"}


def test_no_call_names_a_table_or_sends_a_statement() -> None:
    requests = [
        method.input_type
        for module in (store_service_pb2, assembler_service_pb2, executor_service_pb2)
        for service in (*module.DESCRIPTOR.services_by_name.values(), *MOUNTED)
        for method in service.methods
    ]
    fields = [(request.name, field.name) for request in requests for field in request.fields]

    assert len(requests) > 50
    assert not [field for field in fields if FORBIDDEN_WORDS & set(field[1].split("_"))]


def test_what_plugins_are_loaded_into_has_no_database() -> None:
    """A plugin cannot even reach for one: executor and assembler, loaded whole, bring no driver along."""
    modules = [
        module.name
        for package in (turnwright_assembler, turnwright_executor)
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
        if not module.name.endswith("__main__")
    ]
    code = f"import importlib, sys\nfor name in {modules!r}: importlib.import_module(name)\nprint(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()

    assert "turnwright_executor.wiring" in loaded
    assert not DRIVERS & set(loaded)
