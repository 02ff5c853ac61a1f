"""Commands as the grammar reads them from a reply."""

from turnwright_grammar.reader.parser import read_reply
from turnwright_grammar.reply import Command


def command(text: str) -> Command:
    """The one command in a reply."""
    (found,) = read_reply(text).commands
    return found


def built(name: str, attributes: dict[str, object], body: str = "") -> Command:
    """A command from a case."""
    return Command(name, {key: str(value) for key, value in attributes.items()}, body)
