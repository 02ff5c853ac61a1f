"""gen/python holds the modules of every proto, the values of messages, the OpenAPI document, and nothing else.

Whether their content is fresh is `make gen-check`'s question: it runs the generator, which is not
installed where the tests run.
"""

import re
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
PROTOS = REPO / "protos"
GENERATED = REPO / "gen" / "python"

SERVICE = re.compile(r"^service\s+\w+", re.MULTILINE)
ALWAYS = ("_pb2.py", "_pb2.pyi")
WITH_SERVICE = ("_pb2_grpc.py",)
# The generator writes service modules for every proto, and one of the plugins writes their stubs.
POSSIBLE = (*ALWAYS, *WITH_SERVICE, "_pb2_grpc.pyi")
TOGETHER = ("py.typed", "openapi.json")


def protos() -> dict[str, str]:
    """Every proto: its path without the suffix -> its text."""
    files = sorted(PROTOS.rglob("*.proto"))
    assert files, f"no proto below {PROTOS}"
    return {f.relative_to(PROTOS).with_suffix("").as_posix(): f.read_text(encoding="utf-8") for f in files}


def generated() -> list[str]:
    """The modules of protos, without caches and what is made of all protos together."""
    files = (f for f in sorted((GENERATED / "turnwright").rglob("*")) if f.is_file() and "__pycache__" not in f.parts)
    return [f.relative_to(GENERATED).as_posix() for f in files if f.name not in TOGETHER]


def modules_wanted(stem: str, text: str) -> set[str]:
    """The generated files that a proto cannot do without."""
    return {stem + suffix for suffix in ALWAYS + (WITH_SERVICE if SERVICE.search(text) else ())}


def orphans(files: list[str], stems: set[str]) -> list[str]:
    """Files that no proto explains."""
    possible = {stem + suffix for stem in stems for suffix in POSSIBLE}
    return [file for file in files if file not in possible]


def test_every_proto_has_its_generated_modules() -> None:
    wanted = {file for stem, text in protos().items() for file in modules_wanted(stem, text)}
    missing = sorted(wanted - set(generated()))
    assert not missing, f"run `make gen` and commit gen/; missing in {GENERATED}: {missing}"


def test_no_generated_module_lacks_its_proto() -> None:
    # An __init__.py counts too: `turnwright` is a namespace package.
    left = orphans(generated(), set(protos()))
    assert not left, f"remove these files of gen/python, no proto generates them: {left}"


def test_modules_wanted_and_orphans_are_distinguished_by_suffix() -> None:
    assert modules_wanted("a/v1/x", "message X {}") == {"a/v1/x_pb2.py", "a/v1/x_pb2.pyi"}
    assert "a/v1/x_pb2_grpc.py" in modules_wanted("a/v1/x", "service XService {}")
    assert orphans(["a/v1/x_pb2.py", "a/v1/old_pb2.py", "a/__init__.py"], {"a/v1/x"}) == [
        "a/v1/old_pb2.py",
        "a/__init__.py",
    ]
