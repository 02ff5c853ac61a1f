"""Rows of packets: the layout of each turn, and blocks, the long texts that show no entry.

A block is stored once in a project: system messages and descriptions of tools are the same in most of its runs. Source:
architecture 3 (what the model was sent).

New texts of a packet: compressed together, with the entry bodies that they show as the dictionary.

Most of such a text is the body of an entry, so little more than a reference to its version is stored. The version
exists as long as the run (see app.retention), and bodies change only by appends. Texts are grouped to bound the bodies
in memory. Source: architecture 3 (what the model was sent).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, msgpack
from msgspec.structs import asdict
from sqlalchemy import Connection, bindparam, delete, insert, literal_column, select, update
from turnwright_values.types import State

from turnwright_core.limits import SHOWN_BYTES_MAX, SHOWN_BYTES_MIN
from turnwright_store.sql.clauses import insertion
from turnwright_store.sql.compression import compress_against, decompress_against
from turnwright_store.sql.entries import AT_PATHS, batched, seen_now
from turnwright_store.sql.tables import blocks, entries, packets, versions, views

_ROW: Final = (
    packets.c.turn, packets.c.base_turn, packets.c.depth, packets.c.length, packets.c.layout, packets.c.calls
)  # fmt: skip
_LATEST: Final = (
    select(*_ROW)
    .where(packets.c.run_id == bindparam("run"), packets.c.turn <= bindparam("up_to"))
    .order_by(packets.c.turn.desc())
    .limit(bindparam("page"))
)
_OF_TURN: Final = (packets.c.run_id == bindparam("run"), packets.c.turn == bindparam("turn_is"))
_CALLS: Final = select(packets.c.calls).where(*_OF_TURN)
_CALL_AGAIN: Final = update(packets).where(*_OF_TURN).values(calls=packets.c.calls + 1)
_ADD: Final = insertion(packets)
_REMOVE: Final = delete(packets).where(*_OF_TURN)
_NOTE: Final = select(packets.c.note).where(*_OF_TURN)
_KNOWN: Final = select(blocks.c.digest, blocks.c.id).where(
    blocks.c.project_id == bindparam("project"), blocks.c.digest.in_(bindparam("digests", expanding=True))
)
_BLOCKS_ADD: Final = insert(blocks).returning(blocks.c.digest, blocks.c.id)
_TEXTS: Final = select(blocks.c.id, blocks.c.text).where(blocks.c.id.in_(bindparam("ids", expanding=True)))


class PacketRow(Struct, frozen=True):
    """A stored layout."""

    turn: int
    base_turn: int
    """The turn that the layout is a difference to; 0: it stands for itself."""
    depth: int
    """Layouts from this one to the one that stands for itself."""
    length: int
    """Pieces of the packet."""
    layout: str
    calls: int = 0
    """Model calls that were made with it, or were about to be."""


def latest_packets(connection: Connection, run_id: int, up_to: int, page: int) -> list[PacketRow]:
    return [PacketRow(*row) for row in connection.execute(_LATEST, {"run": run_id, "up_to": up_to, "page": page})]


def packet_note(connection: Connection, run_id: int, turn: int) -> str:
    return str(connection.execute(_NOTE, {"run": run_id, "turn_is": turn}).scalar_one())


def add_packet(connection: Connection, run_id: int, row: PacketRow, note: str, pieces: bytes | None) -> None:
    """Add the packet of the open turn, which is the run's latest one."""
    connection.execute(_ADD, {"run_id": run_id, **asdict(row), "note": note, "pieces": pieces})


def call_again(connection: Connection, run_id: int, turn: int) -> bool:
    """Count another call with the packet of a turn; False where there is none."""
    return bool(connection.execute(_CALL_AGAIN, {"run": run_id, "turn_is": turn}).rowcount)


def count_calls(connection: Connection, run_id: int, turn: int) -> int:
    """The calls that were made in a turn, or were about to be."""
    return int(connection.execute(_CALLS, {"run": run_id, "turn_is": turn}).scalar() or 0)


def remove_packet(connection: Connection, run_id: int, turn: int) -> None:
    connection.execute(_REMOVE, {"run": run_id, "turn_is": turn})


def stored_blocks(connection: Connection, project_id: int, texts: Mapping[str, str]) -> dict[str, int]:
    """Ids of some texts by digest; those that the project does not have are added."""
    ids: dict[str, int] = {}
    for part in batched(texts):
        ids |= dict(connection.execute(_KNOWN, {"project": project_id, "digests": part}).all())
    missing = [{"project_id": project_id, "digest": digest, "text": texts[digest]} for digest in texts.keys() - ids]
    for some in batched(missing):
        ids |= dict(connection.execute(_BLOCKS_ADD, some).all())
    return ids


def block_texts(connection: Connection, ids: Sequence[int]) -> dict[int, str]:
    return dict(connection.execute(_TEXTS, {"ids": list(ids)}).all()) if ids else {}


GROUP_BYTES: Final = 64 * 1024
"""Length of texts and bodies from which a group ends."""

