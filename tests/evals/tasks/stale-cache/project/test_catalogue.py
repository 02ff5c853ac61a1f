import unittest

from catalogue import Catalogue


class CatalogueTest(unittest.TestCase):
    def setUp(self):
        self.catalogue = Catalogue()
        for name, cents in {"a": 10, "b": 20, "ab": 500}.items():
            self.catalogue.set_price(name, cents)

    def test_a_changed_price_counts(self):
        self.assertEqual(self.catalogue.sum_of(["a", "b"]), 30)
        self.catalogue.set_price("b", 5)
        self.assertEqual(self.catalogue.sum_of(["a", "b"]), 15)

    def test_what_is_removed_is_unknown(self):
        self.catalogue.sum_of(["a"])
        self.catalogue.remove("a")
        with self.assertRaises(KeyError):
            self.catalogue.sum_of(["a"])

    def test_other_names_are_another_sum(self):
        self.assertEqual(self.catalogue.sum_of(["a", "b"]), 30)
        self.assertEqual(self.catalogue.sum_of(["ab"]), 500)

    def test_the_cheapest_follows_the_prices(self):
        self.assertEqual(self.catalogue.cheapest(), "a")
        self.catalogue.set_price("b", 1)
        self.assertEqual(self.catalogue.cheapest(), "b")
