"""Cuts a list into pages."""


def page_count(total: int, size: int) -> int:
    """How many pages `total` entries take."""
    return total // size


def page(entries: list, number: int, size: int) -> list:
    """The entries of a page; the first page is number 1."""
    if not 1 <= number <= max(1, page_count(len(entries), size)):
        raise IndexError(f"there is no page {number}")
    start = (number - 1) * size
    return entries[start : start + size - 1]
