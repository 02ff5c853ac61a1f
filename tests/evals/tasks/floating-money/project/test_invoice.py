import unittest

from invoice import split, tax, total


class InvoiceTest(unittest.TestCase):
    def test_half_a_cent_is_rounded_up(self):
        self.assertEqual(tax("2.50", 19), "0.48")
        self.assertEqual(tax("1.50", 7), "0.11")
        self.assertEqual(tax("0.10", 5), "0.01")
        self.assertEqual(tax("20.50", 5), "1.03")

    def test_large_sums_are_exact(self):
        self.assertEqual(total(["9007199254740993.01", "0.02"]), "9007199254740993.03")
        self.assertEqual(total(["0.10"] * 3), "0.30")
        self.assertEqual(total([]), "0.00")

    def test_shares_add_up(self):
        self.assertEqual(split("10.00", 3), ["3.34", "3.33", "3.33"])
        self.assertEqual(split("0.05", 4), ["0.02", "0.01", "0.01", "0.01"])
        self.assertEqual(split("6.00", 3), ["2.00", "2.00", "2.00"])
