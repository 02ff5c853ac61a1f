import inspect
import unittest

import money
import shop


class ShopTest(unittest.TestCase):
    def test_prices_are_rounded_in_one_place(self):
        self.assertEqual(money.round_price(999, 10), 899)
        self.assertEqual(money.round_price(995, 50), 498)
        self.assertNotIn("int(", inspect.getsource(shop))

    def test_a_line_and_a_total_agree(self):
        self.assertEqual(shop.line("tea", 995, 50), "tea: 4.98")
        self.assertEqual(shop.total([995, 995], 50), "9.96")

    def test_without_a_discount(self):
        self.assertEqual(shop.total([100, 250]), "3.50")
