import tempfile
import unittest
from pathlib import Path

from addresses import load, save


class AddressesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.path = Path(folder.name) / "book.txt"

    def test_what_is_saved_is_loaded(self):
        book = {"Zoë Çelik": "Straße 5", "Łukasz": "ul. Żółta 1"}
        save(self.path, book)
        self.assertEqual(load(self.path), book)

    def test_a_file_of_windows_with_its_mark_is_read(self):
        self.path.write_bytes(b"\xef\xbb\xbfZo\xc3\xab\tStra\xc3\x9fe 5\r\n")
        self.assertEqual(load(self.path), {"Zoë": "Straße 5"})

    def test_a_line_separator_in_an_address_is_no_end_of_a_line(self):
        book = {"Ann": "Road\u20281"}
        save(self.path, book)
        self.assertEqual(load(self.path), book)
