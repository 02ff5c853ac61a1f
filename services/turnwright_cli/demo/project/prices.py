"""What things cost, in cents."""

PRICES = {"apple": 40, "bread": 250, "cheese": 1200}
