"""gRPC ignores options that it does not know, so a misspelled one does nothing and nobody notices."""

import re
from pathlib import Path

from grpc._cython import cygrpc

SERVICES = Path(__file__).resolve().parents[2] / "services"


def test_grpc_knows_each_option_of_channels_and_servers() -> None:
    used = {
        name
        for path in SERVICES.rglob("*.py")
        for name in re.findall(r'"(grpc\.[a-z0-9_.]*_[a-z0-9_.]+)"', path.read_text())
    }
    assert len(used) > 10
    library = Path(cygrpc.__file__).read_bytes()
    assert sorted(name for name in used if name.encode() not in library) == []
