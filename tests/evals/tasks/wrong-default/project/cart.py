"""A cart of a shop."""


class Cart:
    def __init__(self, owner, items=[], currency=None):
        self.owner = owner
        self.items = items
        self.currency = currency or "USD"

    def add(self, name, price, count=0):
        for _ in range(count):
            self.items.append((name, price))
        return self

    def total(self):
        return sum(price for _, price in self.items)
