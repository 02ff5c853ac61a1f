"""The system message: instructions, tools, persona. Byte-stable while the tool set and the persona are unchanged.

It is made from the attributes of `instructions://system` alone. Source: RU180, RU181, RU182, RU196, RU198; C31.
"""

from __future__ import annotations

import json
import re
from functools import lru_cache
from typing import Any, Final

from turnwright_assembler.domain.envelope import well_formed
from turnwright_assembler.sections.contract import text_of

SYSTEM_PATH: Final = "instructions://system"
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


def calls_natively(attributes: dict[str, Any]) -> bool:
    """Whether the model is offered tools for native calls."""
    offered = attributes.get(NATIVE_TOOLS)
    return isinstance(offered, list) and bool(offered)


@lru_cache(maxsize=64)
def system_text(attributes_json: str) -> str:
    """`render_system` of attributes as they are stored: runs of the same tools and persona share one text."""
    return render_system(json.loads(attributes_json or "{}"))


def render_system(attributes: dict[str, Any]) -> str:
    """The system message for the attributes of `instructions://system`; unknown shapes count as absent.

    `brief` is for a model with a small window: the same rules, said once.
    """
    names = attributes.get("tools")
    tools = [str(name) for name in names] if isinstance(names, list) else []
    template = _BRIEF if attributes.get("brief") is True else _TEMPLATE
    if calls_natively(attributes):
        template = _TRANSCRIPT if attributes.get("transcript") is True else _NATIVE
    docs = attributes.get("tool_docs")
    texts = [str(docs[name]).strip() for name in tools if name in docs] if isinstance(docs, dict) else []
    filling = {"TOOLS": ", ".join(tools), "TOOLDOCS": "\n\n".join(texts)}
    # One pass: a tool's text that spells a placeholder is left as it is.
    body = _PLACES.sub(lambda place: filling[place[1]], template)
    persona = attributes.get("persona")
    return well_formed(f"{body}\n\n{persona.strip() if isinstance(persona, str) else _PERSONA}")
