"""Adds up a shopping basket."""

from prices import PRICES

BULK_PIECES = 10
BULK_PERCENT = 10


def total(basket: dict[str, int]) -> int:
    """The price of a basket (thing -> pieces), in cents. Ten pieces or more of one thing are ten percent cheaper."""
    cents = 0
    for thing, pieces in basket.items():
        price = PRICES[thing] * pieces
        if pieces > BULK_PIECES:
            price -= price * BULK_PERCENT // 100
        cents += price
    return cents
