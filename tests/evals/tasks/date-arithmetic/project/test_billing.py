import unittest
from datetime import date

from billing import add_months, due_date, is_leap


class BillingTest(unittest.TestCase):
    def test_the_end_of_a_month(self):
        self.assertEqual(add_months(date(2023, 1, 31), 1), date(2023, 2, 28))
        self.assertEqual(add_months(date(2024, 1, 31), 1), date(2024, 2, 29))
        self.assertEqual(add_months(date(2023, 8, 31), 1), date(2023, 9, 30))

    def test_over_the_end_of_a_year(self):
        self.assertEqual(add_months(date(2023, 11, 15), 3), date(2024, 2, 15))
        self.assertEqual(add_months(date(2023, 12, 1), 12), date(2024, 12, 1))

    def test_a_weekend_is_moved_to_monday(self):
        self.assertEqual(due_date(date(2024, 5, 1)), date(2024, 6, 3))
        self.assertEqual(due_date(date(2024, 5, 2)), date(2024, 6, 3))
        self.assertEqual(due_date(date(2024, 5, 3)), date(2024, 6, 3))

    def test_leap_years(self):
        self.assertEqual([year for year in (1900, 2000, 2023, 2024) if is_leap(year)], [2000, 2024])
