import unittest

from calculator import evaluate


class CalculatorTest(unittest.TestCase):
    def test_products_come_before_sums(self):
        self.assertEqual(evaluate("2 + 3 * 4"), 14)
        self.assertEqual(evaluate("20 - 8 / 2 - 1"), 15)

    def test_parentheses(self):
        self.assertEqual(evaluate("(2 + 3) * 4"), 20)
        self.assertEqual(evaluate("2 * (3 + (4 - 1))"), 12)

    def test_signs(self):
        self.assertEqual(evaluate("-2 * (1 - 3)"), 4)
        self.assertEqual(evaluate("3 - -2"), 5)

    def test_decimals(self):
        self.assertEqual(evaluate("1.5 * 4"), 6)

    def test_what_is_no_expression_is_refused(self):
        for text in ("", "2 +", "(2", "2)", "2 3", "2 $ 3"):
            with self.subTest(text), self.assertRaises(ValueError):
                evaluate(text)
