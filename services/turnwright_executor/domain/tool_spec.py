"""What a server of tools says of a tool, as a loop keeps it: names by rule, texts and schemas within limits.

A server is another's program: what it says is cut or refused here, and never raises. Source: architecture 6.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from turnwright_core.json_schema import check_schema, countdown
from turnwright_core.json_text import JsonMapping, JsonObject
from turnwright_executor.domain.effects import EffectClass
from turnwright_executor.domain.toolset import Need

SERVER_NAME: Final = re.compile(r"(?=.{1,24}\Z)[a-z][a-z0-9]*(?:_[a-z0-9]+)*")
"""Valid names of servers: no `__`, which stands for the dot in what vendors are sent."""

DOT: Final = "__"
"""What stands for the dot of `server.tool` where vendors allow letters, digits, `_` and `-` only."""

NAME_CHARS_MAX: Final = 64 - len(DOT) + 1
"""Maximum length of `server.tool`: vendors take 64 characters."""

DESCRIPTION_CHARS_MAX: Final = 8192
SCHEMA_BYTES_MAX: Final = 256 * 1024
"""A tool with a larger schema is not offered, in bytes of UTF-8."""
SCHEMA_SHOWN_BYTES_MAX: Final = 16 * 1024
"""Of a larger one a model is shown the outermost level."""
SCHEMA_S_MAX: Final = 2.0
"""Nor one that takes longer to check, in seconds of work."""
SCHEMAS_S_MAX: Final = 4.0
"""Nor those that are left when the schemas of a server have taken as long."""
TOOLS_MAX: Final = 1000
"""Tools of one server."""
LIST_BYTES_MAX: Final = 2 * 1024 * 1024
"""Texts and schemas of the tools of one server, in bytes of UTF-8; those behind are not offered."""
SHORT_CHARS_MAX: Final = 200
WORDS_SHOWN_MAX: Final = 32
VERSION_CHARS_MAX: Final = 128
TITLE_CHARS_MAX: Final = 128

_TOO_MUCH: Final = f"The tools before it take the {LIST_BYTES_MAX} bytes that one server has."
_UNFIT: Final = re.compile(r"[^a-z0-9_]+")
_NO_SCHEMA: Final[JsonObject] = {"type": "object"}


class DescribedTool(Struct, frozen=True):
    """A tool in a server's own words."""

    name: str
    description: str = ""
    schema: str = ""
    effect_class: EffectClass = EffectClass.OUTSIDE
    title: str = ""
    read_only: bool = False
    destructive: bool = False
    open_world: bool = True
    version: str = ""
    proposes: bool = False


class ServedTool(DescribedTool, frozen=True, omit_defaults=True, kw_only=True):
    """A tool of a server, as a loop keeps it: `server.tool`. Arguments are checked against its schema; empty: any."""

    server: str
    server_name: str
    """The name that the server has for it."""
    shown: str = ""
    """What a model is shown in place of the schema; empty: the schema itself."""
    problem: str = ""
    """What was cut off, or why it is not offered."""
    is_refused: bool = False
    registration: str = ""
    """Digest of whose the server is, and where: another one with its name gets none of the calls."""

    @property
    def asks(self) -> bool:
        """Whether a call of it is decided on: what changes nothing happens at once."""
        return not self.read_only

    @property
    def needs(self) -> frozenset[Need]:
        changing = {Need.CHANGES, Need.PROPOSALS} if self.asks else set()
        return frozenset(changing | ({Need.WEB} if self.open_world else set()))

    @property
    def shown_schema(self) -> JsonObject:
        text = self.shown or self.schema
        shown: JsonObject = json.loads(text) if text else dict(_NO_SCHEMA)
        return shown


def specs_of(
    server: str,
    described: Sequence[DescribedTool],
    allowed: Iterable[str] = (),
    schemas_s_max: float = SCHEMAS_S_MAX,
) -> list[ServedTool]:
    """The tools of a server as they are offered or refused; `allowed`: only those, by their own names. Never raises."""
    wanted = frozenset(allowed)
    chosen = [one for one in described[:TOOLS_MAX] if not wanted or one.name in wanted]
    names = mapped_names(server, [one.name for one in chosen])
    left_s, left = countdown(schemas_s_max), LIST_BYTES_MAX
    seen: set[str] = set()
    specs = []
    for one in chosen:
        if one.name not in seen:
            made = _spec(server, names[one.name], one, min(SCHEMA_S_MAX, left_s()))
            left -= len(made.description.encode()) + len(made.schema.encode())
            specs.append(made if left >= 0 else _refused(made))
        seen.add(one.name)
    return specs


