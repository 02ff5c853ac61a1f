"""The system message: instructions, tools, persona. Byte-stable while the tool set and the persona are unchanged.

It is made from the attributes of `instructions://system` alone. Source: RU180, RU181, RU182, RU196, RU198; C31.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Final, NamedTuple

from turnwright_assembler.domain.envelope import well_formed
from turnwright_assembler.sections.contract import text_of
from turnwright_core.json_text import JsonObject

NATIVE_TOOLS: Final = "native_tools"

_TEMPLATE: Final = text_of("instructions-system")
_NATIVE: Final = text_of("instructions-system-native")
_TRANSCRIPT: Final = text_of("instructions-system-transcript")
_BRIEF: Final = text_of("instructions-system-brief")
_PERSONA: Final = text_of("persona-default")
_PLACES: Final = re.compile(r"\[%(TOOLS|TOOLDOCS)%\]")


@lru_cache(maxsize=64)
def tools_text(attributes_json: str) -> str:
    """What the model is offered for native calls, as JSON; empty where it calls by tags."""
    attributes = json.loads(attributes_json or "{}")
    if not calls_natively(attributes):
        return ""
    return well_formed(json.dumps(attributes[NATIVE_TOOLS], ensure_ascii=False, separators=(",", ":")))


def calls_natively(attributes: JsonObject) -> bool:
    offered = attributes.get(NATIVE_TOOLS)
    return isinstance(offered, list) and bool(offered)


@lru_cache(maxsize=64)
def system_text(attributes_json: str) -> str:
    """`render_system` of attributes as they are stored: runs of the same tools and persona share one text."""
    return render_system(json.loads(attributes_json or "{}"))


def render_system(attributes: JsonObject) -> str:
    """The system message for the attributes of `instructions://system`; unknown shapes count as absent.

    `brief` is for a model with a small window: the same rules, said once.
    """
    return "".join(text for _, _, text in system_parts(attributes))


class SystemPart(NamedTuple):
    """A part of the system message: `rules`, `tool` or `persona`, and for a tool its name."""

    kind: str
    name: str
    text: str


def system_parts(attributes: JsonObject) -> list[SystemPart]:
    """The same in its parts, in order."""
    names = attributes.get("tools")
    tools = [str(name) for name in names] if isinstance(names, list) else []
    template = _BRIEF if attributes.get("brief") is True else _TEMPLATE
    if calls_natively(attributes):
        template = _TRANSCRIPT if attributes.get("transcript") is True else _NATIVE
    docs = attributes.get("tool_docs")
    texts = [(name, str(docs[name]).strip()) for name in tools if name in docs] if isinstance(docs, dict) else []
    parts: list[SystemPart] = []
    # One pass: a tool's text that spells a placeholder is left as it is.
    for index, text in enumerate(_PLACES.split(template)):
        if not index % 2:
            parts.append(SystemPart("rules", "", text))
        elif text == "TOOLS":
            parts.append(SystemPart("rules", "", ", ".join(tools)))
        else:
            last = len(texts) - 1
            parts += [
                SystemPart("tool", name, doc if at == last else f"{doc}\n\n") for at, (name, doc) in enumerate(texts)
            ]
    persona = attributes.get("persona")
    parts.append(SystemPart("persona", "", f"\n\n{persona.strip() if isinstance(persona, str) else _PERSONA}"))
    return [part._replace(text=well_formed(part.text)) for part in parts]
