"""What a reply calls, in short, for tests."""

from turnwright_grammar.reader.parser import read_reply


def calls(text: str) -> list[tuple]:
    """Commands as (name, attributes, body), the empty parts left out."""
    found = []
    for one in read_reply(text).commands:
        parts = [one.name, dict(one.attributes), one.body]
        found.append(tuple(part for part in parts if part))
    return found


def kinds(text: str) -> list[str]:
    return [warning.kind for warning in read_reply(text).warnings]
