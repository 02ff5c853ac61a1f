"""What a process does not load before something needs it."""

import subprocess
import sys

import pytest

SERVICES = ("store", "assembler", "executor", "provider")


def loaded_after(code: str) -> set[str]:
    """The modules that a process has loaded at the end of some code."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"], capture_output=True, text=True, check=True
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_loads_no_checker_of_schemas_before_a_schema_comes(service: str) -> None:
    assert "jsonschema" not in loaded_after(f"import turnwright_{service}.__main__")


def test_an_executor_without_http_loads_nothing_that_speaks_it() -> None:
    assert not {"connectrpc", "uvicorn", "turnwright_kit.http"} & loaded_after("import turnwright_executor.__main__")


def test_a_provider_without_endpoints_loads_nothing_that_calls_them() -> None:
    loaded = loaded_after(
        "from turnwright_provider import config, wiring\nwiring._servicer(config.ProviderSettings(), [], {})"
    )

    wires = {name for name in loaded if name.startswith("turnwright_provider.domain.wires.") and "_reply" in name}
    assert not wires | loaded & {"httpx", "jsonschema", "tomllib", "turnwright_provider.vendors.http"}
