"""A catalogue of prices, with a cache of sums."""

from functools import lru_cache


class Catalogue:
    def __init__(self):
        self._prices = {}
        self._sums = {}

    def set_price(self, name, cents):
        self._prices[name] = cents

    def remove(self, name):
        del self._prices[name]

    def sum_of(self, names):
        """The sum of some prices. Raises KeyError for an unknown name."""
        key = "".join(names)
        if key not in self._sums:
            self._sums[key] = sum(self._prices[name] for name in names)
        return self._sums[key]

    @lru_cache(maxsize=None)
    def cheapest(self):
        return min(self._prices, key=self._prices.get)
