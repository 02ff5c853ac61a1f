"""`python -m turnwright_store`: the store in a process of its own."""

from turnwright_kit.main import run_service
from turnwright_store.config import DEFAULT_LISTEN, StoreSettings
from turnwright_store.wiring import build

if __name__ == "__main__":
    run_service(StoreSettings, DEFAULT_LISTEN, build)
