"""New texts of a packet: compressed together, with the entry bodies that they show as the dictionary.

Most of such a text is the body of an entry, so little more than a reference to its version is stored. The version
exists as long as the run (see app.retention), and bodies change only by appends. Texts are grouped to bound the bodies
in memory. Source: architecture 3 (what the model was sent).
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, msgpack
from sqlalchemy import Connection, bindparam, literal_column, select
from turnwright_values.types import State

from turnwright_core.limits import SHOWN_BYTES_MAX, SHOWN_BYTES_MIN
from turnwright_store.sql.compression import compress_against, decompress_against
from turnwright_store.sql.entries import AT_PATHS, batched, seen_now
from turnwright_store.sql.tables import entries, packets, versions, views

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
