"""`python -m turnwright_provider`: the provider as a separate process."""

from turnwright_kit.main import run_service
from turnwright_provider.config import DEFAULT_LISTEN, ProviderSettings
from turnwright_provider.wiring import build

if __name__ == "__main__":
    run_service(ProviderSettings, DEFAULT_LISTEN, build)
