"""A run as one file: the page with the answers that it would ask a server for."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterable, Mapping
from typing import Final

from turnwright_ui import POLICY, source_hash, text_of

Answers = Mapping[str, Mapping[str, Iterable[bytes]]]
"""By the name of a method, and by `keyOf` of its request (src/recorded.ts): the messages of its answer."""

_STYLE: Final = '<link rel="stylesheet" href="page.css">'
_SCRIPT: Final = '<script type="module" src="page.js"></script>'


def page_with(project: str, run: str, answers: Answers) -> str:
    """The page for a run, which needs no server and loads nothing."""
    style, script = text_of("page.css"), text_of("page.js")
    policy = POLICY.format(script=source_hash(script), style=source_hash(style), connect="'none'")
    packed = {
        method: {key: [b64encode(message).decode() for message in messages] for key, messages in found.items()}
        for method, found in answers.items()
    }
    # No text in it can end the element that it stands in.
    data = json.dumps({"project": project, "run": run, "answers": packed}).replace("<", "\\u003c")
    parts = {
        "<title>": f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<title>',
        _STYLE: f"<style>{style}</style>",
        _SCRIPT: f'<script type="application/json" id="recording">{data}</script>\n'
        f'<script type="module">{script}</script>',
    }
    text = text_of("index.html")
    for place, part in parts.items():
        before, found, after = text.partition(place)
        assert found, place
        text = before + part + after
    return text
