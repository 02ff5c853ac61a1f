"""Entries as a store would send them, with everything defaulted that a test does not care about."""

from collections.abc import Iterable
from hashlib import sha256

from turnwright_values.types import Entry, State, Tier, Visibility

from turnwright_assembler.domain.account import EntryCounts
from turnwright_assembler.domain.blocks import Block, make_block
from turnwright_assembler.sections import indexed
from turnwright_core.text import scheme_of
from turnwright_core.value_methods import to_attributes_json

DIVISOR = 2


def entry(
    path: str,
    body: str = "body",
    *,
    visibility: Visibility = Visibility.VISIBLE,
    state: State = State.RESOLVED,
    outcome: str = "",
    turn: int = 1,
    loop: int = 1,
    position: int = 1,
    **attributes: object,
) -> Entry:
    if path.startswith("plan://"):
        attributes = {"version": 1, "mode": ""} | attributes
    return Entry(
        path=path,
        scheme=scheme_of(path) or "",
        scope="run:1",
        body=body,
        body_size_bytes=len(body.encode()),
        attributes_json=to_attributes_json(attributes),
        visibility=visibility,
        state=state,
        outcome=outcome,
        writer=Tier.PLUGIN,
        turn=turn,
        loop=loop,
        position=position,
        write_count=1,
        revision=1,
        hash=sha256(body.encode()).hexdigest(),
        update_ms=0,
    )


def block(path: str, body: str = "body", **changes: object) -> Block:
    made = make_block(entry(path, body, **changes), DIVISOR)  # type: ignore[arg-type]
    assert made is not None
    return made


def blocks(*entries: Entry) -> tuple[Block, ...]:
    made = (make_block(each, DIVISOR) for each in entries)
    return tuple(sorted((each for each in made if each), key=lambda each: (each.position, each.path)))


def counts_of(made: Iterable[Block]) -> EntryCounts:
    return indexed(made).counts
