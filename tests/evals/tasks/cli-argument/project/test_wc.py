import contextlib
import io
import tempfile
import unittest
from pathlib import Path

import wc


class WcTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.a, self.b = Path(folder.name) / "a", Path(folder.name) / "b"
        self.a.write_text("one two\nthree\n")
        self.b.write_text("four\n")

    def run_wc(self, *arguments):
        out, err = io.StringIO(), io.StringIO()
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = wc.main([str(one) for one in arguments])
        return code, out.getvalue(), err.getvalue()

    def test_words(self):
        self.assertEqual(self.run_wc(self.a), (0, f"3 {self.a}\n", ""))

    def test_lines(self):
        self.assertEqual(self.run_wc("--lines", self.a), (0, f"2 {self.a}\n", ""))

    def test_several_files_have_a_total(self):
        self.assertEqual(self.run_wc(self.a, self.b), (0, f"3 {self.a}\n1 {self.b}\n4 total\n", ""))

    def test_a_missing_file_is_told_and_the_others_are_counted(self):
        code, out, err = self.run_wc("nowhere", self.b)
        self.assertEqual((code, out), (1, f"1 {self.b}\n1 total\n"))
        self.assertIn("nowhere", err)
