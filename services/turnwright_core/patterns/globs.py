r"""Globs as regular expressions, written by wcmatch, with the habits of picomatch.

| habit | example |
|---|---|
| `*` and `?` stop at `/`, `**` does not; behind `scheme://` all cross it (RU275) | `known://*` fits `known://a/b` |
| a name that begins with a dot needs a dot in the pattern (not behind a scheme) | `*` does not fit `.env` |
| `dir/**` fits `dir` too | `src/**` fits `src` |
| a leading `./` means nothing | `./*.js` fits `a.js` |
| a plain class also means its own text | `app/[id]/*` fits `app/[id]/page.tsx` |
| `!` before a glob turns it around | `!*.js` fits `a.ts` |
| case counts, `\` takes the meaning off the next character | `a\*` fits `a*` |

Extended groups mean what they mean in bash: `!(a).js` fits `ab.js`, where picomatch looks at the
beginning only.
"""

from __future__ import annotations

import re

from wcmatch import fnmatch, glob

from turnwright_core.patterns.errors import PatternError

BRACE_EXPANSIONS_MAX = 200
_PATH_FLAGS = glob.GLOBSTAR | glob.EXTGLOB | glob.BRACE | glob.CASE | glob.FORCEUNIX
_SCHEME_FLAGS = fnmatch.EXTMATCH | fnmatch.BRACE | fnmatch.CASE | fnmatch.FORCEUNIX | fnmatch.DOTMATCH
_WHOLE_FOLDER = re.compile(r"((?:.*/)?[^*/]+)/\*\*", re.DOTALL)
_PLAIN_CLASS = re.compile(r"(?<!\\)\[([\w.]+)\]")


def is_inverted(pattern: str) -> bool:
    """Return whether a glob fits what its rest does not."""
    return pattern.startswith("!") and not pattern.startswith("!(")


def regexes_of(body: str, pattern: str) -> tuple[list[str], list[str]]:
    """Return the regexes of a glob without its inversion: for whole strings, and for parts of them.

    Raises PatternError about `pattern`.
    """
    whole = [regex for variant in _variants(body) for regex in _translated(variant, pattern)]
    part = [regex.removeprefix("^").removesuffix("$") for regex in _translated(body, pattern)]
    return list(dict.fromkeys(whole)), part


def _variants(body: str) -> list[str]:
    variants = [body]
    if body.startswith("./"):
        variants.append(body.removeprefix("./"))
    if "://" not in body:
        variants += [found[1] for variant in variants if (found := _WHOLE_FOLDER.fullmatch(variant))]
    if "!(" not in body:
        # Inside of a negated group the own text of a class would be one more thing to refuse, not to take.
        variants += [_PLAIN_CLASS.sub(r"\\[\1\\]", variant) for variant in variants]
    return list(dict.fromkeys(variants))


def _translated(body: str, pattern: str) -> list[str]:
    # Keys behind `scheme://` are names, not directories: a star crosses the slash (RU275).
    try:
        if "://" in body:
            return list(fnmatch.translate(body, flags=_SCHEME_FLAGS, limit=BRACE_EXPANSIONS_MAX)[0])
        return list(glob.translate(body, flags=_PATH_FLAGS, limit=BRACE_EXPANSIONS_MAX)[0])
    except Exception as error:  # noqa: BLE001 - wcmatch exports no name of its error for too many braces
        raise PatternError("invalid_glob", pattern, f"The glob cannot be used: {error}") from None
