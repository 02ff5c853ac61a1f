import unittest

from paging import page, page_count


class PagingTest(unittest.TestCase):
    def test_a_page_is_full(self):
        self.assertEqual(page(list(range(10)), 1, 5), [0, 1, 2, 3, 4])

    def test_the_last_page_may_be_short(self):
        self.assertEqual(page(list(range(7)), 2, 5), [5, 6])
        self.assertEqual(page_count(7, 5), 2)

    def test_nothing_has_one_empty_page(self):
        self.assertEqual(page([], 1, 5), [])

    def test_there_is_no_page_behind_the_last(self):
        with self.assertRaises(IndexError):
            page(list(range(7)), 3, 5)
