"""The shape of the protos that buf does not look at: package and folder, imports, size, meaning of zero.

A light text parser is enough: buf has already refused what is not a proto.
"""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

REPO = Path(__file__).resolve().parents[2]
PROTOS = REPO / "protos"
LINES_MAX = 320  # exclusive

PACKAGE = re.compile(r"^package\s+([\w.]+)\s*;", re.MULTILINE)
PACKAGE_FORM = re.compile(r"turnwright\.[a-z][a-z0-9_]*\.v1")
IMPORT = re.compile(r"^import\s+(?:public\s+|weak\s+)?\"([^\"]+)\"\s*;", re.MULTILINE)
IMPORTS_ALLOWED = ("google/protobuf/", "turnwright/")
ENUM = re.compile(r"\benum\s+(\w+)\s*\{([^{}]*)\}")
FIELD = re.compile(r"^\s*(?:optional |repeated )?([\w.]+)\s+(\w+)\s*=\s*\d+\s*[;\[]", re.MULTILINE)
SPAN = re.compile(r"_(?:ms|s|seconds|minutes)(?:_|$)")
ZERO = re.compile(r"\b(\w+)\s*=\s*(?:0x)?0+\s*[;\[]")
# A string keeps its text; a comment becomes blanks, so that positions and lines stay.
COMMENT_OR_STRING = re.compile(r"\"(?:\\.|[^\"\\\n])*\"|//[^\n]*|/\*.*?\*/", re.DOTALL)
COMMENT_LINE = re.compile(r"\s*(?://|/\*|\*)[\s/*]*(?P<text>.*?)[\s*/]*$")


def without_comments(text: str) -> str:
    """The same text with blanks for comments."""

    def blank(match: re.Match[str]) -> str:
        return match[0] if match[0].startswith('"') else re.sub(r"[^\n]", " ", match[0])

    return COMMENT_OR_STRING.sub(blank, text)


def package_problems(path: str, text: str) -> list[str]:
    """The package is turnwright.<area>.v1 and its folder says the same."""
    found = PACKAGE.search(without_comments(text))
    package = found[1] if found else "nothing"
    if not PACKAGE_FORM.fullmatch(package):
        return [f"declares package {package}, not turnwright.<area>.v1"]
    folder = path.rpartition("/")[0]
    return [] if folder == package.replace(".", "/") else [f"package {package} does not belong in {folder}/"]


def import_problems(_path: str, text: str) -> list[str]:
    """A stranger needs nothing but our protos and the ones every protoc ships."""
    imports = IMPORT.findall(without_comments(text))
    foreign = [name for name in imports if not name.startswith(IMPORTS_ALLOWED)]
    return [f"imports {name}; only {' and '.join(IMPORTS_ALLOWED)} may be imported" for name in foreign]


def size_problems(_path: str, text: str) -> list[str]:
    """A proto tells about one noun or one service."""
    lines = len(text.splitlines())
    return [] if lines < LINES_MAX else [f"has {lines} lines; split it below {LINES_MAX}, one noun per file"]


def enum_problems(_path: str, text: str) -> list[str]:
    """Zero is *_UNSPECIFIED, and its comment says what it does."""
    return [
        problem
        for enum in ENUM.finditer(without_comments(text))
        if (problem := zero_problem(enum[1], ZERO.search(enum[2]), text, enum.start(2)))
    ]


def unit_problems(_path: str, text: str) -> list[str]:
    """A span is a Duration, named without its unit; money is a double in US dollars, and says so."""
    fields = FIELD.findall(without_comments(text))
    spans = [f"{name}: a span of time is a google.protobuf.Duration" for _, name in fields if SPAN.search(name)]
    money = [f"{name}: money is a double" for kind, name in fields if "_usd" in name and kind != "double"]
    return spans + money


def zero_problem(enum: str, zero: re.Match[str] | None, text: str, offset: int) -> str | None:
    """What is wrong with the zero value of one enum whose body begins at `offset`."""
    if zero is None:
        return f"enum {enum} has no value 0"
    if not zero[1].endswith("_UNSPECIFIED"):
        return f"enum {enum}: its zero is {zero[1]}; it must end with _UNSPECIFIED"
    line = text.count("\n", 0, offset + zero.start())
    if not comment_of(text.split("\n"), line):
        return f"enum {enum}: say in a comment above {zero[1]} what it does"
    return None


def comment_of(lines: list[str], line: int) -> str:
    """The words of the comment above a line, or behind it."""
    words = lines[line].partition("//")[2].strip()
    while line > 0 and (above := COMMENT_LINE.match(lines[line - 1])):
        words = f"{above['text']} {words}".strip()
        line -= 1
    return words


Rule = Callable[[str, str], list[str]]
RULES: list[Rule] = [package_problems, import_problems, size_problems, enum_problems, unit_problems]


@pytest.mark.parametrize("rule", RULES)
def test_every_proto_keeps_the_rule(rule: Rule) -> None:
    files = sorted(PROTOS.rglob("*.proto"))
    assert files, f"no proto below {PROTOS}"
    texts = {f.relative_to(PROTOS).as_posix(): f.read_text(encoding="utf-8") for f in files}
    problems = [f"protos/{path} {problem}" for path, text in texts.items() for problem in rule(path, text)]
    assert not problems, "\n  ".join([rule.__doc__ or "", *problems])


GOOD = """\
syntax = "proto3";
package turnwright.types.v1;
import "google/protobuf/timestamp.proto";
import "turnwright/types/v1/state.proto";
// Mode of a loop; import "google/rpc/status.proto"; stands in a comment.
enum Mode {
  option deprecated = false;
  // Read as ask
  // when it is absent.
  MODE_UNSPECIFIED = 0;
  MODE_ASK = 1; // read-only
}
message X {
  google.protobuf.Duration wait = 1;
  optional double cost_usd_max = 2;
  enum Y {
    /* Read as none. */
    Y_UNSPECIFIED = 0 [deprecated = true];
  }
}
"""


@pytest.mark.parametrize("rule", RULES)
def test_a_good_proto_passes(rule: Rule) -> None:
    assert rule("turnwright/types/v1/mode.proto", GOOD) == []


@pytest.mark.parametrize(
    ("rule", "old", "new"),
    [
        (package_problems, "package turnwright.types.v1", "package turnwright.store.v1"),
        (package_problems, "package turnwright.types.v1", "package turnwright.types.v2"),
        (package_problems, "package turnwright.types.v1;", "// package turnwright.types.v1;"),
        (import_problems, "google/protobuf/timestamp", "google/rpc/status"),
        (import_problems, 'import "turnwright/types', 'import public "types'),
        (size_problems, "// Mode", "//\n" * LINES_MAX),
        (enum_problems, "MODE_UNSPECIFIED", "MODE_NONE"),
        (enum_problems, "  // Read as ask\n  // when it is absent.\n", ""),
        (enum_problems, "  // Read as ask\n  // when it is absent.\n", "  //\n"),
        (enum_problems, "MODE_UNSPECIFIED = 0", "MODE_UNSPECIFIED = 2"),
        (enum_problems, "Y_UNSPECIFIED = 0", "Y_NONE = 0"),
        (unit_problems, "google.protobuf.Duration wait", "double wait_s"),
        (unit_problems, "google.protobuf.Duration wait", "uint32 wait_ms_max"),
        (unit_problems, "double cost_usd", "int64 cost_usd"),
    ],
)
def test_a_bad_proto_is_reported(rule: Rule, old: str, new: str) -> None:
    assert old in GOOD
    assert len(rule("turnwright/types/v1/mode.proto", GOOD.replace(old, new))) == 1
