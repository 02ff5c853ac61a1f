"""`python -m turnwright_store`: the store in a process of its own."""

from turnwright_core.kit.main import run_service
from turnwright_store.config import StoreSettings
from turnwright_store.wiring import build

if __name__ == "__main__":
    run_service(StoreSettings, "127.0.0.1:7441", build)
