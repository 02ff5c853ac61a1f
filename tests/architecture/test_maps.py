"""The maps for newcomers are true and short: files that ARCHITECTURE.md and docs/turn.md name exist, in bounds."""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
SERVICES = REPO / "services"
STATIONS_MAX = 12
CONCEPTS_MAX = 18

ARCHITECTURE = (REPO / "ARCHITECTURE.md").read_text()
TURN = (REPO / "docs" / "turn.md").read_text()
NAMED = re.compile(r"`([\w/{},<>]+\.(?:py|md|proto))`")
STATION = re.compile(r"^\d+\. ", re.MULTILINE)
FILES = frozenset(
    path.relative_to(REPO).as_posix()
    for folder in ("services", "protos", "docs", "tests")
    for path in (REPO / folder).rglob("*.*")
    if path.suffix in {".py", ".md", ".proto"}
)


def spelled_out(name: str) -> Iterator[str]:
    """The files that `app/{leases,work}.py` names."""
    pieces = re.split(r"\{([^}]*)\}", name)
    yield from (
        "".join(choice)
        for choice in product(*(piece.split(",") if i % 2 else [piece] for i, piece in enumerate(pieces)))
    )


def missing(text: str) -> list[str]:
    """Named files that no path of the repository ends with."""
    return [
        one
        for name in NAMED.findall(text)
        for one in spelled_out(name)
        if "<" not in one and not any(path.endswith(f"/{one}") or path == one for path in KNOWN)
    ]


KNOWN = (
    FILES | {path.removeprefix("services/turnwright_") for path in FILES} | {path.name for path in REPO.glob("*.md")}
)


@pytest.mark.parametrize("text", [ARCHITECTURE, TURN], ids=["ARCHITECTURE.md", "docs/turn.md"])
def test_every_file_that_a_map_names_exists(text: str) -> None:
    assert len(NAMED.findall(text)) > 10
    assert missing(text) == []


def walks(text: str) -> dict[str, str]:
    """The sections of the paths, by their title."""
    found = re.findall(r"^## (The path of [^\n]+)\n(.*?)(?=^## )", text, re.MULTILINE | re.DOTALL)
    return dict(found)


def test_a_walk_has_at_most_twelve_stations() -> None:
    stations = {title: len(STATION.findall(text)) for title, text in walks(ARCHITECTURE).items()}
    assert len(stations) == 2
    assert all(0 < count <= STATIONS_MAX for count in stations.values()), stations


def test_a_turn_takes_at_most_eighteen_concepts() -> None:
    concepts = re.findall(r"^\| (\d+) \| \*\*", TURN, re.MULTILINE)
    assert 0 < len(concepts) <= CONCEPTS_MAX


def test_a_function_that_a_station_names_is_in_its_file() -> None:
    stations = [line for text in walks(ARCHITECTURE).values() for line in text.splitlines() if STATION.match(line)]
    named = [found for line in stations for found in re.findall(r"`([\w/]+\.py)` `(\w+)`", line)]
    assert len(named) > 5
    wrong = [
        (file, name)
        for file, name in named
        if not any(
            re.search(rf"\b(?:def|class) {name}\b|^{name} = ", path.read_text(), re.MULTILINE)
            for path in SERVICES.rglob("*.py")
            if path.as_posix()
            .removeprefix(f"{SERVICES.as_posix()}/turnwright_")
            .endswith(file.removeprefix("turnwright_"))
        )
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["executor/turn/nowhere.py", "app/{leases,nowhere}.py", "turn/machin.py"])
def test_a_file_that_is_not_there_is_found(name: str) -> None:
    assert len(missing(f"See `{name}`.")) == 1


ADRS = REPO / "docs" / "adr"
LISTED = re.compile(r"^\| \[(\d+)\]\(([\w.-]+)\) \| (.+?) \| (.+) \|$", re.MULTILINE)


def test_the_index_of_decisions_lists_each_by_its_title_and_what_took_its_place() -> None:
    listed = LISTED.findall((ADRS / "README.md").read_text())
    assert [name for _, name, _, _ in listed] == sorted(path.name for path in ADRS.glob("[0-9]*.md"))
    for number, name, title, line in listed:
        head, _, rest = (ADRS / name).read_text().partition("\n")
        assert (int(number), title) == (int(name[:4]), re.sub(r"^# 0*\d+\.? ", "", head))
        status = " ".join(rest.partition("## ")[0].split())
        for words in ("superseded by", "partly replaced by"):
            later = re.search(rf"{words} \[ADR \d+\]\(([\w.-]+)\)", status)
            assert bool(later) == (words in line.lower()), name
            assert not later or f"({later[1]})" in line
