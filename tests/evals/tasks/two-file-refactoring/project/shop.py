"""Reports of a shop."""

from money import format_cents


def line(name, cents, discount_percent=0):
    price = int(cents * (100 - discount_percent) / 100 + 0.5)
    return f"{name}: {format_cents(price)}"


def total(prices, discount_percent=0):
    return format_cents(sum(int(cents * (100 - discount_percent) / 100) for cents in prices))
