import unittest

from titles import slugify


class SlugifyTest(unittest.TestCase):
    def test_as_the_readme_says(self):
        for title, slug in {
            "Hello, World!": "hello-world",
            "  Déjà   vu ": "deja-vu",
            "GROẞE Straße": "grosse-strasse",
            "Don't -- panic": "dont-panic",
            "It\u2019s 2 o\u2019clock": "its-2-oclock",
            "...": "untitled",
        }.items():
            with self.subTest(title):
                self.assertEqual(slugify(title), slug)

    def test_words_are_counted(self):
        self.assertEqual(slugify("a b c d e f g h i j"), "a-b-c-d-e-f-g-h")
        self.assertEqual(slugify("one two three", words_max=2), "one-two")
