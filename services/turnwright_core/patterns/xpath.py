"""XPath 1.0 on XML texts, with lxml.

Expression and document may both be hostile. The document is parsed without entities, DTDs or network; only
`document_worker` runs an expression.

A name without a prefix also matches the document's default namespace, because that is what a model means by
`//dependency` or `//svg`; prefixes are those of the root element.

Source: RU273, RU274.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from lxml import etree
from msgspec import Struct

from turnwright_core.patterns.bounds import check_length
from turnwright_core.patterns.errors import PatternError
from turnwright_core.patterns.selection import NO_DOCUMENT, Selection, with_spans_replaced

_EXPRESSIONS_KEPT = 64

# A name before a single colon; in a string it does no harm.
_PREFIX = re.compile(r"([^\W\d][\w.-]*):(?!:)")
_UNDECLARED = "urn:turnwright:undeclared:"
# An internal DTD subset could change what the text means.
_DOCTYPE_RULES = re.compile(r"<!DOCTYPE[^>]*\[")


def select(pattern: str, text: str) -> Selection:
    """What `pattern` selects in `text`, in document order. Raises PatternError.

    The text of an element is all the text within it; that of an attribute is its value.
    """
    check(pattern)
    root = _parsed(text)
    if root is None:
        return NO_DOCUMENT
    for found in _evaluated(pattern, root):
        return Selection(_text_of(found))
    return Selection(None)


def replace(pattern: str, replacement: str, text: str) -> str | None:
    """`text` with what `pattern` selects replaced; None if `text` is not XML. Raises PatternError.

    Only elements that contain nothing but text, text nodes, and attributes without a prefix can be replaced; no other
    byte changes.
    """
    check(pattern)
    root = _parsed(text)
    if root is None:
        return None
    selected = _evaluated(pattern, root)
    if not selected:
        return text
    check_length(pattern, len(text) + len(selected) * len(replacement))
    spans = None if _DOCTYPE_RULES.search(text) else XmlSpans.of(text)
    order = {element: index for index, element in enumerate(root.getroottree().iter(etree.Element))}
    as_text, as_attribute = escape(replacement), quoteattr(replacement)
    replacements: dict[tuple[int, int], str] = {}
    for found in selected:
        span = _place_of(found, spans, order) if spans else None
        if span is None:
            raise PatternError("unsupported", pattern, "The xpath selects more than plain text; use an edit")
        replacements[span] = as_attribute if getattr(found, "is_attribute", False) else as_text
    replaced = with_spans_replaced(text, replacements)
    if replaced is None:
        raise PatternError("unsupported", pattern, "The xpath selects text inside of other text that it selects")
    return replaced


@lru_cache(maxsize=_EXPRESSIONS_KEPT)
def check(pattern: str) -> None:
    """Raise PatternError if `pattern` is not an XPath 1.0 expression."""
    try:
        etree.XPath(pattern)
    except etree.XPathError as error:
        raise _invalid(pattern, error) from None


def _parsed(text: str) -> etree._Element | None:
    parser = etree.XMLParser(
        encoding="utf-8",
        resolve_entities=False,
        no_network=True,
        load_dtd=False,
        dtd_validation=False,
        attribute_defaults=False,
        huge_tree=False,
    )
    try:
        root = etree.fromstring(text.lstrip("\ufeff \t\r\n").encode(), parser)
    except (etree.XMLSyntaxError, ValueError):
        return None
    _without_default_namespaces(root, text)
    return root


def _without_default_namespaces(root: etree._Element, text: str) -> None:
    if "xmlns" not in text:
        return
    for element in root.iter(etree.Element):
        if element.prefix is None:
            element.tag = etree.QName(element).localname


def _evaluated(pattern: str, root: etree._Element) -> list[object]:
    declared = {prefix: uri for prefix, uri in root.nsmap.items() if prefix}
    # A prefix that this document does not declare selects nothing.
    namespaces = {prefix: _UNDECLARED + prefix for prefix in _PREFIX.findall(pattern)} | declared
    try:
        found = etree.XPath(pattern, namespaces=namespaces, regexp=False)(root.getroottree())
    except etree.XPathError as error:
        raise _invalid(pattern, error) from None
    return found if isinstance(found, list) else []


def _text_of(found: object) -> str:
    if not etree.iselement(found):
        return str(found)
    if isinstance(found.tag, str):
        return "".join(str(part) for part in found.itertext())
    return found.text or ""


def _place_of(found: Any, spans: XmlSpans, order: dict[etree._Element, int]) -> tuple[int, int] | None:
    """Position of the text of `found`; None if it is more than plain text."""
    owner = found if etree.iselement(found) else found.getparent()
    if owner not in order:
        return None
    if etree.iselement(found) or found.is_text:
        return spans.contents[order[owner]]
    return spans.attributes[order[owner]].get(found.attrname) if found.is_attribute else None


def _invalid(pattern: str, error: Exception) -> PatternError:
    return PatternError("invalid_xpath", pattern, f"The xpath cannot be used: {error}")


_TAG = re.compile(
    r"""
      <!--.*?--> | <!\[CDATA\[.*?\]\]> | <\?.*?\?> | <![^>]*+>
    | < (?>(?P<close>/)?) [^\s/>!?][^\s/>]*+
      (?P<attributes> (?>(?: [^"'>/] | "[^"]*+" | '[^']*+' | /(?!>) )*) ) (?>(?P<empty>/)?) >
    """,
    re.VERBOSE | re.DOTALL,
)
_ATTRIBUTE = re.compile(r"""([^\s=]+)\s*=\s*("[^"]*"|'[^']*')""")

XmlSpan = tuple[int, int]


class XmlSpans(Struct, frozen=True):
    """Spans by the element's number in document order (from 0); a content is None unless it is plain text.

    The span of an attribute is that of its quoted value, keyed by the name as written.
    """

    contents: list[XmlSpan | None]
    attributes: list[dict[str, XmlSpan]]

    @classmethod
    def of(cls, text: str) -> XmlSpans:
        contents: list[XmlSpan | None] = []
        attributes: list[dict[str, XmlSpan]] = []
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
