"""Tokenizer of the full-text search, and snippets of the hits.

Words are runs of letters and digits, without case and accents. A name in camelCase counts as itself and as its parts,
so that `parseHttpReply` is found by `reply`.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Final

from turnwright_core.limits import SNIPPET_CHARS_MAX

WORD_CHARS_MAX: Final = 64
"""Characters that count of a word."""

QUERY_WORDS_MAX: Final = 32
"""Words that count of a query; the first ones."""

PLACES_MAX: Final = 5_000
"""Places of words that are looked at for a snippet; the first ones."""

_WORD: Final = re.compile(r"[^\W_]+")
_ACCENTED: Final = re.compile("[^\\W_][\u0300-\u036f]{1,8}")
_NAME: Final = re.compile(r"[A-Za-z0-9]+")
_LONG_NAME: Final = re.compile(rf"(?<![A-Za-z0-9])[A-Za-z0-9]{{{WORD_CHARS_MAX + 1},}}")
_HUMP: Final = re.compile(r"[a-z0-9][A-Z]|[A-Z]{2}[a-z]")
_SPACE: Final = re.compile(r"\s")
_PART: Final = re.compile(r"[A-Z]+(?=[A-Z][a-z])|[A-Z]?[a-z]+|[A-Z]+|[0-9]+")


def fold_case(text: str) -> str:
    """The text without case and accents."""
    if text.isascii():
        return text.lower()
    parted = unicodedata.normalize("NFKD", text.casefold())
    return "".join(character for character in parted if not unicodedata.combining(character))


def split_camel_case(text: str) -> Iterator[str]:
    """The parts of every name in camelCase."""
    if not _HUMP.search(text):
        return
    # Runs first, then a look inside: one expression for both would try every character of a long run as its beginning.
    for name in _NAME.finditer(text):
        if _HUMP.search(name[0]):
            yield from _PART.findall(name[0])


def lexemes_of(name: str) -> tuple[str, ...]:
    """The normalized forms of a word and its parts: without case and accents, `½` as the words `1` and `2`."""
    if not name.isascii():
        return tuple(dict.fromkeys(found[0][:WORD_CHARS_MAX] for found in _WORD.finditer(fold_case(name))))
    parts = split_camel_case(name) if _NAME.fullmatch(name) else ()
    return tuple(dict.fromkeys(fold_case(word)[:WORD_CHARS_MAX] for word in (name, *parts)))


def non_ascii_lexemes(text: str) -> Iterator[str]:
    """The lexemes of the words that are more than letters of ASCII in either case, or longer than what counts."""
    if text.isascii():
        # The fast path: most texts have no such word, and looking at each word takes many times as long.
        odd = (found[0] for found in _LONG_NAME.finditer(text))
    else:
        odd = (word for word in split_words(text) if len(word) > WORD_CHARS_MAX or not word.isascii())
    for word in odd:
        yield from lexemes_of(word)


def split_words(text: str) -> Iterator[str]:
    """The words of a text in order, with combining accents composed."""
    return (found[0] for found in _WORD.finditer(_composed(text)))


def _composed(text: str) -> str:
    """The text with combining accents composed (NFC), if it has any."""
    # Not as a whole: that takes quadratic time for a long run of accents.
    return text if text.isascii() else _ACCENTED.sub(lambda found: unicodedata.normalize("NFC", found[0]), text)


def query_words(query: str) -> list[str]:
    """The distinct words of a query, and their parts."""
    every = (one for word in split_words(query) for one in (word, *split_camel_case(word)))
    return list(islice({fold_case(word): word for word in every}.values(), QUERY_WORDS_MAX))


def snippet(text: str, words: Sequence[str]) -> str:
    """At most 400 characters of a text, around the place where most of the words stand; its beginning without any."""
    places = _places(text, words)
    first, last = _best_window(places) if places else (0, 0)
    spare = max(0, SNIPPET_CHARS_MAX - (last - first))
    begin = max(0, first - spare // 3)
    return _trim_to_words(text, begin, first).strip()


def _places(text: str, words: Sequence[str]) -> list[tuple[int, int, str]]:
    """Begin, end and word of each place where a word stands."""
    if not words:
        return []
    either = re.compile("|".join(map(re.escape, sorted(words, key=len, reverse=True))), re.IGNORECASE)
    return [(found.start(), found.end(), found[0].lower()) for found in islice(either.finditer(text), PLACES_MAX)]


def _best_window(places: Sequence[tuple[int, int, str]]) -> tuple[int, int]:
    """Begin and end of the window that holds most different words, then most words."""
    best, span = (0, 0), (places[0][0], places[0][1])
    inside: Counter[str] = Counter()
    low = 0
    for begin, end, word in places:
        inside[word] += 1
        while end - places[low][0] > SNIPPET_CHARS_MAX and places[low][0] < begin:
            inside[places[low][2]] -= 1
            inside += Counter()
            low += 1
        fits = (len(inside), inside.total())
        if fits > best:
            best, span = fits, (places[low][0], end)
    return span


def _trim_to_words(text: str, begin: int, first: int) -> str:
    """The window from `begin` on, trimmed to whole words if that loses no hit."""
    if begin:
        gap = _SPACE.search(text, begin, first)
        begin = gap.end() if gap else begin
    window = text[begin : begin + SNIPPET_CHARS_MAX]
    if begin + SNIPPET_CHARS_MAX < len(text):
        head, space, _ = window.rpartition(" ")
        if space and len(head) > SNIPPET_CHARS_MAX * 3 // 4:
            return head
    return window
