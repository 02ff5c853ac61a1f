"""An address book in a file: one name and one address in each line, with a tab between."""

from pathlib import Path


def save(path, book):
    lines = [f"{name}\t{address}" for name, address in sorted(book.items())]
    Path(path).write_text("\n".join(lines) + "\n", encoding="ascii", errors="replace")


def load(path):
    text = Path(path).read_bytes().decode("latin-1")
    return dict(line.split("\t", 1) for line in text.splitlines() if line)
