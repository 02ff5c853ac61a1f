"""A provider that calls no vendor loads nothing that calls need: the start of a process is the loading of its modules."""

import os
import subprocess
import sys

import pytest

BUILT = """
import sys
from turnwright_provider.config import ProviderSettings
from turnwright_provider.wiring import build
build(ProviderSettings(token="x"), "x")
print(*sorted(sys.modules))
"""


@pytest.fixture(scope="module")
def loaded() -> set[str]:
    kept = {name: value for name, value in os.environ.items() if not name.endswith(("_BASE_URL", "_API_KEY"))}
    done = subprocess.run(
        [sys.executable, "-c", BUILT], env=kept, capture_output=True, text=True, check=True, timeout=60
    )
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "name",
    ["httpx", "genai_prices", "tomllib", "turnwright_core.runs", "turnwright_core.chat.reply", "turnwright_provider.vendors",
     "turnwright_provider.app.check_models", "turnwright_provider.domain.model_list",
     "turnwright_provider.domain.model_call", "turnwright_provider.domain.wires.chat"],
)  # fmt: skip
def test_what_calls_need_is_loaded_by_the_first_call(loaded, name):
    assert "turnwright_provider.domain.presets" in loaded
    assert name not in loaded
