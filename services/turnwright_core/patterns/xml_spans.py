"""Where the texts and attributes of a well-formed document stand, which lxml does not tell."""

from __future__ import annotations

import re

from msgspec import Struct

_TAG = re.compile(
    r"""
      <!--.*?--> | <!\[CDATA\[.*?\]\]> | <\?.*?\?> | <![^>]*+>
    | < (?>(?P<close>/)?) [^\s/>!?][^\s/>]*+
      (?P<attributes> (?>(?: [^"'>/] | "[^"]*+" | '[^']*+' | /(?!>) )*) ) (?>(?P<empty>/)?) >
    """,
    re.VERBOSE | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")

Span = tuple[int, int]


class XmlSpans(Struct, frozen=True):
    """Spans by the element's number in document order (from 0); a content is None unless it is plain text.

    The span of an attribute is that of its value, with the quotes, by its name as it is written.
    """

    contents: list[Span | None]
    attributes: list[dict[str, Span]]

    @classmethod
    def of(cls, text: str) -> XmlSpans:
        """Return the spans of `text`, which must be well-formed XML."""
        contents: list[Span | None] = []
        attributes: list[dict[str, Span]] = []
        opened: list[tuple[int, int]] = []  # element, end of its start tag
        for found in _TAG.finditer(text):
            if found["close"]:
                element, start = opened.pop()
                if "<" not in text[start : found.start()]:
                    contents[element] = (start, found.start())
            elif found["attributes"] is not None:
                if not found["empty"]:
                    opened.append((len(contents), found.end()))
                contents.append(None)
                attributes.append(
                    {
                        attribute[1]: attribute.span(2)
                        for attribute in _ATTRIBUTE.finditer(text, *found.span("attributes"))
                    }
                )
        return cls(contents, attributes)
