"""Titles of articles."""


def shorten(title, chars_max=40):
    """The title, cut behind a word."""
    if len(title) <= chars_max:
        return title
    return title[:chars_max].rsplit(" ", 1)[0] + "..."
