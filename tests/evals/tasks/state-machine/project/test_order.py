import itertools
import re
import unittest
from pathlib import Path

from order import Order, WrongEventError

ROWS = re.findall(r"^\| (\w+) \| (\w+) \| (\w+) \|$", (Path(__file__).parent / "README.md").read_text(), re.M)[1:]
TO = {(state, event): to for state, event, to in ROWS}
WAYS = {"new": [], "paid": ["pay"], "cancelled": ["cancel"], "shipped": ["pay", "ship"], "refunding": ["pay", "cancel"]}


class OrderTest(unittest.TestCase):
    def test_every_state_takes_its_events_alone(self):
        events = {event for _, event in TO}
        for state, event in itertools.product(WAYS, events):
            with self.subTest(state=state, event=event):
                order = Order()
                for step in WAYS[state]:
                    order.handle(step)
                self.assertEqual(order.state, state)
                if (state, event) in TO:
                    self.assertEqual(order.handle(event), TO[state, event])
                else:
                    before = list(order.history)
                    with self.assertRaises(WrongEventError):
                        order.handle(event)
                    self.assertEqual((order.state, order.history), (state, before))

    def test_the_history(self):
        order = Order()
        for event in ("pay", "ship", "return", "refund"):
            order.handle(event)
        self.assertEqual(order.history, ["new", "paid", "shipped", "refunding", "cancelled"])
