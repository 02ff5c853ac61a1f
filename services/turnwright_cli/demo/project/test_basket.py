"""The rules of the basket."""

import unittest

from basket import total


class BasketTest(unittest.TestCase):
    """Prices with and without the bulk discount."""

    def test_a_basket_is_the_sum_of_its_things(self) -> None:
        """Pieces times price, added up."""
        self.assertEqual(total({"apple": 2, "bread": 1}), 330)

    def test_ten_pieces_are_cheaper(self) -> None:
        """The discount begins at ten pieces, not after them."""
        self.assertEqual(total({"apple": 10}), 360)


if __name__ == "__main__":
    unittest.main()