_AT_ONCE: Final = 100
"""Bodies that one statement reads."""

_SHOWN: Final = seen_now(entries.c.path, versions.c.id, versions.c.body).where(
    AT_PATHS,
    # A growing body may become long.
    views.c.state != literal_column(str(int(State.STREAMING))),
    versions.c.stored_bytes.between(SHOWN_BYTES_MIN, SHOWN_BYTES_MAX),
)
_PIECES: Final = select(packets.c.turn, packets.c.pieces).where(
    packets.c.run_id == bindparam("run"), packets.c.turn.in_(bindparam("turns", expanding=True))
)
_BODIES: Final = (
    select(versions.c.id, entries.c.path, versions.c.body)
    .join(entries, entries.c.id == versions.c.entry_id)
    .where(versions.c.id.in_(bindparam("ids", expanding=True)))
)


class ReferencedBody(Struct, frozen=True):
    """A body that a run sees."""

    version: int
    path: str
    """Path of its entry, which occurs several times in a text that shows the body."""
    body: bytes


class TextGroup(Struct, frozen=True, array_like=True):
    """Some texts as they are stored."""

    sizes: tuple[int, ...]
    """Bytes of each text, in their order."""
    references: tuple[tuple[int, int], ...]
    """Versions whose bodies they show, each with how much of the body there was."""
    data: bytes
    """Made by `compress_against`, with these bodies."""

    @property
    def versions(self) -> list[int]:
        return [version for version, _ in self.references]

    def texts(self, bodies: Mapping[int, ReferencedBody]) -> Iterator[str]:
        """The texts; `bodies` by version, as they are now."""
        shown = b"".join(_example(bodies[version], size) for version, size in self.references)
        data, end = decompress_against(self.data, shown), 0
        for size in self.sizes:
            begin, end = end, end + size
            yield data[begin:end].decode()


def _example(shown: ReferencedBody, size: int) -> bytes:
    return b"\n".join((shown.path.encode(), shown.body[:size]))


_decoder: Final = msgpack.Decoder(list[TextGroup])


def compressed_texts(
    connection: Connection, run_id: int, texts: Sequence[str], shows: Mapping[str, str]
) -> bytes | None:
    """The stored form of texts, in their order; `shows` maps a text to the path of the entry whose body it shows."""
    groups: list[TextGroup] = []
    for some in batched(texts, _AT_ONCE):
        # No text is much shorter than the body that it shows.
        paths = {shows[text] for text in some if len(text) >= SHOWN_BYTES_MIN and text in shows}
        rows = connection.execute(_SHOWN, {"run_id": run_id, "paths": list(paths)}) if paths else ()
        groups += grouped(
            some, shows, {path: ReferencedBody(version, path, body.encode()) for path, version, body in rows}
        )
    return msgpack.encode(groups) if groups else None


def grouped(
    texts: Sequence[str], shows: Mapping[str, str], bodies: Mapping[str, ReferencedBody]
) -> Iterator[TextGroup]:
    """The groups of some texts; `bodies` by path."""
    datas: list[bytes] = []
    shown: dict[int, ReferencedBody] = {}
    total = 0
    bodies_of = {text: bodies[path] for text, path in shows.items() if path in bodies}
    for text in texts:
        data = text.encode()
        datas.append(data)
        total += len(data)
        body = bodies_of.get(text)
        if body and body.version not in shown:
            shown[body.version] = body
            total += len(body.body)
        if total >= GROUP_BYTES:
            yield _group(datas, shown.values())
            datas, shown, total = [], {}, 0
    if datas:
        yield _group(datas, shown.values())


def _group(datas: Sequence[bytes], shown: Iterable[ReferencedBody]) -> TextGroup:
    sizes = [(one, len(one.body)) for one in shown]
    examples = b"".join(_example(one, size) for one, size in sizes)
    return TextGroup(
        tuple(map(len, datas)),
        tuple((one.version, size) for one, size in sizes),
        compress_against(b"".join(datas), examples),
    )


def load_texts(connection: Connection, run_id: int, wanted: Mapping[int, Container[int]]) -> dict[int, dict[int, str]]:
    """Texts by turn and place, those that are wanted and perhaps some more. Raises KeyError for a body that is gone."""
    found: list[tuple[int, int, TextGroup]] = []
    for part in batched(wanted):
        for turn, stored in connection.execute(_PIECES, {"run": run_id, "turns": part}):
            first = 0
            for group in _decoder.decode(bytes(stored)) if stored else ():
                if any(index in wanted[turn] for index in range(first, first + len(group.sizes))):
                    found.append((turn, first, group))
                first += len(group.sizes)
    bodies: dict[int, ReferencedBody] = {}
    for part in batched({version for _, _, group in found for version in group.versions}):
        for version, path, body in connection.execute(_BODIES, {"ids": part}):
            bodies[version] = ReferencedBody(version, path, body.encode())
    texts: dict[int, dict[int, str]] = {}
    for turn, first, group in found:
        texts.setdefault(turn, {}).update(enumerate(group.texts(bodies), first))
    return texts