def _refused(spec: ServedTool) -> ServedTool:
    return replace(spec, description="", schema="", shown="", problem=_TOO_MUCH, is_refused=True)


def mapped_names(server: str, names: Sequence[str]) -> dict[str, str]:
    """`server.tool` for each name of a server's tools: always the same for the same names, and no two alike."""
    room = NAME_CHARS_MAX - len(server) - 1
    plain = {name: _UNFIT.sub("_", name.lower()).strip("_") or "tool" for name in names}
    counts = Counter(plain.values())
    return {name: f"{server}.{_fitting(name, short, room, counts[short] > 1)}" for name, short in plain.items()}


def _fitting(name: str, short: str, room: int, is_taken: bool) -> str:
    if len(short) <= room and (not is_taken or short == name):
        return short
    return f"{short[: room - 9].rstrip('_')}_{hashlib.sha256(name.encode(errors='replace')).hexdigest()[:8]}"


def native_name(name: str) -> str:
    return name.replace(".", DOT, 1)


def _spec(server: str, name: str, one: DescribedTool, seconds_max: float) -> ServedTool:
    problems = [] if name == f"{server}.{one.name}" else [f"Its server calls it {one.name!r}."]
    description = one.description.strip()
    if len(description) > DESCRIPTION_CHARS_MAX:
        problems.append(f"Its text has {len(description)} characters: the first {DESCRIPTION_CHARS_MAX} are shown.")
        description = description[:DESCRIPTION_CHARS_MAX]
    schema, shown, refusal = one.schema.strip(), "", ""
    if schema:
        try:
            checked = _checked(schema, seconds_max)
        except ValueError as error:
            refusal = f"{str(error)[:SHORT_CHARS_MAX]}. It is not offered until its server says another schema."
            schema = ""
        else:
            if (size := len(schema.encode())) > SCHEMA_SHOWN_BYTES_MAX:
                problems.append(f"Its schema has {size} bytes: models are shown its outermost level.")
                shown = json.dumps(_outermost(checked), ensure_ascii=False)
    if not one.name or len(one.name) > VERSION_CHARS_MAX:
        refusal = f"Its name has {len(one.name)} characters, and 1 to {VERSION_CHARS_MAX} are allowed."
    return ServedTool(
        name,
        description,
        schema,
        one.effect_class,
        one.title[:TITLE_CHARS_MAX],
        one.read_only or one.effect_class is EffectClass.PURE,
        one.destructive,
        one.open_world,
        one.version[:VERSION_CHARS_MAX],
        one.proposes,
        server=server,
        server_name=one.name[:VERSION_CHARS_MAX],
        shown=shown,
        problem=refusal or " ".join(problems),
        is_refused=bool(refusal),
    )


def _checked(text: str, seconds_max: float) -> JsonObject:
    """The schema. Raises ValueError with a sentence for one that cannot be offered."""
    if len(text.encode(errors="replace")) > SCHEMA_BYTES_MAX:
        raise ValueError(f"Its schema has more than {SCHEMA_BYTES_MAX} bytes")
    schema = check_schema(text, seconds_max)
    if schema.get("type") != "object":
        raise ValueError("Its schema is not of type object")
    try:
        json.dumps(schema, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise ValueError("Its schema has half of a surrogate pair, which no message can have") from None
    return schema


def _outermost(schema: JsonMapping) -> JsonObject:
    """The properties with their types and short texts, as many as fit."""
    shown: JsonObject = {"type": "object", "properties": {}}
    room = SCHEMA_SHOWN_BYTES_MAX // 2
    properties = schema.get("properties")
    for name, about in properties.items() if isinstance(properties, dict) else ():
        one = _short(about) if isinstance(about, dict) else {}
        room -= len(name.encode()) + len(json.dumps(one))
        if room < 0:
            break
        shown["properties"][name] = one
    required = [name for name in schema.get("required", ()) if name in shown["properties"]]
    return {**shown, "required": required} if required else shown


def _short(about: JsonMapping) -> JsonObject:
    made: JsonObject = {"type": about["type"]} if isinstance(about.get("type"), str | list) else {}
    if isinstance(text := about.get("description"), str):
        made["description"] = text[:SHORT_CHARS_MAX]
    words = about.get("enum")
    if isinstance(words, list) and len(words) <= WORDS_SHOWN_MAX and len(json.dumps(words)) <= SHORT_CHARS_MAX:
        made["enum"] = words
    return made
