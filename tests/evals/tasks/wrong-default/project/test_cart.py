import unittest

from cart import Cart


class CartTest(unittest.TestCase):
    def test_carts_are_separate(self):
        Cart("ann").add("tea", 4, 1)
        self.assertEqual(Cart("bob").items, [])

    def test_a_given_list_is_not_changed(self):
        saved = [("tea", 4)]
        Cart("ann", saved).add("pot", 9, 1)
        self.assertEqual(saved, [("tea", 4)])

    def test_one_is_added_where_no_count_is_given(self):
        self.assertEqual(Cart("ann").add("tea", 4).total(), 4)

    def test_the_currency_has_a_default(self):
        self.assertEqual(Cart("ann").currency, "USD")
