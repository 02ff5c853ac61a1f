r"""Giving an XPath expression a pulse, so that its evaluation can be stopped.

libxml2 evaluates an expression in one call that knows no deadline, and an expression of forty
characters can visit a million nodes a million times. But a predicate may call a function of ours,
and one that raises ends the evaluation. So a predicate that is always true, the pulse, is put
behind every step of the expression:

| written | evaluated |
|---|---|
| `name` | `name[pulse()]` |
| `//name` | `/descendant-or-self::node()[pulse()]/name[pulse()]` |
| `preceding::name` | `preceding::node()[pulse()][self::name]` |
| `.` | `self::node()[pulse()]` |
| `/` alone | `/self::node()[pulse()]` |
| `string()` | `string(self::node()[pulse()])` |

Each row selects exactly the same, positions included: the pulse keeps every node, and a position
counts what the predicates before it kept. The axes that can reach the whole document are widened to
`node()`, so that nodes that the name test rejects beat too; no more than one walk over the document
lies between two beats.
"""

from __future__ import annotations

import re

from msgspec import Struct, field

_TOKEN = re.compile(
    r"""\s*(?:
      (?P<string> "[^"]*" | '[^']*' )
    | (?P<number> \d+(?:\.\d*)? | \.\d+ )
    | (?P<name> [^\W\d][\w.-]*+ (?: :(?!:) (?: \* | [^\W\d][\w.-]*+ ) )? )
    | (?P<sign> :: | \.\. | // | != | <= | >= | [][().,@/|+=<>*-] )
    )""",
    re.VERBOSE,
)
_NAME_START = re.compile(r"[^\W\d]")
_WIDE_AXES = frozenset(
    {
        "ancestor",
        "ancestor-or-self",
        "descendant",
        "descendant-or-self",
        "following",
        "following-sibling",
        "preceding",
        "preceding-sibling",
    }
)
_NODE_TYPES = frozenset({"comment", "node", "processing-instruction", "text"})
_NODE_TYPE_CALLS = [[name, "("] for name in sorted(_NODE_TYPES)]
_ABOUT_CONTEXT = frozenset({"normalize-space", "string", "string-length"})
# Behind these an operand begins, so that a name is no operator there and `*` no product.
_BEFORE_OPERANDS = frozenset({"@", "::", "(", "[", ",", "/", "//", "|", "+", "-", "=", "!=", "<", "<=", ">", ">="})
_OPERATORS = frozenset({"and", "div", "mod", "or"})


def tokens_of(expression: str) -> list[str]:
    """Return the words and signs of an XPath 1.0 expression. Raises ValueError where there is none."""
    tokens: list[str] = []
    at = 0
    end = len(expression.rstrip())
    while at < end:
        found = _TOKEN.match(expression, at)
        if found is None:
            raise ValueError(f"unexpected {expression[at : at + 10]!r}")
        tokens.append(found[0].strip())
        at = found.end()
    return tokens


def prefixes_of(tokens: list[str]) -> frozenset[str]:
    return frozenset(token.partition(":")[0] for token in tokens if _is_name(token) and ":" in token)


def with_pulse(tokens: list[str], pulse: str) -> str:
    """Return the expression with `pulse`, the call of a function that answers true, in every step."""
    return _Rewriting(tokens, f"[{pulse}]").rewritten()


class _Rewriting(Struct):
    tokens: list[str]
    pulse: str
    out: list[str] = field(default_factory=list)
    at: int = 0
    operand: bool = True  # whether an operand may begin here

    def rewritten(self) -> str:
        while self.at < len(self.tokens):
            word = self.tokens[self.at]
            if self.operand and (word == "*" or _is_name(word)):
                self._named()
            else:
                self._sign(word)
        return " ".join(self.out)

    def _named(self) -> None:
        word, following = self.tokens[self.at], self._peek()
        if following == "::":
            self._axis(word)
        elif following == "(" and word not in _NODE_TYPES:
            self._call(word)
        else:
            self.out += [self._node_test(), self.pulse]
        self.operand = False

    def _axis(self, axis: str) -> None:
        self.at += 2
        test = self._node_test()
        if axis in _WIDE_AXES:
            self.out += [f"{axis}::node()", self.pulse, f"[self::{test}]"]
        else:
            self.out += [f"{axis}::{test}", self.pulse]

    def _call(self, function: str) -> None:
        if function in _ABOUT_CONTEXT and self.tokens[self.at + 2 : self.at + 3] == [")"]:
            self.out.append(f"{function}(self::node(){self.pulse})")
            self.at += 3
        else:
            self.out.append(function)
            self.at += 1

    def _node_test(self) -> str:
        """Take `name`, `*` or `text()` off the tokens."""
        start = self.at
        self.at += 1
        if self.tokens[start : start + 2] in _NODE_TYPE_CALLS:
            while self.at < len(self.tokens) and self.tokens[self.at] != ")":
                self.at += 1
            self.at += 1
        return "".join(self.tokens[start : self.at])

    def _sign(self, word: str) -> None:
        match word:
            case "//":
                self.out += ["/descendant-or-self::node()", self.pulse, "/"]
            case "/" if self.operand and not self._step_follows():
                self.out += ["/self::node()", self.pulse]
            case "." if self.operand:
                self.out += ["self::node()", self.pulse]
            case ".." if self.operand:
                self.out += ["parent::node()", self.pulse]
            case _:
                self.out.append(word)
        is_operator = not self.operand and (word in _OPERATORS or word == "*")
        self.operand = is_operator or (word in _BEFORE_OPERANDS and not (word == "/" and not self._step_follows()))
        self.at += 1

    def _step_follows(self) -> bool:
        following = self._peek()
        return following in (".", "..", "@", "*") or (following is not None and _is_name(following))

    def _peek(self) -> str | None:
        return self.tokens[self.at + 1] if self.at + 1 < len(self.tokens) else None


def _is_name(word: str) -> bool:
    return _NAME_START.match(word) is not None
