import unittest

from wrapping import width, wrap


class WrappingTest(unittest.TestCase):
    def test_all_words_stay(self):
        self.assertEqual(wrap("the quick brown fox", 10), ["the quick", "brown fox"])
        self.assertEqual(wrap("a bb ccc", 4), ["a bb", "ccc"])

    def test_paragraphs(self):
        self.assertEqual(wrap("one two\nthree\n\nfour", 20), ["one two three", "", "four"])

    def test_a_long_word_is_cut(self):
        self.assertEqual(wrap("a abcdefgh b", 3), ["a", "abc", "def", "gh", "b"])

    def test_wide_characters(self):
        self.assertEqual(width("漢字ab"), 6)
        self.assertEqual(wrap("漢字 漢字", 5), ["漢字", "漢字"])
        self.assertEqual(wrap("漢字漢字", 5), ["漢字", "漢字"])

    def test_nothing(self):
        self.assertEqual(wrap("", 10), [])
